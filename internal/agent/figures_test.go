package agent

import (
	"os"
	"strings"
	"testing"

	"github.com/divvy-gpu/divvy/internal/agent/control"
	"github.com/divvy-gpu/divvy/internal/backend"
	"github.com/divvy-gpu/divvy/internal/nvml"
	"github.com/divvy-gpu/divvy/internal/process"
)

// A list that has not one entry for each share is the tenant's fault and left out.
// No list is no fault.
func TestFiguresOfAnotherLength(t *testing.T) {
	for name, c := range map[string]struct {
		figures func(*backend.Figures)
		fault   string
	}{
		"all there":               {func(*backend.Figures) {}, ""},
		"no usage":                {func(f *backend.Figures) { f.Usage = nil }, ""},
		"empty usage":             {func(f *backend.Figures) { f.Usage = []backend.Usage{} }, "usage has 0 entries for 1 shares"},
		"too much usage":          {func(f *backend.Figures) { f.Usage = make([]backend.Usage, 2) }, "usage has 2 entries for 1 shares"},
		"no use of a process":     {func(f *backend.Figures) { f.Processes[0].Used = nil }, ""},
		"empty use of a process":  {func(f *backend.Figures) { f.Processes[0].Used = []uint64{} }, "process has 0 entries for 1 shares"},
		"too much of a process":   {func(f *backend.Figures) { f.Processes[0].Used = []uint64{1, 2} }, "process has 2 entries for 1 shares"},
		"freed":                   {func(f *backend.Figures) { f.Freed = []uint64{gib} }, ""},
		"empty freed":             {func(f *backend.Figures) { f.Freed = []uint64{} }, "freed memory has 0 entries for 1 shares"},
		"freed of unknown shares": {func(f *backend.Figures) { f.Freed = []uint64{0, gib} }, "freed memory has 2 entries for 1 shares"},
	} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t)
			b := newInstances(t)
			r := n.startWith(b)
			owner := n.asker(os.Getuid())
			id := n.grant(r, owner, ask(8*gib)).Tenant.ID
			b.use(id, owner.cmd.Process.Pid, 2*gib)
			n.list(r)
			b.find(c.figures)
			listed := n.list(r).Tenants[0]
			if c.fault == "" && listed.Fault != "" || !strings.Contains(listed.Fault, c.fault) {
				t.Errorf("fault %q, want %q", listed.Fault, c.fault)
			}
			s := listed.Shares[0]
			if s.Used != 2*gib || s.Peak != 2*gib || len(s.Process) != 1 || s.Process[0].PID != owner.cmd.Process.Pid {
				t.Errorf("listed %+v", s)
			}
		})
	}
}

// A backend that knows who uses a share and not how much is believed: these
// processes are not outside, and stop ends them.
func TestProcessesOfUnknownUse(t *testing.T) {
	n := newNode(t)
	b := newInstances(t)
	r := n.startWith(b)
	owner, user := n.asker(os.Getuid()), n.asker(os.Getuid())
	pid := user.cmd.Process.Pid
	userID, err := process.Find(pid)
	if err != nil {
		t.Fatal(err)
	}
	id := n.grant(r, owner, onFirst(30)).Tenant.ID
	b.use(id, pid, gib)
	b.find(func(f *backend.Figures) {
		f.Usage, f.Live = nil, userID.Alive()
		f.Processes = []backend.Process{{PID: pid, Live: true}}
		if !f.Live {
			f.Processes = nil
		}
	})
	n.driver.list(nvml.Process{PID: pid, Used: gib})
	l := n.list(r)
	if p := l.Tenants[0].Shares[0].Process; len(p) != 1 || p[0].PID != pid {
		t.Errorf("listed processes %+v", p)
	}
	if len(l.Outside) != 0 {
		t.Errorf("outside %+v", l.Outside)
	}
	owner.hangUp()
	if _, err := r.stop(t.Context(), owner.peer, control.StopParams{Tenant: id}); err != nil {
		t.Fatal(err)
	}
	if userID.Alive() {
		t.Error("stop left the process that uses the share")
	}
}
