package child

import (
	"fmt"
	"os"
	"os/user"
)

// Account is the user that a server runs as. It is nil for the user of this process.
type Account struct{ uid, gid int }

// Unprivileged returns an account for a server that refuses to run as root: that of the name, or nobody.
func Unprivileged(name string) (*Account, error) {
	if os.Geteuid() != 0 {
		return nil, nil
	}
	u, err := user.Lookup(name)
	if err != nil {
		u, err = user.Lookup("nobody")
	}
	if err != nil {
		return nil, fmt.Errorf("there is neither a user %s nor nobody to run the server as", name)
	}
	a := &Account{}
	_, err = fmt.Sscan(u.Uid+" "+u.Gid, &a.uid, &a.gid)
	return a, err
}

// Own gives a file or a directory to the account.
func (a *Account) Own(path string) error {
	if a == nil {
		return nil
	}
	return os.Chown(path, a.uid, a.gid)
}
