package facts

import (
	"slices"
	"strconv"
	"strings"
)

// Endpoints are devices without bridges: those stay with the host.
func Endpoints(all []Device) []Device { return slices.DeleteFunc(slices.Clone(all), Device.IsBridge) }

// Counted is a number of things.
func Counted(n int, one, more string) string {
	if n == 1 {
		return "1 " + one
	}
	return strconv.Itoa(n) + " " + more
}

// String tells it to people.
func (u Use) String() string {
	switch {
	case u.Kind == "route":
		return "the default route leads through " + u.Name
	case !strings.HasPrefix(u.At, "/"):
		return u.Name + " is " + u.At
	}
	return u.Name + " is mounted at " + u.At
}

// plainName are the letters of names that a shell takes as they are.
const plainName = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-@"

// Network says by which network devices the host or a container is on a network through a card, and the command that takes the first of
// them down where a shell takes its name as it is. Both are empty where there is none.
func (d Device) Network() (what, takeDown string) {
	switch {
	case len(d.Connected) == 0 && len(d.Ties) == 0:
		return "", ""
	case len(d.Connected) == 0:
		return d.Ties[0].tied()
	}
	what = "network device " + strings.Join(d.Connected, ", ") + " has an address or a route"
	if name := d.Connected[0]; strings.Trim(name, plainName) == "" {
		takeDown = "ip address flush dev " + name + " && ip link set " + name + " down"
	}
	return what, takeDown
}
