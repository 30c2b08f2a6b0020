package agent

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"testing"

	"github.com/divvy-gpu/divvy/internal/nvml"
)

// Of many idle tenants few are looked at in a round, all in some rounds, and all
// at once when a process appears on a GPU.
func TestPatrolSparesIdleTenants(t *testing.T) {
	n := newNode(t)
	r := n.start()
	var dirs []string
	for i := range 2 * few {
		dirs = append(dirs, n.prepared(r, claimed(fmt.Sprint(i), gib, 0)))
	}
	// seen counts the tenants of which the agent knows that somebody lives.
	seen := func() (count int) {
		r.mu.Lock()
		defer r.mu.Unlock()
		for _, tenant := range r.tenants {
			count += len(tenant.seen.Processes)
		}
		return count
	}
	for i, dir := range dirs {
		n.enter(dir, 0, 1000000+i, gib)
	}
	for round := range leisure * part {
		if round == leisure && (seen() == 0 || seen() >= len(dirs)) {
			t.Errorf("%d were looked at in the first %d rounds", seen(), leisure)
		}
		r.patrol(t.Context())
	}
	if got := seen(); got != len(dirs) {
		t.Errorf("%d of %d were looked at in %d rounds", got, len(dirs), leisure*part)
	}
	second := n.enter(dirs[0], 1, os.Getpid(), gib)
	n.driver.list(nvml.Process{PID: os.Getpid(), Used: gib})
	for i, dir := range dirs[1:] {
		n.enter(dir, 1, 2000000+i, gib)
	}
	for range leisure {
		r.patrol(t.Context())
	}
	if got := seen(); got != 2*len(dirs) {
		t.Errorf("%d of %d processes are known after one appeared on a GPU", got, 2*len(dirs))
	}
	second.leave()
}

// mute is a driver that tells of no GPU.
type mute struct {
	*lister
	err error
}

func (m *mute) Holdings(gpus []int) []nvml.Holding { return unread(gpus, m.err) }

// What the driver does not tell is said once, and again when the reason is another.
func TestLostGPUsFillNoLog(t *testing.T) {
	n := newNode(t)
	settings := n.settings(n.backend)
	var log strings.Builder
	m := &mute{n.driver, errors.New("it is lost")}
	settings.Driver, settings.Log = m, slog.New(slog.NewTextHandler(&log, nil))
	a, err := New(t.Context(), settings)
	if err != nil {
		t.Fatal(err)
	}
	for _, m.err = range []error{m.err, m.err, nvml.ErrLetGo, m.err, nil, nvml.ErrLetGo, m.err} {
		for range 5 {
			a.patrol(t.Context())
		}
		if _, err := a.Listing(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	for _, what := range []string{"list a GPU's processes", "read a GPU's memory"} {
		if got := strings.Count(log.String(), what); got != 4 { // two GPUs fell silent twice, and were let go twice
			t.Errorf("%d lines say: cannot %s", got, what)
		}
	}
}
