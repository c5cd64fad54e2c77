// Package composetest tests compose.yml and the files that it mounts: everything that they name exists, and the services that
// can run here without containers do what the file promises.
package composetest
