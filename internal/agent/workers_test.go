package agent

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"sync"
	"testing"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/agent/agenttest"
	"github.com/divvy-gpu/divvy/internal/agent/control"
	"github.com/divvy-gpu/divvy/internal/workeruser"
)

// staff are workers of which nothing runs: a user has a process as long as its life's other end does.
type staff struct {
	mu    sync.Mutex
	fail  error
	ended []int
	lives map[int]*os.File // the worker's ends
	asked []Worker
}

const firstOfStaff, lastOfStaff = 7001, 7003

func (s *staff) Take(held map[int]bool) (int, error) {
	for uid := firstOfStaff; uid <= lastOfStaff; uid++ {
		if !held[uid] {
			return uid, nil
		}
	}
	return 0, fmt.Errorf("%w: all are held", workeruser.ErrNone)
}

func (s *staff) Start(_ context.Context, w Worker) (*os.File, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked = append(s.asked, w)
	if s.fail != nil {
		return nil, s.fail
	}
	theirs, life, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	s.lives[w.Tenant.Worker] = theirs
	return life, nil
}

func (s *staff) End(_ context.Context, uid int) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ended = append(s.ended, uid)
	if theirs := s.lives[uid]; theirs != nil {
		_ = theirs.Close()
		delete(s.lives, uid)
	}
	return nil
}

func (s *staff) left() []int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Sorted(maps.Keys(s.lives))
}

func (n *node) employ(s *staff) *running {
	n.t.Helper()
	c := n.settings(n.backend)
	c.Workers = s
	return n.startAs(c)
}

// askRemote asks for a share whose command is kept away from the driver.
func askRemote(memory uint64) control.CreateParams {
	p := askOn(firstID, memory)
	p.Request.Backend = v1alpha1.BackendRemote
	p.Environment = []string{"CUDA_LAUNCH_BLOCKING=1", "LD_PRELOAD=/x.so"}
	return p
}

// Each share that the agent serves has a user of its own for its worker and keeps the asker as its own user. The user is free
// when the share has ended, not before.
func TestWorkersHaveUsers(t *testing.T) {
	n, s := newNode(t), &staff{lives: map[int]*os.File{}}
	r := n.employ(s)
	var askers []*asker
	for i := range lastOfStaff - firstOfStaff + 1 {
		askers = append(askers, n.asker(os.Getuid()))
		created := n.grant(r, askers[i], askRemote(gib))
		if !created.Served || created.Hand() == nil || created.Tenant.UID != os.Getuid() {
			t.Errorf("%+v", created)
		}
		t.Cleanup(func() { _ = created.Hand().Close() })
	}
	if w := s.asked[0]; w.Asker != askers[0].peer.Process || !slices.Equal(w.Environment, []string{"CUDA_LAUNCH_BLOCKING=1"}) || w.Tenant.UID != os.Getuid() || w.Tenant.User() != firstOfStaff {
		t.Errorf("the first worker is started so: %+v", w)
	}
	late := n.asker(os.Getuid())
	if _, err := r.create(t.Context(), late.peer, askRemote(gib)); control.CodeOf(err) != control.CodeRefused {
		t.Errorf("without a user: %v", err)
	}
	plain := n.grant(r, n.asker(os.Getuid()), askOn(firstID, gib))
	if plain.Served || plain.Hand() != nil || len(n.list(r).Tenants) != 4 {
		t.Errorf("of backend slice: %+v", plain)
	}
	askers[1].leave()
	eventually(t, "a worker has ended", func() bool { return len(s.left()) == 2 })
	eventually(t, "its share has", func() bool { return len(n.list(r).Tenants) == 3 })
	created := n.grant(r, late, askRemote(gib))
	t.Cleanup(func() { _ = created.Hand().Close() })
	if !slices.Equal(s.left(), []int{7001, 7002, 7003}) || !slices.Equal(s.ended, []int{7002}) {
		t.Errorf("workers %v, ended %v", s.left(), s.ended)
	}
}

// A worker that does not start leaves no share, no directory and no user.
func TestWorkerThatDoesNotStart(t *testing.T) {
	n, s := newNode(t), &staff{lives: map[int]*os.File{}, fail: errors.New("no driver")}
	r := n.employ(s)
	if _, err := r.create(t.Context(), n.asker(os.Getuid()).peer, askRemote(gib)); !errors.Is(err, s.fail) {
		t.Errorf("%v", err)
	}
	if l := n.list(r); len(l.Tenants) > 0 || l.GPUs[0].Granted > 0 || len(n.directories()) > 0 || !slices.Equal(s.ended, []int{7001}) {
		t.Errorf("%+v, directories %v, ended %v", l, n.directories(), s.ended)
	}
}

// An agent that dies at any step leaves no worker that the next one does not know: in the end there is one share with one user,
// and then nothing.
func TestCrashWhileServing(t *testing.T) {
	for _, step := range []string{"create-admitted", "create-saved", "create-made", "create-served", "create-held"} {
		t.Run(step, func(t *testing.T) {
			n, s := newNode(t), &staff{lives: map[int]*os.File{}}
			asker := n.asker(os.Getuid())
			p := askRemote(50 * gib)
			p.Ticket = "a secret of the asker's"
			n.step = agenttest.CrashAt(step, 1)
			r := n.employ(s)
			n.step = nil
			if !agenttest.Crashes(step, func() { _, _ = r.create(t.Context(), asker.peer, p) }) {
				t.Fatal("there is no such step")
			}
			r.stopAgent()
			r = n.employ(s)
			created := n.grant(r, asker, p)
			t.Cleanup(func() { _ = created.Hand().Close() })
			if l := n.list(r); len(l.Tenants) != 1 || l.Tenants[0].ID != created.Tenant.ID || !created.Served {
				t.Errorf("%+v", l.Tenants)
			}
			if left := s.left(); len(left) != 1 {
				t.Errorf("workers %v", left)
			}
			asker.leave()
			eventually(t, "nothing is left", func() bool { return len(n.list(r).Tenants) == 0 && len(s.left()) == 0 })
		})
	}
}
