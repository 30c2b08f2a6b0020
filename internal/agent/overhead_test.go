package agent

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/divvy-gpu/divvy/internal/agent/control"
	"github.com/divvy-gpu/divvy/internal/agentconfig"
	"github.com/divvy-gpu/divvy/internal/nvml"
	"github.com/divvy-gpu/divvy/internal/page"
)

const mib = 1 << 20

// toldOverhead is what the processes of a tenant read of its overhead on the first GPU.
func toldOverhead(t *testing.T, created *control.Created) page.Device {
	t.Helper()
	c, err := page.ReadConfig(filepath.Join(created.Tenant.Dir, "config"))
	if err != nil {
		t.Fatal(err)
	}
	return c.Device[0]
}

func (n *node) measured(r *running, want uint64) {
	n.t.Helper()
	eventually(n.t, "the overhead is measured", func() bool { return n.list(r).Tenants[0].Shares[0].Measured == want })
}

func overheadEvents(l *control.Listing) (found []control.Event) {
	for _, e := range l.Events {
		if e.Kind == control.EventOverhead {
			found = append(found, e)
		}
	}
	return found
}

// What the processes of a share have beyond its ledger counts, is shown, and kills nobody:
// not even when it takes the share past its limit.
func TestOverheadIsMeasured(t *testing.T) {
	n := newNode(t)
	r := n.watching(agentconfig.OutsideKill)
	a := n.asker(os.Getuid())
	pid := a.cmd.Process.Pid
	created := n.grant(r, a, askOn("0", 2*gib))
	n.enter(created.Tenant.Dir, 0, pid, gib)
	n.driver.list(nvml.Process{PID: pid, Used: gib + 300*mib})
	n.measured(r, 300*mib)
	d := toldOverhead(t, created)
	if now := monotonic(); d.Overhead != 300*mib || d.Measured == 0 || d.Measured > now {
		t.Errorf("told %d measured at %d, now %d", d.Overhead, d.Measured, now)
	}
	if s := n.list(r).Tenants[0].Shares[0]; s.Used != gib+300*mib || s.Overhead != 300*mib || s.Past != "" {
		t.Errorf("shown %+v", s)
	}
	for range 2 {
		n.driver.list(nvml.Process{PID: pid, Used: 2*gib + 100*mib})
		n.measured(r, gib+100*mib)
		l := n.list(r)
		if s := l.Tenants[0].Shares[0]; !strings.Contains(s.Past, "100Mi past its limit by overhead alone") {
			t.Errorf("shown %+v", s)
		}
		rounds(t, r, firstID)
	}
	if all := overheadEvents(n.list(r)); len(all) != 1 || all[0].Times > 1 || all[0].Tenant != created.Tenant.Name || all[0].UUID != firstID {
		t.Errorf("told %+v", all)
	}
	states(t, map[int]string{pid: "SRD"})
	n.driver.list(nvml.Process{PID: pid, Used: gib})
	n.measured(r, 0)
	if s := n.list(r).Tenants[0].Shares[0]; s.Past != "" {
		t.Errorf("shown %+v", s)
	}
}

// The next agent goes on with what the last one measured.
func TestOverheadSurvivesTheAgent(t *testing.T) {
	n := newNode(t)
	r := n.watching(agentconfig.OutsideReport)
	a := n.asker(os.Getuid())
	created := n.grant(r, a, askOn("0", 2*gib))
	n.enter(created.Tenant.Dir, 0, a.cmd.Process.Pid, gib)
	n.driver.list(nvml.Process{PID: a.cmd.Process.Pid, Used: gib + 300*mib})
	n.measured(r, 300*mib)
	r.stopAgent()
	before := toldOverhead(t, created)
	r = n.watching(agentconfig.OutsideReport)
	n.list(r) // it begins to measure
	if s := n.list(r).Tenants[0].Shares[0]; s.Measured != 300*mib {
		t.Errorf("shown %+v", s)
	}
	eventually(t, "the next agent measures", func() bool {
		d := toldOverhead(t, created)
		if d.Overhead != 300*mib {
			t.Fatalf("told %d", d.Overhead)
		}
		return d.Measured > before.Measured
	})
	n.measured(r, 300*mib)
}

// A process that dies gives its overhead back without waiting for the next patrol. Nothing
// is asked for that where nothing was measured.
func TestOverheadOfTheDead(t *testing.T) {
	n := newNode(t) // it patrols every hour
	r := n.start()
	a := n.askerOf(os.Getuid(), exec.Command("sh", "-c", "sleep 1000 & wait"))
	var child int
	eventually(t, "its child runs", func() bool {
		children := sleepers(a.cmd.Process.Pid)
		if len(children) == 1 {
			child = children[0]
		}
		return child != 0
	})
	created := n.grant(r, a, askOn("0", 4*gib))
	n.enter(created.Tenant.Dir, 0, a.cmd.Process.Pid, 0)
	dying := n.enter(created.Tenant.Dir, 1, child, gib) // all that the ledger tells
	lasting := nvml.Process{PID: a.cmd.Process.Pid, Used: 100 * mib}
	n.driver.list(lasting, nvml.Process{PID: child, Used: gib + 200*mib})
	n.measured(r, 300*mib)
	before := toldOverhead(t, created).Measured
	n.driver.list(lasting)
	dying.die()
	eventually(t, "what the dead had is given back", func() bool { return toldOverhead(t, created).Overhead == 100*mib })
	if after := toldOverhead(t, created).Measured; after <= before {
		t.Errorf("measured at %d, before at %d", after, before)
	}
}

// A reading during which the ledger changes, or while a driver call is under way, tells
// nothing. Another share is measured meanwhile.
func TestUnsteadyLedgersAreNotMeasured(t *testing.T) {
	for name, change := range map[string]func(s *slot, n uint64){
		"changing": func(s *slot, n uint64) { s.tell(gib, 0, n) },
		"pending":  func(s *slot, n uint64) { s.tell(gib, gib+n/4*mib, n/4) },
	} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t)
			quiet, busy := n.asker(os.Getuid()), n.asker(os.Getuid())
			r := n.watching(agentconfig.OutsideReport)
			steady := n.grant(r, quiet, askOn("0", 2*gib))
			created := n.grant(r, busy, askOn("0", 2*gib))
			n.enter(steady.Tenant.Dir, 0, quiet.cmd.Process.Pid, gib)
			s := n.enter(created.Tenant.Dir, 0, busy.cmd.Process.Pid, gib)
			var operations atomic.Uint64
			asked := func() { change(s, operations.Add(1)) }
			n.driver.asked.Store(&asked)
			n.driver.list(nvml.Process{PID: quiet.cmd.Process.Pid, Used: gib + 300*mib}, nvml.Process{PID: busy.cmd.Process.Pid, Used: gib + 300*mib})
			eventually(t, "the other share is measured", func() bool { return toldOverhead(t, steady).Overhead == 300*mib })
			rounds(t, r, firstID)
			if d := toldOverhead(t, created); d.Overhead != 0 || d.Measured != 0 {
				t.Errorf("told %d measured at %d", d.Overhead, d.Measured)
			}
		})
	}
}

// A driver call that is under way for long, as in a stopped process, hides no more overhead
// than is pending.
func TestLastingCallsHideNoOverhead(t *testing.T) {
	n := newNode(t)
	r := n.watching(agentconfig.OutsideReport)
	a := n.asker(os.Getuid())
	created := n.grant(r, a, askOn("0", 2*gib))
	s := n.enter(created.Tenant.Dir, 0, a.cmd.Process.Pid, gib)
	var asks atomic.Uint64
	asked := func() { s.tell(gib, 100*mib, asks.Add(1)/4) } // others of the share go on
	n.driver.asked.Store(&asked)
	n.driver.list(nvml.Process{PID: a.cmd.Process.Pid, Used: gib + 300*mib})
	n.measured(r, 200*mib)
	if d := toldOverhead(t, created); d.Overhead != 200*mib {
		t.Errorf("told %d", d.Overhead)
	}
}

// A driver that hides what processes have leaves measuring to the processes.
func TestHiddenFiguresAreNotMeasured(t *testing.T) {
	n := newNode(t)
	r := n.watching(agentconfig.OutsideReport)
	a := n.asker(os.Getuid())
	created := n.grant(r, a, askOn("0", 2*gib))
	n.enter(created.Tenant.Dir, 0, a.cmd.Process.Pid, gib)
	n.driver.list(nvml.Process{PID: a.cmd.Process.Pid, Used: gib + 300*mib})
	n.measured(r, 300*mib)
	n.driver.list(nvml.Process{PID: a.cmd.Process.Pid, Hidden: true})
	n.list(r)
	before := toldOverhead(t, created)
	n.list(r)
	n.list(r)
	if d := toldOverhead(t, created); d.Overhead != before.Overhead || d.Measured != before.Measured {
		t.Errorf("told %d at %d, before %d at %d", d.Overhead, d.Measured, before.Overhead, before.Measured)
	}
}
