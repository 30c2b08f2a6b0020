package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/divvy-gpu/divvy/internal/agent"
	"github.com/divvy-gpu/divvy/internal/agent/control"
	"github.com/divvy-gpu/divvy/internal/doctor"
	"github.com/divvy-gpu/divvy/internal/page"
	"github.com/divvy-gpu/divvy/internal/process"
	"github.com/divvy-gpu/divvy/internal/rundir"
	"github.com/divvy-gpu/divvy/internal/tenantdir"
	"github.com/divvy-gpu/divvy/internal/version"
)

// youngest is how old a directory of a share must be to count as left: a younger one may be about to be served.
const youngest = time.Minute

// versionChecks compare the agent's version with this program's.
func (s sight) versionChecks() []doctor.Check {
	if s.list == nil {
		return nil
	}
	theirs := s.list.Info.Version
	c := doctor.Check{ID: "version.agent", Name: "agent's version", Status: doctor.OK, Found: theirs}
	switch {
	case theirs == version.Full():
		return nil
	case theirs == "":
		theirs = "an earlier version that does not tell which"
	}
	c.Status, c.Next = doctor.Warn, startAgain()
	c.Found = fmt.Sprintf("the agent is of %s, and this program of %s", theirs, version.Full())
	if s.list.Info.Ephemeral {
		c.Next = "it ends with your last share; the next `divvy run` starts one of this version"
	}
	return []doctor.Check{c}
}

// clockCheck looks at the clock. Where the rights of users are not known they may have limits of time.
func (s sight) clockCheck() doctor.Check {
	var created time.Time
	limited := false
	if s.list != nil {
		for _, t := range s.list.Tenants {
			if t.Created.After(created) {
				created = t.Created
			}
			limited = limited || t.Until != nil
		}
	}
	return doctor.Clock(created, limited)
}

// leftChecks tell what agents and shares left that have ended.
func (s sight) leftChecks() (checks []doctor.Check) {
	own := map[int]string{os.Getuid(): ""}
	if os.Getuid() == 0 {
		own = rundir.Others()
		own[0] = ""
	}
	var left []string
	for uid := range own {
		places := rundir.TenantsOf(uid)
		if uid == os.Getuid() {
			places = append(places, filepath.Join(s.dir, "tenants"), rundir.Tenants())
		}
		slices.Sort(places)
		for _, place := range slices.Compact(places) {
			left = append(left, s.ended(place, uid)...)
		}
	}
	if len(left) > 0 {
		slices.Sort(left)
		checks = append(checks, doctor.Check{
			ID: "left.directories", Name: "directories left", Status: doctor.Warn, Found: "of shares that have ended: " + few(left),
			Next: "an agent takes them away when it starts: `divvy run` starts your own, `systemctl start divvy-agent` the system's",
		})
	}
	socket := control.Endpoint{Rundir: s.dir}.Socket()
	if info, err := os.Lstat(socket); err == nil && info.Mode().Type() == os.ModeSocket && errors.Is(s.err, control.ErrNoAgent) {
		checks = append(checks, doctor.Check{
			ID: "left.socket", Name: "socket left", Status: doctor.OK, Found: socket + " is of an agent that has ended: the next one replaces it",
		})
	}
	return checks
}

// leftProcesses tells of processes that run in shares which have ended.
func (s sight) leftProcesses(ctx context.Context) []doctor.Check {
	ctx, cancel := context.WithTimeout(ctx, lookTime)
	defer cancel()
	var names, numbers []string
	for _, l := range doctor.Leftovers(ctx, mostLooked) {
		if s.list != nil && l.PID == s.list.Info.PID {
			continue // the agent is about to let go of it
		}
		names = append(names, fmt.Sprintf("process %d (%s) of %s", l.PID, process.Command(l.PID), process.UserName(process.Owner(l.PID))))
		numbers = append(numbers, strconv.Itoa(l.PID))
	}
	if len(names) == 0 {
		return nil
	}
	return []doctor.Check{{
		ID: "left.processes", Name: "processes left", Status: doctor.Warn,
		Found: "in shares that have ended: " + few(names) + ": nobody counts what they do",
		Next:  "end them, if they do not end by themselves: `kill " + strings.Join(numbers, " ") + "`",
	}}
}

// few names at most some of a list.
func few(all []string) string {
	const most = 4
	if len(all) <= most {
		return strings.Join(all, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(all[:most], ", "), len(all)-most)
}

// ended are the directories in a place that no process and no agent needs.
func (s sight) ended(place string, owner int) (left []string) {
	above := filepath.Dir(place)
	found, err := tenantdir.Survey(filepath.Dir(above), filepath.Join(filepath.Base(above), "tenants"), owner)
	if err != nil {
		return nil // somebody else's: no agent made it
	}
	for _, f := range found {
		if s.list != nil && slices.ContainsFunc(s.list.Tenants, func(t control.Tenant) bool { return t.ID == f.Tenant.ID }) {
			continue
		}
		info, err := os.Lstat(f.Tenant.Dir)
		if err != nil || time.Since(info.ModTime()) < youngest {
			continue
		}
		live, err := page.AnyLive(tenantdir.Dir(f.Tenant.Dir).State())
		if err == nil && !live && !agent.HolderOf(f.Record).Alive() {
			left = append(left, f.Tenant.Dir)
		}
	}
	return left
}

// What tenants have mapped is theirs to choose: so many processes of a share are looked at, and all of them for so long.
const (
	mostLooked = 64
	lookTime   = 5 * time.Second
)

// libraryChecks look at which libraries the processes of shares have mapped, as far as the reader may see them.
func (s sight) libraryChecks(ctx context.Context, installed doctor.Library) []doctor.Check {
	if s.list == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, lookTime)
	defer cancel()
	var checks []doctor.Check
	for _, t := range s.list.Tenants {
		var beside, older []string
		pids := pidsOf(t)
		for _, pid := range pids[:min(len(pids), mostLooked)] {
			if process.Owner(pid) != t.UID && t.Namespace == "" && t.Device == "" {
				continue // of another pid namespace, or its number is another's by now
			}
			libraries, err := doctor.Mapped(ctx, pid)
			if err != nil {
				continue
			}
			switch wrong, old := judge(libraries, installed); {
			case wrong != "":
				beside = append(beside, fmt.Sprintf("process %d has mapped %s", pid, wrong))
			case old:
				older = append(older, fmt.Sprint(pid))
			}
		}
		c := doctor.Check{ID: "share.libraries", Name: "share " + t.User + "/" + t.Name, Status: doctor.Warn}
		if len(beside) > 0 {
			c.Found = few(beside) + " without Divvy's library: nothing limits it, and the agent compares what it has with the grant"
			c.Next = "find out what brings that file: LD_LIBRARY_PATH, RPATH or a copy in the program's folder"
			checks = append(checks, c)
		}
		if len(older) > 0 {
			c.Found = "its processes (" + few(older) + ") have the library of another version of Divvy than is installed: its limits hold, and what is new is not there"
			c.Next = "start its command again when it suits"
			checks = append(checks, c)
		}
	}
	if ctx.Err() != nil {
		checks = append(checks, doctor.Check{
			ID: "share.libraries", Name: "libraries", Status: doctor.Warn,
			Found: fmt.Sprintf("not all processes of shares were looked at within %s: what the others have mapped is not known", lookTime),
		})
	}
	return checks
}

// judge says which driver's library a process has mapped without ours, and whether ours is of another build.
func judge(libraries []doctor.Library, installed doctor.Library) (beside string, older bool) {
	ours := slices.IndexFunc(libraries, func(l doctor.Library) bool { return l.Ours })
	gone := slices.ContainsFunc(libraries, func(l doctor.Library) bool { return l.Gone })
	switch {
	case ours >= 0:
		return "", installed.Build != "" && libraries[ours].Build != "" && libraries[ours].Build != installed.Build
	case len(libraries) == 0 || gone:
		return "", false
	}
	return libraries[0].Path, false
}

// pidsOf are the processes of a tenant that use a GPU.
func pidsOf(t control.Tenant) (pids []int) {
	for _, s := range t.Shares {
		for _, p := range s.Process {
			if p.PID > 0 && !slices.Contains(pids, p.PID) {
				pids = append(pids, p.PID)
			}
		}
	}
	return pids
}
