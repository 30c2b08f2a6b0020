package agent

import (
	"fmt"
	"os"
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
			count += len(tenant.seen.processes)
		}
		return count
	}
	for i, dir := range dirs {
		n.enter(dir, 0, 1000000+i, gib)
	}
	for round := range part {
		if round == 1 && seen() >= len(dirs) {
			t.Error("all were looked at in one round")
		}
		r.patrol(t.Context(), round)
	}
	if got := seen(); got != len(dirs) {
		t.Errorf("%d of %d were looked at in %d rounds", got, len(dirs), part)
	}
	second := n.enter(dirs[0], 1, os.Getpid(), gib)
	n.driver.list(nvml.Process{PID: os.Getpid(), Used: gib})
	for i, dir := range dirs[1:] {
		n.enter(dir, 1, 2000000+i, gib)
	}
	r.patrol(t.Context(), 0)
	if got := seen(); got != 2*len(dirs) {
		t.Errorf("%d of %d processes are known after one appeared on a GPU", got, 2*len(dirs))
	}
	second.leave()
}
