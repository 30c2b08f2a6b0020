package agent

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/agent/control"
	"github.com/divvy-gpu/divvy/internal/backend"
	"github.com/divvy-gpu/divvy/internal/checkpointer"
	"github.com/divvy-gpu/divvy/internal/nvml"
	"github.com/divvy-gpu/divvy/internal/suspension"
)

// believing is a backend that believes what pages say of processes.
type believing struct{ *pages }

func (b believing) Has(backend.Tenant, int) bool { return true }

// saver is a driver with checkpoints: it takes what processes have off the first GPU of a node.
type saver struct {
	node *node

	mu     sync.Mutex
	states map[int]suspension.State
	bytes  map[int]uint64
	others uint64
	acts   []string
	// refuse answers an act; nil carries it out.
	refuse func(act suspension.Act, pid int) error
	none   bool
	// held are how many questions of a kind are not asked before one is.
	held map[string]int
}

func newSaver(n *node) *saver {
	return &saver{node: n, states: map[int]suspension.State{}, bytes: map[int]uint64{}, held: map[string]int{}}
}

// has lets a process use the GPU.
func (s *saver) has(pid int, bytes uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.states[pid], s.bytes[pid] = suspension.Running, bytes
	s.show()
}

// fill has others use so much of the GPU.
func (s *saver) fill(bytes uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.others = bytes
	s.show()
}

// show has NVML tell what is on the GPU. s.mu is held.
func (s *saver) show() (used uint64) {
	var listed []nvml.Process
	used = s.others
	for pid, state := range s.states {
		if state == suspension.Running || state == suspension.Locked {
			listed = append(listed, nvml.Process{PID: pid, Used: s.bytes[pid]})
			used += s.bytes[pid]
		}
	}
	s.node.driver.list(listed...)
	s.node.driver.used.Store(used)
	return used
}

// hold is why nobody is asked, if nobody is. s.mu is held.
func (s *saver) hold(question string) error {
	if s.held[question] == 0 {
		return nil
	}
	s.held[question]--
	return checkpointer.ErrHeld
}

func (s *saver) Version(context.Context) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.hold("version"); err != nil {
		return 0, err
	}
	if s.none {
		return 0, checkpointer.ErrUnsupported
	}
	return 12080, nil
}

func (s *saver) State(_ context.Context, pid int) (suspension.State, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.hold("state"); err != nil {
		return 0, err
	}
	if state, ok := s.states[pid]; ok {
		return state, nil
	}
	return suspension.Unused, nil
}

func (s *saver) Do(_ context.Context, act suspension.Act, pid int, _ time.Duration) (suspension.State, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.hold(act.String()); err != nil {
		return suspension.Unused, err
	}
	if s.refuse != nil {
		if err := s.refuse(act, pid); err != nil {
			return s.states[pid], err
		}
	}
	if s.states[pid] != act.Of() {
		return s.states[pid], &checkpointer.Refusal{Act: act, PID: pid, Result: 401}
	}
	s.acts = append(s.acts, act.String())
	s.states[pid] = act.To()
	if act == suspension.Restore && s.show() > 80*gib {
		s.states[pid] = suspension.Failed
		return suspension.Failed, &checkpointer.Refusal{Act: act, PID: pid, Result: 304}
	}
	s.show()
	return act.To(), nil
}

// did are the acts since the last call.
func (s *saver) did() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	acts := s.acts
	s.acts = nil
	return acts
}

func (s *saver) in(state suspension.State, pids ...int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return !slices.ContainsFunc(pids, func(pid int) bool { return s.states[pid] != state })
}

func (n *node) suspends(s *saver, memory uint64) Config {
	c := n.settings(believing{n.backend})
	c.Checkpointer, c.SwapMemory = s, memory
	return c
}

// user is a share whose process uses the first GPU.
type user struct {
	*asker
	created *control.Created
	slot    *slot
}

func (n *node) use(r *running, s *saver, name string, limit, bytes uint64, after time.Duration) user {
	n.t.Helper()
	a := n.asker(0)
	p := ask(limit)
	p.Request.Name, p.Request.SuspendAfter, p.Request.Among = name, v1alpha1.Duration(after), []string{firstID}
	created := n.grant(r, a, p)
	u := user{asker: a, created: created, slot: n.enter(created.Tenant.Dir, 0, a.cmd.Process.Pid, bytes)}
	s.has(a.cmd.Process.Pid, bytes)
	return u
}

func (u user) pid() int { return u.cmd.Process.Pid }

func (u user) suspend(r *running, hold bool) error {
	_, err := r.suspend(context.Background(), root, control.SuspendParams{Tenant: u.created.Tenant.ID, Hold: hold})
	return err
}

func (u user) resume(r *running) error {
	_, err := r.resume(context.Background(), root, control.ResumeParams{Tenant: u.created.Tenant.ID})
	return err
}

// end has the share's process die, and with it the share.
func (u user) end(r *running, s *saver) {
	u.slot.die()
	u.kill()
	s.mu.Lock()
	delete(s.states, u.pid())
	s.show()
	s.mu.Unlock()
	u.hangUp()
	r.lookSoon(context.Background(), u.created.Tenant.ID)
}

// is is how listings show the share's suspension, "" for one that runs.
func (u user) is(n *node, r *running) control.Suspension {
	for _, t := range n.list(r).Tenants {
		if t.ID == u.created.Tenant.ID && t.Suspended != nil {
			return t.Suspended.State
		}
	}
	return ""
}
