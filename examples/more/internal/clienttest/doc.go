// Package clienttest tests onceclient, and the recipes of docs/clients.md, against the middleware. It is here so that the
// go.sum of a client has no go-redis.
package clienttest
