package facts

import (
	"slices"
	"strings"
)

// Endpoints are devices without bridges: those stay with the host.
func Endpoints(all []Device) []Device { return slices.DeleteFunc(slices.Clone(all), Device.IsBridge) }

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
