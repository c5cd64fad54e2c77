package pgtest

import (
	"fmt"
	"os"
	"os/user"
	"strconv"
)

// account is the user that the server runs as. It is nil for the user of this process.
type account struct{ uid, gid int }

// unprivileged returns an account for a server that refuses to run as root.
func unprivileged() (*account, error) {
	if os.Geteuid() != 0 {
		return nil, nil
	}
	for _, name := range []string{"postgres", "nobody"} {
		u, err := user.Lookup(name)
		if err != nil {
			continue
		}
		uid, err := strconv.Atoi(u.Uid)
		if err != nil {
			continue
		}
		gid, err := strconv.Atoi(u.Gid)
		if err != nil {
			continue
		}
		return &account{uid: uid, gid: gid}, nil
	}
	return nil, fmt.Errorf("there is neither a user postgres nor nobody to run the server as")
}
