package cli

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/divvy-gpu/divvy/internal/cli/text"
	"github.com/divvy-gpu/divvy/internal/doctor"
	"github.com/divvy-gpu/divvy/internal/plaintext"
	"github.com/divvy-gpu/divvy/internal/remote/identity"
	"github.com/divvy-gpu/divvy/internal/remote/relay"
)

// soon is how long before its end a certificate is told of.
const soon = 14 * 24 * time.Hour

// bundles are what a client has for other hosts, and what these say.
type bundles struct {
	kept []identity.Kept
	// asked are the hosts by the paths of the bundles that are valid now.
	asked map[string]relay.Candidate
}

// askHosts asks the hosts of all bundles at once, each by its own bundle. A host that is silent is waited for as `divvy run` does.
func askHosts(ctx context.Context) bundles {
	b := bundles{kept: identity.Look(), asked: map[string]relay.Candidate{}}
	var paths []string
	var hosts []relay.Host
	for _, k := range b.kept {
		if k.Err != nil {
			continue
		}
		if h := relay.By(k.Bundle); h.Fault == nil {
			paths, hosts = append(paths, k.Path), append(hosts, h)
		}
	}
	for i, c := range relay.Candidates(ctx, hosts) {
		b.asked[paths[i]] = c
	}
	return b
}

// hostsOfBundles are the hosts for which there is a bundle that is valid now.
func hostsOfBundles() []string {
	names, err := identity.Hosts()
	if err != nil {
		return nil
	}
	return names
}

// checks say which bundles serve, and which hosts answer.
func (b bundles) checks(now time.Time) (checks []doctor.Check) {
	for _, k := range b.kept {
		checks = append(checks, b.check(k, now))
	}
	return append(checks, b.doubles()...)
}

// longestCause is how long the reason of a host is that does not serve, in characters.
const longestCause = 400

// check says of one bundle whether it serves.
func (b bundles) check(k identity.Kept, now time.Time) doctor.Check {
	c := doctor.Check{ID: "remote.bundle", Name: "bundle " + filepath.Base(k.Path), Status: doctor.Warn}
	if k.Err != nil {
		c.Found, c.Next = remedy(k.Err.Error(), "have `divvy serve admit NAME` run on its host again, and put the file in its place")
		return c
	}
	c.Name = "bundle for " + k.Bundle.Called()
	if err := k.Bundle.Check(k.Bundle.Called()); err != nil {
		c.Found, c.Next = remedy(err.Error(), "")
		return c
	}
	c.Found = fmt.Sprintf("%s: client %s, valid until %s; ", k.Path, k.Bundle.Name(), k.Bundle.NotAfter().UTC().Format(time.DateOnly))
	host := b.asked[k.Path]
	left := k.Bundle.NotAfter().Sub(now)
	switch {
	case host.Err != nil:
		why, next := remedy(plaintext.Line(strings.ReplaceAll(host.Err.Error(), "\n", "; "), longestCause), "look on that host whether `divvy serve` runs, and what its log says")
		c.Found, c.Next = c.Found+"the host does not serve: "+strings.TrimPrefix(why, host.Host.Name+": "), next
	case left < soon:
		c.Found += fmt.Sprintf("that is in %s, and programs that begin later get no GPU there", text.Age(left))
		c.Next = fmt.Sprintf("have `divvy serve admit %s` run on %s again, and put the file in its place", k.Bundle.Name(), k.Bundle.Called())
	case host.Inventory == nil: // its time has just begun
		c.Status, c.Found = doctor.OK, strings.TrimSuffix(c.Found, "; ")
	default:
		c.Status = doctor.OK
		c.Found += "the host gives " + numberOf(len(host.Inventory.GPUs), "GPU")
		if host.Inventory.Commands {
			c.Found += " and runs commands"
		}
	}
	return c
}

// doubles tell of hosts that several valid bundles name.
func (b bundles) doubles() (checks []doctor.Check) {
	var told []string
	for _, k := range b.kept {
		if k.Err != nil || slices.Contains(told, k.Bundle.Called()) {
			continue
		}
		name := k.Bundle.Called()
		told = append(told, name)
		found, err := identity.FindBundles(name)
		if err != nil || len(found) < 2 {
			continue
		}
		var paths []string
		foreign := false
		for _, one := range found {
			paths = append(paths, one.Path())
			foreign = foreign || !one.Akin(found[0])
		}
		c := doctor.Check{ID: "remote.doubles", Name: "bundles for " + name, Status: doctor.OK, Found: strings.Join(paths, " and ") + " are for one server; the first is used"}
		if foreign {
			c.Status, c.Found = doctor.Warn, strings.Join(paths, " and ")+" are of several authorities, so two hosts have this name or one was set up anew; they are tried in this order"
			c.Next = "remove those whose host is not meant by " + name
		}
		checks = append(checks, c)
	}
	return checks
}

// numberOf is a number of things, for a sentence.
func numberOf(n int, one string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %ss", n, one)
}

// remedies are how what to do begins behind what is wrong, in errors of bundles, certificates and hosts.
var remedies = []string{": run ", ": put ", ": `divvy ", ": have `", ": compare ", ": set ", ": start ", ": use ", ": move ", ": install ", ": is the host on"}

// remedy divides an error's text into what is wrong and what to do, which is otherwise where the text does not say.
func remedy(text, otherwise string) (found, next string) {
	at := len(text)
	for _, begin := range remedies {
		if i := strings.Index(text, begin); i >= 0 {
			at = min(at, i)
		}
	}
	if at == len(text) {
		return text, otherwise
	}
	return text[:at], strings.TrimPrefix(text[at:], ": ")
}
