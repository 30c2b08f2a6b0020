package agent

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/agent/agenttest"
	"github.com/divvy-gpu/divvy/internal/agent/control"
	"github.com/divvy-gpu/divvy/internal/agentconfig"
	"github.com/divvy-gpu/divvy/internal/backend"
	"github.com/divvy-gpu/divvy/internal/page"
	"github.com/divvy-gpu/divvy/internal/process"
	"github.com/divvy-gpu/divvy/internal/tenantdir"
)

func unlimited(int) agentconfig.Limits { return agentconfig.Limits{} }

// bequest is what a user's own agent leaves: a share of 20 GiB of the first GPU, whose
// process lives, and one of 3 GiB of both, whose first process lives and has touched
// no GPU yet.
func bequest(t *testing.T) (own *node, left []Heritage, first *slot) {
	t.Helper()
	own = newNode(t)
	if err := os.Chmod(own.dir, 0o755); err != nil {
		t.Fatal(err)
	}
	r := own.start()
	named := askOn(firstID, 20*gib)
	named.Request.Name, named.Request.Cores = "train", 30
	created := own.grant(r, own.asker(os.Getuid()), named)
	first = own.enter(created.Tenant.Dir, 0, os.Getpid(), gib)
	both := ask(3 * gib)
	both.Request.GPUs = 2
	own.grant(r, own.asker(os.Getuid()), both)
	if err := r.Leave(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := r.create(t.Context(), own.asker(os.Getuid()).peer, ask(gib)); control.CodeOf(err) != control.CodeMoved {
		t.Errorf("an agent that hands over grants: %v", err)
	}
	r.stopAgent()
	return own, []Heritage{{UID: os.Getuid(), Tenants: own.backend.dir}}, first
}

// mustHaveInherited checks that both shares are there once.
func (n *node) mustHaveInherited(r *running) {
	n.t.Helper()
	l := n.list(r)
	if len(l.Tenants) != 2 || l.GPUs[0].Granted != 23*gib || l.GPUs[1].Granted != 3*gib || l.GPUs[0].Cores != 30 {
		n.t.Fatalf("taken over: %+v of %+v", l.Tenants, l.GPUs)
	}
	train, other := l.Tenants[0], l.Tenants[1]
	if train.Name != "train" || train.UID != os.Getuid() || !train.Cooperative || train.Shares[0].Used != gib || train.Fault != "" {
		n.t.Errorf("the first: %+v", train)
	}
	if !other.Held || !other.Cooperative || len(other.Command) == 0 {
		n.t.Errorf("the second: %+v", other)
	}
	if dirs := n.directories(); len(dirs) != 2 {
		n.t.Errorf("directories %v", dirs)
	}
}

// at is a step of the backend.
func (n *node) at(step string) {
	if n.step != nil {
		n.step(step)
	}
}

// crashingAt runs an agent until it crashes in f at the step of that number, and returns
// that step's name, or "" if f has fewer steps.
func (n *node) crashingAt(number int, f func(*running)) (name string) {
	n.step = func(step string) {
		if number--; number < 0 {
			panic(agenttest.Crash(step))
		}
	}
	r := n.start()
	defer r.stopAgent()
	defer func() {
		n.step = nil
		if fault := recover(); fault != nil {
			at, ok := fault.(agenttest.Crash)
			if !ok {
				panic(fault)
			}
			name = string(at)
		}
	}()
	f(r)
	return ""
}

// An agent that dies at each step of taking over, once or twice, or takes over again,
// loses no share and counts none twice.
func TestCrashAtEachStepOfTakingOver(t *testing.T) {
	seen := map[string]int{}
	for number, more := 0, true; more; number++ {
		t.Run(fmt.Sprintf("at step %d", number), func(t *testing.T) {
			_, left, first := bequest(t)
			n := newNode(t)
			inherit := func(r *running) {
				if err := r.Inherit(t.Context(), left, unlimited); err != nil {
					t.Fatal(err)
				}
			}
			name := n.crashingAt(number, inherit)
			seen[name]++
			more = name != ""
			n.crashingAt(number/2, inherit)
			r := n.start()
			inherit(r)
			inherit(r)
			n.mustHaveInherited(r)
			r.stopAgent()
			n.spoil(func([]byte) []byte { return nil })
			r = n.start()
			inherit(r)
			n.mustHaveInherited(r)
			first.leave()
		})
	}
	for step, times := range map[string]int{
		"inherit-begun": 2, "adopt-cleared": 2, "adopt-made": 2, "adopt-linked-theirs": 2, "adopt-linked-state": 2, "adopt-granted": 2,
		"adopt-linked-origin": 2, "adopt-recorded": 2, "adopt-moved": 2, "inherit-adopted": 2, "inherit-saved": 1,
	} {
		if seen[step] != times {
			t.Errorf("the agent died %d times at %s, want %d", seen[step], step, times)
		}
	}
}

// What is taken over is bounded by what the administrator allows the user, and by the
// machine, whatever the user's page says.
func TestInheritanceIsBounded(t *testing.T) {
	own, left, _ := bequest(t)
	for _, dir := range own.directories() {
		config := tenantdir.Dir(dir).Config()
		if err := page.UpdateConfig(config, func(c *page.Config) {
			c.Device[0].Limit, c.Device[0].Weight, c.Device[0].Cores = 1<<50, 900, 90
		}); err != nil {
			t.Fatal(err)
		}
	}
	n := newNode(t)
	r := n.start()
	err := r.Inherit(t.Context(), left, func(int) agentconfig.Limits {
		return agentconfig.Limits{Memory: 10 * gib, Cores: 20, Weight: 5}
	})
	if err != nil {
		t.Fatal(err)
	}
	var memory uint64
	for _, tenant := range n.list(r).Tenants {
		for _, s := range tenant.Shares {
			memory += s.Limit
			if s.Weight > 5 || s.Cores > 20 {
				t.Errorf("%+v", s)
			}
		}
		theirs, err := page.ReadConfig(tenantdir.Dir(tenant.Dir).Theirs())
		if err != nil || theirs.Device[0].Limit != tenant.Shares[0].Limit {
			t.Errorf("the tenant reads %d, %v; the agent counts %d", theirs.Device[0].Limit, err, tenant.Shares[0].Limit)
		}
	}
	// The one that came too late keeps what its processes' contexts take.
	if least := 2 * (gib/2 + uint64(page.Unit)); memory > 10*gib+least {
		t.Errorf("%d bytes are counted", memory)
	}
}

// What no process lives by is not counted, and what was spoilt is told.
func TestDeadInheritance(t *testing.T) {
	own, left, first := bequest(t)
	first.die()
	for _, dir := range own.directories() {
		record := tenantdir.Dir(dir).Record()
		if err := os.WriteFile(record, []byte("garbage"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	n := newNode(t)
	r := n.start()
	left = append(left, Heritage{UID: os.Getuid(), Tenants: filepath.Join(n.dir, "nowhere")}, Heritage{UID: os.Getuid(), Tenants: "tenants"})
	if err := r.Inherit(t.Context(), left, unlimited); err != nil {
		t.Fatal(err)
	}
	l := n.list(r)
	if len(l.Tenants) > 0 {
		t.Errorf("counted are %+v", l.Tenants)
	}
	if !slices.ContainsFunc(l.Events, func(e control.Event) bool { return strings.Contains(e.Text, "not taken over") }) {
		t.Errorf("nothing is said of a place that is no path: %+v", l.Events)
	}
}

// heldGPUs are the locks of an own agent, beside others who hold GPUs.
type heldGPUs struct {
	mu   sync.Mutex
	by   map[string]string // who else, by UUID
	own  string
	race string // the UUID of the GPU that another agent takes just before this one
}

func (h *heldGPUs) Take(_ context.Context, uuid string) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if uuid == h.race {
		h.by[uuid], h.race = "it is held by who was faster", ""
	}
	if h.by[uuid] != "" {
		return errors.New("it is held")
	}
	h.own = uuid
	return nil
}

func (h *heldGPUs) Give(uuid string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.own == uuid {
		h.own = ""
	}
}

func (h *heldGPUs) Has(uuid string) bool { return h.mine() == uuid }

func (h *heldGPUs) Elsewhere(_ context.Context, uuid string) (string, []string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.by[uuid], []string{control.AnotherGPU, "end it"}
}

func (h *heldGPUs) mine() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.own
}

func (h *heldGPUs) set(uuid, by string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.by[uuid] = by
}

// An own agent holds the GPUs on which it has shares and no others, names who holds
// the one that was asked for, and grants nothing once a system agent is configured.
func TestOwnAgentHoldsWhatItUses(t *testing.T) {
	n := newNode(t)
	held := &heldGPUs{by: map[string]string{otherID: "it is held by u1"}}
	c := n.settings(n.backend)
	var denied error
	c.Locks, c.Permit = held, func() error { return denied }
	r := n.startAs(c)
	if held.mine() != "" {
		t.Errorf("holds %s without a share", held.mine())
	}
	a := n.asker(os.Getuid())
	created := n.grant(r, a, ask(gib))
	if created.Tenant.Shares[0].UUID != firstID || held.mine() != firstID {
		t.Errorf("%+v, holds %s", created.Tenant.Shares, held.mine())
	}
	if _, err := r.create(t.Context(), n.asker(os.Getuid()).peer, askOn(otherID, gib)); err == nil || !strings.Contains(err.Error(), "GPU 1") || !strings.Contains(err.Error(), "u1") {
		t.Errorf("%v names neither the GPU nor its holder", err)
	}
	held.race = otherID // free when it is looked for, and taken then
	delete(held.by, otherID)
	if _, err := r.create(t.Context(), n.asker(os.Getuid()).peer, askOn(otherID, gib)); err == nil || !strings.Contains(err.Error(), "faster") {
		t.Errorf("%v does not name who was faster", err)
	}
	a.kill()
	a.hangUp()
	eventually(t, "the GPU is let go", func() bool { return held.mine() == "" })
	denied = control.Errorf(control.CodeMoved, "a system agent is configured")
	if _, err := r.create(t.Context(), n.asker(os.Getuid()).peer, ask(gib)); control.CodeOf(err) != control.CodeMoved || held.mine() != "" {
		t.Errorf("%v, holds %q", err, held.mine())
	}
}

// A waiting request hears of a system agent, and of a GPU that another agent let go.
func TestWaitingForAnotherAgentsGPU(t *testing.T) {
	n := newNode(t)
	held := &heldGPUs{by: map[string]string{otherID: "it is held by u1"}}
	c := n.settings(n.backend)
	c.Locks = held
	r := n.startAs(c)
	p := askOn(otherID, gib)
	p.Wait = true
	done := make(chan error, 1)
	go func() {
		_, err := r.create(t.Context(), n.asker(os.Getuid()).peer, p)
		done <- err
	}()
	eventually(t, "it waits", func() bool { return len(n.list(r).Waiting) == 1 })
	held.set(otherID, "")
	r.retryHeld()
	if err := <-done; err != nil {
		t.Error(err)
	}
	if got := fmt.Sprint(held.mine()); got != otherID {
		t.Errorf("holds %s", got)
	}
}

// changing is a backend that tells of each change before it makes it.
type changing struct {
	*pages
	before func(backend.Tenant)
}

func (c *changing) Change(ctx context.Context, t backend.Tenant) error {
	c.before(t)
	return c.pages.Change(ctx, t)
}

// A share that becomes smaller does so before the ledger has room for others, and one
// that becomes larger after.
func TestLedgerNeverHasMoreRoomThanPages(t *testing.T) {
	n := newNode(t)
	b := &changing{pages: n.backend, before: func(backend.Tenant) {}}
	r := n.startWith(b)
	created := n.grant(r, n.asker(os.Getuid()), askOn(firstID, 40*gib))
	changes := 0
	b.before = func(wanted backend.Tenant) {
		changes++
		r.mu.Lock()
		defer r.mu.Unlock()
		if granted := r.granted(t.Context(), nil)[0].Granted; granted < wanted.Shares[0].Limit || granted < n.config(created).Device[0].Limit {
			t.Errorf("the ledger counts %d, the page says %d and becomes %d", granted, n.config(created).Device[0].Limit, wanted.Shares[0].Limit)
		}
	}
	for _, limit := range []uint64{10 * gib, 60 * gib, 5 * gib} {
		memory := v1alpha1.Bytes(limit)
		if _, err := r.set(t.Context(), control.NewPeer(process.ID{}, 0, nil, nil), control.SetParams{Tenant: created.Tenant.ID, Memory: &memory}); err != nil {
			t.Fatal(err)
		}
		if got := n.config(created).Device[0].Limit; got != limit {
			t.Errorf("the page says %d, want %d", got, limit)
		}
	}
	if changes < 5 {
		t.Errorf("%d changes were seen", changes)
	}
}

// Another GPU is advised to those only whom one would serve.
func TestAnotherGPUIsAdvisedWhereItHelps(t *testing.T) {
	n := newNode(t)
	c := n.settings(n.backend)
	c.Locks = &heldGPUs{by: map[string]string{otherID: "it is held by u1"}}
	r := n.startAs(c)
	both, large := ask(gib), askOn(otherID, 20*gib)
	both.Request.GPUs = 2
	advised := func(p control.CreateParams) bool {
		t.Helper()
		_, err := r.create(t.Context(), n.asker(os.Getuid()).peer, p)
		if err == nil || !strings.Contains(err.Error(), "end it") {
			t.Errorf("%v does not say what can be done", err)
			return false
		}
		return strings.Contains(err.Error(), "choose another GPU")
	}
	if !advised(large) {
		t.Error("there is another GPU, and it is not advised")
	}
	if advised(both) {
		t.Error("all GPUs are needed, and another is advised")
	}
	n.grant(r, n.asker(os.Getuid()), askOn(firstID, 70*gib))
	if advised(large) {
		t.Error("the other GPU is full, and is advised")
	}
}
