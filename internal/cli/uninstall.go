package cli

import (
	"context"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"github.com/divvy-gpu/divvy/internal/agent"
	"github.com/divvy-gpu/divvy/internal/page"
	"github.com/divvy-gpu/divvy/internal/process"
	"github.com/divvy-gpu/divvy/internal/rundir"
	"github.com/divvy-gpu/divvy/internal/tenantdir"
)

// mostInTheWay is how many shares are named in a line.
const mostInTheWay = 4

// removable is nil if there are no shares, and else the line that says how to go on.
func removable(shares []string) error {
	if len(shares) == 0 {
		return nil
	}
	count, more := "1 share runs", ""
	if len(shares) > 1 {
		count = fmt.Sprintf("%d shares run", len(shares))
	}
	named := shares
	if len(shares) > mostInTheWay {
		named, more = shares[:mostInTheWay], " and others"
	}
	return fmt.Errorf("%s (%s%s): end them with `divvy stop %s`, as root or as their user, or wait for their end; then remove Divvy again",
		count, strings.Join(named, ", "), more, shares[0])
}

// goingOn lists the shares of all users as far as the reader can see them, as user/name: those that the agents tell of, and
// those that an agent left which is gone.
func (a *app) goingOn(ctx context.Context) []string {
	names := map[string]bool{}
	if all, err := a.survey(ctx, ""); err == nil {
		for _, l := range all.agents {
			for _, t := range l.Tenants {
				names[shareName(t.User, t.Name)] = true
			}
		}
	}
	users := rundir.Others()
	users[0] = "" // a system agent keeps its tenants where root's own agent does
	for uid := range users {
		for _, place := range rundir.TenantsOf(uid) {
			for name := range left(place, uid) {
				names[name] = true
			}
		}
	}
	return slices.Sorted(maps.Keys(names))
}

// left are the shares below a directory of tenants that a process still needs.
func left(place string, owner int) map[string]bool {
	names := map[string]bool{}
	above := filepath.Dir(place)
	for _, place := range []string{place, tenantdir.Containers(place)} {
		inside, err := filepath.Rel(filepath.Dir(above), place)
		if err != nil {
			continue
		}
		found, err := tenantdir.Survey(filepath.Dir(above), inside, owner)
		if err != nil {
			continue // somebody else's: no agent made it
		}
		for _, f := range found {
			live, err := page.AnyLive(tenantdir.Of(place, f.Tenant.ID).State())
			if err == nil && live || agent.HolderOf(f.Record).Alive() {
				names[shareName(process.UserName(f.Tenant.UID), f.Tenant.Name)] = true
			}
		}
	}
	return names
}

func shareName(user, name string) string { return user + "/" + name }
