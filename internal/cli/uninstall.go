package cli

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/divvy-gpu/divvy/internal/agent"
	"github.com/divvy-gpu/divvy/internal/backend"
	"github.com/divvy-gpu/divvy/internal/page"
	"github.com/divvy-gpu/divvy/internal/process"
	"github.com/divvy-gpu/divvy/internal/rundir"
	"github.com/divvy-gpu/divvy/internal/tenantdir"
)

// mostInTheWay is how many shares are named in a line.
const mostInTheWay = 4

// inTheWay is a share that keeps Divvy from being removed.
type inTheWay struct {
	// name is user/name.
	name string
	// own is how its user ends it, for a share of an agent of their own, which root does not reach; else empty.
	own string
}

// removable is nil if there are no shares, and else the line that says how to go on.
func removable(shares []inTheWay) error {
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
	var names []string
	for _, share := range named {
		names = append(names, share.name)
	}
	way := cmp.Or(shares[0].own, fmt.Sprintf("`divvy stop %s`, as root or as their user", shares[0].name))
	return fmt.Errorf("%s (%s%s): end them with %s, or wait for their end; then remove Divvy again", count, strings.Join(names, ", "), more, way)
}

// goingOn lists the shares of all users as far as the reader can see them, as user/name: those that the agents tell of, and
// those that an agent left which is gone.
func (a *app) goingOn(ctx context.Context) []inTheWay {
	ways := map[string]string{}
	users := rundir.Others()
	users[0] = "" // a system agent keeps its tenants where root's own agent does
	for uid := range users {
		for _, place := range rundir.TenantsOf(uid) {
			maps.Copy(ways, left(place, uid))
		}
	}
	if all, err := a.survey(ctx, ""); err == nil {
		for _, l := range all.agents {
			for _, t := range l.Tenants {
				ways[shareName(t.User, t.Name)] = "" // this agent answers who asks
			}
		}
	}
	var shares []inTheWay
	for _, name := range slices.Sorted(maps.Keys(ways)) {
		shares = append(shares, inTheWay{name, ways[name]})
	}
	return shares
}

// left are the shares below a directory of tenants that a process still needs, and how those of an own agent are ended.
func left(place string, owner int) map[string]string {
	ways := map[string]string{}
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
				ways[shareName(process.UserName(f.Tenant.UID), f.Tenant.Name)] = ownWay(f, owner)
			}
		}
	}
	return ways
}

// ownWay is how a user ends a share of their own agent's. Another's agent serves them alone.
func ownWay(f backend.Found, owner int) string {
	if owner == os.Getuid() || owner == 0 {
		return ""
	}
	command := "divvy stop " + f.Tenant.Name
	if machine := agent.MachineOf(f.Record); machine != "" {
		command += " --simgpu " + machine
	}
	return fmt.Sprintf("`%s` as %s", command, process.UserName(owner))
}

func shareName(user, name string) string { return user + "/" + name }
