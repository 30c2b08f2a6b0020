package agent

import (
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/divvy-gpu/divvy/internal/agent/control"
)

// A tenant that ends by itself while it is being stopped, by one or by two at once, has
// been stopped, and nobody waits for the grace time.
func TestTenantEndsWhileItIsStopped(t *testing.T) {
	n := newNode(t)
	r := n.start()
	for range 10 {
		a := n.askerOf(os.Getuid(), exec.Command("sh", "-c", `trap "" TERM; while :; do sleep 1000; done`))
		created := n.grant(r, a, ask(gib))
		slot := n.enter(created.Tenant.Dir, 0, a.cmd.Process.Pid, gib/2)
		stopped := make(chan error, 2)
		for range cap(stopped) {
			go func() {
				_, err := r.stop(t.Context(), a.peer, control.StopParams{Tenant: created.Tenant.ID, Grace: maxGrace})
				stopped <- err
			}()
		}
		eventually(t, "it is being stopped", func() bool {
			r.mu.Lock()
			defer r.mu.Unlock()
			of := r.tenants[created.Tenant.ID]
			return of != nil && of.stopping
		})
		a.kill()
		slot.die()
		a.hangUp()
		for range cap(stopped) {
			select {
			case err := <-stopped:
				if err != nil && control.CodeOf(err) != control.CodeNotFound {
					t.Fatal(err)
				}
			case <-time.After(maxGrace / 10):
				t.Fatal("who stopped it waits on")
			}
		}
		if !n.gone(r, created)() {
			t.Fatal("it is still there")
		}
	}
	n.mustBeEmpty(r)
}
