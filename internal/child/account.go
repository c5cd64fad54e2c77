package child

import (
	"fmt"
	"os"
	"os/user"
	"strconv"
)

// Account is the user that a server runs as. It is nil for the user of this process.
type Account struct{ uid, gid int }

// Unprivileged returns an account for a server that refuses to run as root: that of the name, or nobody.
func Unprivileged(name string) (*Account, error) {
	if os.Geteuid() != 0 {
		return nil, nil
	}
	for _, name := range []string{name, "nobody"} {
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
		return &Account{uid: uid, gid: gid}, nil
	}
	return nil, fmt.Errorf("there is neither a user %s nor nobody to run the server as", name)
}

// Own gives a file or a directory to the account.
func (a *Account) Own(path string) error {
	if a == nil {
		return nil
	}
	return os.Chown(path, a.uid, a.gid)
}
