package cli

import (
	"fmt"
	"slices"
	"strings"

	"github.com/divvy-gpu/divvy/internal/remote/identity"
	"github.com/divvy-gpu/divvy/internal/remote/relay"
)

// anyHost stands for all hosts that this user has a bundle for.
const anyHost = "any"

// hostsFlag is a list of hosts, or all that are known.
type hostsFlag struct {
	names []string
	all   bool
}

// Set implements pflag.Value.
func (f *hostsFlag) Set(text string) error {
	if text == anyHost {
		*f = hostsFlag{all: true}
		return nil
	}
	names, err := relay.Names(text)
	if err != nil {
		return err
	}
	if slices.Contains(names, anyHost) {
		return fmt.Errorf("%w: %s is every host that you have a bundle for: name it alone", relay.ErrNames, anyHost)
	}
	*f = hostsFlag{names: names}
	return nil
}

// Type implements pflag.Value.
func (f *hostsFlag) Type() string { return "HOST,...|any" }

func (f *hostsFlag) String() string {
	if f.all {
		return anyHost
	}
	return strings.Join(f.names, ",")
}

// given reports whether the flag was.
func (f *hostsFlag) given() bool { return f.all || len(f.names) > 0 }

// hosts are the names. Where any host will do there must be one that this user has a valid bundle for.
func (f *hostsFlag) hosts() ([]string, error) {
	if !f.all {
		return f.names, nil
	}
	return identity.Hosts()
}
