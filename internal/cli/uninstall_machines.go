package cli

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/agent/control"
	"github.com/divvy-gpu/divvy/internal/cli/text"
	"github.com/divvy-gpu/divvy/internal/vm/binding"
	"github.com/divvy-gpu/divvy/internal/vm/claims"
	"github.com/divvy-gpu/divvy/internal/vm/vfio"
)

// givenAway is what Divvy has changed of devices for virtual machines, and only Divvy puts back.
type givenAway struct {
	// claims are by their names, with the claim of a cluster for which each is, or "".
	claims map[string]string
	// functions are the addresses of devices whose virtual functions Divvy enabled.
	functions map[string]bool
	// reserved are the claims of a cluster whose containers use functions by the host's driver, such as those of RDMA cards.
	reserved map[string]bool
	// served is true where an agent answers, which puts it back.
	served bool
	// unknown is why more may be given, nil where all is known.
	unknown error
}

// given is what the agent tells of, and what an agent left which is gone, as far as the reader can see it.
func (a *app) given(ctx context.Context) givenAway {
	endpoint := a.endpoint("")
	l := givenBy(endpoint.System().Dir())
	err := ask(ctx, endpoint, func(c *control.Client) error {
		all, err := c.Devices(ctx)
		if err != nil {
			return err
		}
		for _, c := range all.Claims {
			l.claims[c.Name] = c.Cluster
		}
		for _, f := range all.Functions {
			l.functions[f.Device.String()] = true
		}
		return nil
	})
	l.served = err == nil
	return l
}

// givenBy is what the files in an agent's directory tell. A ledger that cannot be read is none, as for the agent: the book has all
// devices.
func givenBy(dir string) givenAway {
	l := givenAway{claims: map[string]string{}, functions: map[string]bool{}, reserved: map[string]bool{}}
	book, err := vfio.Open(vfio.Config{Path: filepath.Join(dir, vfio.FileName)})
	switch {
	case err == nil:
		defer book.Close()
		for _, e := range book.Entries() {
			switch {
			case e.Plan.Form == binding.FormFunctions:
				l.functions[e.Plan.Device.String()] = true
			case v1alpha1.Backend(e.Plan.Form).ForMachines():
				l.claims[e.Owner] = ""
			}
		}
	case !errors.Is(err, os.ErrPermission):
		l.unknown = err
	}
	if ledger, err := claims.Open(claims.Config{Path: filepath.Join(dir, claims.FileName)}); err == nil {
		all, _ := ledger.List()
		for _, c := range all {
			l.claims[c.Name] = c.Cluster
		}
		for _, r := range ledger.Reserved() {
			l.reserved[r.Name] = true
		}
	}
	return l
}

// removable is nil if nothing is given, and else the line that says how to go on.
func (l givenAway) removable() error {
	var found []string
	if names := slices.Sorted(maps.Keys(l.claims)); len(names) > 0 {
		count := "1 claim has a device for a virtual machine"
		if len(names) > 1 {
			count = fmt.Sprintf("%d claims have devices for virtual machines", len(names))
		}
		var ways []string
		if at := slices.IndexFunc(names, func(name string) bool { return l.claims[name] == "" }); at >= 0 {
			ways = append(ways, fmt.Sprintf("end them with `divvy vm release %s`, as root", text.Plain(names[at], 64)))
		}
		if at := slices.IndexFunc(names, func(name string) bool { return l.claims[name] != "" }); at >= 0 {
			ways = append(ways, fmt.Sprintf("a cluster's (%s) ends with its pod", text.Plain(l.claims[names[at]], 128)))
		}
		found = append(found, fmt.Sprintf("%s (%s): %s", count, firstOf(names), strings.Join(ways, ", ")))
	}
	if devices := slices.Sorted(maps.Keys(l.functions)); len(devices) > 0 {
		found = append(found, fmt.Sprintf("virtual functions are enabled (of %s): take them away with `divvy vm functions %s --count 0`, as root", firstOf(devices), devices[0]))
	}
	if names := slices.Sorted(maps.Keys(l.reserved)); len(names) > 0 {
		found = append(found, fmt.Sprintf("containers use cards by claims of the cluster (%s): they end with their pods", firstOf(names)))
	}
	if len(found) > 0 && !l.served {
		found = append(found, "the agent has to run for that")
	}
	if l.unknown != nil {
		found = append(found, fmt.Sprintf("which devices virtual machines have is not known: %v: `divvy doctor`, as root, says what to do", l.unknown))
	}
	if len(found) == 0 {
		return nil
	}
	return errors.New(strings.Join(found, "; ") + "; then remove Divvy again")
}

// firstOf names the first of some things.
func firstOf(names []string) string {
	var plain []string
	for _, name := range names[:min(len(names), mostInTheWay)] {
		plain = append(plain, text.Plain(name, 64))
	}
	if len(names) > mostInTheWay {
		plain[mostInTheWay-1] += " and others"
	}
	return strings.Join(plain, ", ")
}

// inOneLine is what is wrong, if anything is.
func inOneLine(shares, devices error) error {
	if shares == nil || devices == nil {
		return errors.Join(shares, devices)
	}
	return fmt.Errorf("%w; %w", shares, devices)
}
