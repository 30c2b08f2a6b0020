package agent

import (
	"errors"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/agent/control"
	"github.com/divvy-gpu/divvy/internal/agentconfig"
	"github.com/divvy-gpu/divvy/internal/excess"
	"github.com/divvy-gpu/divvy/internal/nvml"
)

// watching is an agent that looks often and has an answer.
func (n *node) watching(answer agentconfig.Outside) *running {
	n.interval = 20 * time.Millisecond
	return n.answering(answer)
}

// rounds waits until a GPU was compared so often that whatever is to be told was told.
func rounds(t *testing.T, r *running, uuid string) {
	t.Helper()
	for range 3 {
		begin := time.Now()
		eventually(t, "the GPU is compared", func() bool {
			r.sweeping.Lock()
			defer r.sweeping.Unlock()
			for _, tenant := range r.all() {
				if on := tenant.on[uuid]; on == nil || !on.judged.After(begin) {
					return false
				}
			}
			return true
		})
	}
}

// excesses are the events of memory beyond a grant or an account.
func (n *node) excesses(r *running) (found []control.Event) {
	for _, e := range n.list(r).Events {
		if e.Kind == control.EventExcess {
			found = append(found, e)
		}
	}
	return found
}

// The driver's figures alone decide: what a page tells protects nobody.
func TestExcessIsAnswered(t *testing.T) {
	for answer, want := range map[agentconfig.Outside]string{agentconfig.OutsideReport: "SRD", agentconfig.OutsideStop: "T", agentconfig.OutsideKill: "ZX"} {
		for name, told := range map[string]uint64{"a zeroed ledger": 0, "a forged ledger": 20 * gib} {
			t.Run(string(answer)+"/"+name, func(t *testing.T) {
				n := newNode(t)
				r := n.watching(answer)
				guilty, honest := n.asker(os.Getuid()), n.asker(os.Getuid())
				created := n.grant(r, guilty, askOn("0", 2*gib))
				other := n.grant(r, honest, askOn("0", 8*gib))
				n.enter(created.Tenant.Dir, 0, guilty.cmd.Process.Pid, told)
				n.enter(other.Tenant.Dir, 0, honest.cmd.Process.Pid, 8*gib)
				n.driver.list(nvml.Process{PID: guilty.cmd.Process.Pid, Used: 20 * gib}, nvml.Process{PID: honest.cmd.Process.Pid, Used: 8*gib + excess.LateCode})
				eventually(t, "it is told", func() bool { return len(n.excesses(r)) > 0 })
				states(t, map[int]string{guilty.cmd.Process.Pid: want, honest.cmd.Process.Pid: "SRD"})
				all := n.excesses(r)
				if len(all) != 1 || all[0].Tenant != created.Tenant.Name || all[0].UUID != firstID || !strings.Contains(all[0].Text, "20Gi") {
					t.Errorf("told %+v", all)
				}
			})
		}
	}
}

// Several processes count together, and descendants count wherever they went.
func TestExcessOfSeveralProcesses(t *testing.T) {
	n := newNode(t)
	r := n.watching(agentconfig.OutsideStop)
	a := n.askerOf(os.Getuid(), exec.Command("sh", "-c", "setsid sleep 1000 & setsid sleep 1000 & wait"))
	n.grant(r, a, askOn("0", 2*gib))
	var children []int
	eventually(t, "its children run", func() bool {
		children = sleepers(a.cmd.Process.Pid)
		return len(children) == 2
	})
	n.driver.list(nvml.Process{PID: children[0], Used: 2 * gib}, nvml.Process{PID: children[1], Used: 2 * gib})
	states(t, map[int]string{children[0]: "T", children[1]: "T", a.cmd.Process.Pid: "SRD"})
	if s := n.list(r).Tenants[0].Shares[0]; s.Observed == nil || *s.Observed != 4*gib || s.Excess == "" {
		t.Errorf("shown %+v", s)
	}
	for _, pid := range children {
		_ = kill(pid)
	}
}

// A tenant without a share of a GPU may have nothing of it.
func TestExcessOnAnotherGPU(t *testing.T) {
	n := newNode(t)
	r := n.watching(agentconfig.OutsideKill)
	a := n.asker(os.Getuid())
	n.grant(r, a, askOn("1", 20*gib))
	n.driver.list(nvml.Process{PID: a.cmd.Process.Pid, Used: 2 * gib})
	states(t, map[int]string{a.cmd.Process.Pid: "ZX"})
	if all := n.excesses(r); len(all) != 1 || !strings.Contains(all[0].Text, "no share") {
		t.Errorf("told %+v", all)
	}
}

// A page that tells less than the driver is reported and not answered.
func TestPagesThatTellLess(t *testing.T) {
	n := newNode(t)
	r := n.watching(agentconfig.OutsideKill)
	a := n.asker(os.Getuid())
	created := n.grant(r, a, askOn("0", 8*gib))
	n.enter(created.Tenant.Dir, 0, a.cmd.Process.Pid, gib)
	n.driver.list(nvml.Process{PID: a.cmd.Process.Pid, Used: 6 * gib})
	eventually(t, "it is told", func() bool { return len(n.excesses(r)) > 0 })
	rounds(t, r, firstID)
	states(t, map[int]string{a.cmd.Process.Pid: "SRD"})
	if text := n.excesses(r)[0].Text; !strings.Contains(text, "pages tell") {
		t.Errorf("told %q", text)
	}
}

// What was in use when a limit was lowered is no excess, also for the next agent.
func TestLoweredLimitIsNoExcess(t *testing.T) {
	n := newNode(t)
	r := n.watching(agentconfig.OutsideKill)
	a := n.asker(os.Getuid())
	created := n.grant(r, a, askOn("0", 8*gib))
	n.enter(created.Tenant.Dir, 0, a.cmd.Process.Pid, 7*gib)
	n.driver.list(nvml.Process{PID: a.cmd.Process.Pid, Used: 7 * gib})
	memory := v1alpha1.Bytes(2 * gib)
	if _, err := r.set(t.Context(), a.peer, control.SetParams{Tenant: created.Tenant.ID, Memory: &memory, BelowUsed: true}); err != nil {
		t.Fatal(err)
	}
	rounds(t, r, firstID)
	r.stopAgent()
	r = n.watching(agentconfig.OutsideKill)
	rounds(t, r, firstID)
	states(t, map[int]string{a.cmd.Process.Pid: "SRD"})
	if all := n.excesses(r); len(all) != 0 {
		t.Errorf("told %+v", all)
	}
}

// fickle is a driver that fails to tell when the test says so.
type fickle struct {
	*lister
	silent atomic.Bool
}

func (f *fickle) Holdings(gpus []int) []nvml.Holding {
	if f.silent.Load() {
		return unread(gpus, errors.New("late"))
	}
	return f.lister.Holdings(gpus)
}

// A figure that is missing is shown as unknown, and nobody is accused because of it.
func TestMissingFiguresAreUnknown(t *testing.T) {
	n := newNode(t)
	n.interval = 20 * time.Millisecond
	c := n.settings(n.backend)
	driver := &fickle{lister: n.driver}
	c.Driver, c.Misuse = driver, agentconfig.OutsideKill
	r := n.startAs(c)
	a := n.asker(os.Getuid())
	created := n.grant(r, a, askOn("0", 2*gib))
	n.enter(created.Tenant.Dir, 0, a.cmd.Process.Pid, gib)
	n.driver.list(nvml.Process{PID: a.cmd.Process.Pid, Used: gib})
	if l := n.list(r); l.GPUs[0].Used == nil || l.Tenants[0].Shares[0].Observed == nil || *l.Tenants[0].Shares[0].Observed != gib {
		t.Errorf("shown %+v, %+v", l.GPUs[0], l.Tenants[0].Shares[0])
	}
	driver.silent.Store(true)
	l := n.list(r)
	if l.GPUs[0].Used != nil || l.Tenants[0].Shares[0].Observed != nil || l.Tenants[0].Shares[0].Process[0].Observed != nil {
		t.Errorf("shown %+v, %+v", l.GPUs[0], l.Tenants[0].Shares[0])
	}
	for range 20 {
		r.patrol(t.Context())
	}
	states(t, map[int]string{a.cmd.Process.Pid: "SRD"})
	if all := n.excesses(r); len(all) != 0 {
		t.Errorf("told %+v", all)
	}
}

// Where the driver hides what processes have, all of the GPU is compared, and nobody is
// answered.
func TestHiddenFigures(t *testing.T) {
	n := newNode(t)
	r := n.watching(agentconfig.OutsideKill)
	a := n.asker(os.Getuid())
	created := n.grant(r, a, askOn("0", 2*gib))
	n.enter(created.Tenant.Dir, 0, a.cmd.Process.Pid, gib)
	n.driver.used.Store(gib)
	n.driver.list(nvml.Process{PID: a.cmd.Process.Pid, Hidden: true})
	eventually(t, "it is said", func() bool { return strings.Contains(n.list(r).GPUs[0].Hidden, "does not tell") })
	if s := n.list(r).Tenants[0].Shares[0]; s.Observed != nil || len(n.excesses(r)) != 0 {
		t.Errorf("shown %+v", s)
	}
	n.driver.used.Store(20 * gib)
	eventually(t, "it is told", func() bool { return len(n.excesses(r)) > 0 })
	states(t, map[int]string{a.cmd.Process.Pid: "SRD"})
	if text := n.list(r).GPUs[0].Excess; !strings.Contains(text, "granted together") || !strings.Contains(text, created.Tenant.User+"/"+created.Tenant.Name) {
		t.Errorf("shown %q", text)
	}
	// What a process without a share has is not known either: nothing can be said.
	stranger := n.asker(os.Getuid())
	n.driver.list(nvml.Process{PID: a.cmd.Process.Pid, Hidden: true}, nvml.Process{PID: stranger.cmd.Process.Pid, Hidden: true})
	eventually(t, "nothing is said", func() bool { return n.list(r).GPUs[0].Excess == "" })
}

// Memory that an open descriptor keeps is nobody's on the driver's list.
func TestMemoryOfNobody(t *testing.T) {
	n := newNode(t)
	r := n.watching(agentconfig.OutsideKill)
	a := n.asker(os.Getuid())
	created := n.grant(r, a, askOn("0", 8*gib))
	pid := a.cmd.Process.Pid
	charged := n.enter(created.Tenant.Dir, 0, pid, 6*gib)
	n.driver.used.Store(6 * gib)
	n.driver.list(nvml.Process{PID: pid, Used: gib}) // 5 GiB of it were exported
	n.list(r)
	rounds(t, r, firstID)
	if all := n.excesses(r); len(all) != 0 {
		t.Errorf("what is charged is told: %+v", all)
	}
	n.enter(created.Tenant.Dir, 1, pid, gib)
	charged.leave()
	eventually(t, "it is told", func() bool { return len(n.excesses(r)) > 0 })
	if e := n.excesses(r)[0]; e.UUID != firstID || !strings.Contains(e.Text, "descriptor") || !strings.Contains(e.Text, created.Tenant.Name) {
		t.Errorf("told %+v", e)
	}
	states(t, map[int]string{pid: "SRD"})
	n.driver.used.Store(gib)
	eventually(t, "it is over", func() bool { return n.list(r).GPUs[0].Excess == "" })
}

// A driver that names pids of another namespace names nobody.
func TestForeignPids(t *testing.T) {
	n := newNode(t)
	r := n.watching(agentconfig.OutsideKill)
	r.sweeping.Lock()
	r.initial = false
	r.sweeping.Unlock()
	a := n.asker(os.Getuid())
	n.driver.list(nvml.Process{PID: 1 << 30, Used: gib})
	n.grant(r, a, askOn("0", 2*gib))
	eventually(t, "it is said", func() bool { return strings.Contains(n.list(r).GPUs[0].Hidden, "another pid namespace") })
	n.driver.list(nvml.Process{PID: 1 << 30, Used: gib}, nvml.Process{PID: a.cmd.Process.Pid, Used: 20 * gib})
	for range 20 {
		r.patrol(t.Context())
	}
	if s := n.list(r).Tenants[0].Shares[0]; s.Observed != nil || s.Excess != "" {
		t.Errorf("shown %+v", s)
	}
	states(t, map[int]string{a.cmd.Process.Pid: "SRD"})
}

// Of very many tenants none is spared the comparison.
func TestExcessAmongMany(t *testing.T) {
	n := newNode(t)
	r := n.start()
	for range 2 * few {
		n.grant(r, n.asker(os.Getuid()), askOn("0", gib))
	}
	guilty := n.asker(os.Getuid())
	created := n.grant(r, guilty, askOn("0", gib))
	n.driver.list(nvml.Process{PID: guilty.cmd.Process.Pid, Used: 4 * gib})
	r.patrol(t.Context())
	if n := r.soon(); n == nil {
		t.Fatal("it is not looked at again soon")
	}
	eventually(t, "it is told", func() bool {
		r.recheck(t.Context())
		return slices.ContainsFunc(r.events.list(), func(e control.Event) bool {
			return e.Kind == control.EventExcess && e.Tenant == created.Tenant.Name
		})
	})
}

// blinking is a driver that tells of much once and of little from then on.
type blinking struct {
	*lister
	much atomic.Int32 // how often it still tells of much
	pid  atomic.Int64 // of the process on the GPU, 0 for none
}

func (b *blinking) Holdings(gpus []int) []nvml.Holding {
	used := uint64(gib)
	if b.much.Add(-1) >= 0 {
		used = 20 * gib
	}
	if pid := int(b.pid.Load()); pid != 0 {
		b.list(nvml.Process{PID: pid, Used: used})
	}
	return b.lister.Holdings(gpus)
}

// Who has given back before anybody looks again is answered when that happens too often.
func TestFlickeringExcessIsAnswered(t *testing.T) {
	n := newNode(t)
	c := n.settings(n.backend)
	a := n.asker(os.Getuid())
	driver := &blinking{lister: n.driver}
	c.Driver, c.Misuse = driver, agentconfig.OutsideKill
	r := n.startAs(c)
	n.grant(r, a, askOn("0", 2*gib))
	driver.pid.Store(int64(a.cmd.Process.Pid))
	patrol := func() {
		r.sweeping.Lock()
		for _, tenant := range r.all() {
			if on := tenant.on[firstID]; on != nil {
				on.judged = time.Time{} // long ago
			}
		}
		r.sweeping.Unlock()
		r.patrol(t.Context())
	}
	patrol()
	for sight := range 3 {
		if all := n.excesses(r); len(all) != 0 {
			t.Fatalf("told after %d: %+v", sight, all)
		}
		states(t, map[int]string{a.cmd.Process.Pid: "SRD"})
		patrol()
		driver.much.Store(1)
		patrol()
	}
	states(t, map[int]string{a.cmd.Process.Pid: "ZX"})
	if all := n.excesses(r); len(all) != 1 || !strings.Contains(all[0].Text, "again and again") || !strings.Contains(all[0].Text, "20Gi") {
		t.Errorf("told %+v", all)
	}
}
