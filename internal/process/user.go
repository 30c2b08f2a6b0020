package process

import (
	"os/user"
	"strconv"
)

// Nobody is the user and group without rights that Linux shows for ids it cannot map.
const Nobody = 65534

// UserName is the name of a user, the number where there is none.
func UserName(uid int) string {
	if u, err := user.LookupId(strconv.Itoa(uid)); err == nil {
		return u.Username
	}
	return strconv.Itoa(uid)
}
