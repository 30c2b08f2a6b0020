package agent

import (
	"os"
	"testing"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/agent/agenttest"
	"github.com/divvy-gpu/divvy/internal/agentconfig"
)

// However far the agent was on the way from one form to another when it died, the next one makes the GPU whole.
func TestCrashOnTheWayToAForm(t *testing.T) {
	states := map[string]agentconfig.Form{
		unchanged: {Backend: v1alpha1.BackendSlice}, shortFirst: {Backend: v1alpha1.BackendTimeslice, Slice: "short"},
		longFirst: {Backend: v1alpha1.BackendTimeslice, Slice: "long"}, exclusiveFirst: {Backend: v1alpha1.BackendMPS},
	}
	steps := []string{"form-given", "form-begun", "form-entered", "form-left", "form-made", "mode-recorded", "mode-changed", "mode-made", "mode-crossed-out"}
	deaths := map[string]int{}
	for from, before := range states {
		for to, after := range states {
			for _, step := range steps {
				for nth := 1; from != to; nth++ {
					f := newForge(t)
					r := f.run("", nil)
					if err := f.give(r, "0", before); err != nil {
						t.Fatal(err)
					}
					r.stopAgent()
					die := func(string) {}
					r = f.run("", func(name string) { die(name) })
					die = agenttest.CrashAt(step, nth)
					died := agenttest.Crashes(step, func() {
						if err := f.give(r, "0", after); err != nil {
							t.Errorf("%s to %s: %v", from, to, err)
						}
					})
					die = func(string) {}
					r.stopAgent()
					if !died {
						break
					}
					deaths[step]++
					f.run("", nil).stopAgent()
					if got := f.silicon.changed(); got != to {
						t.Errorf("%s to %s, dead at %s %d: it has %s", from, to, step, nth, got)
					}
					last := f.run("", nil)
					if err := f.give(last, "0", agentconfig.Form{}); err != nil || f.silicon.changed() != unchanged {
						t.Errorf("%s to %s, dead at %s %d: put back: %v, %s", from, to, step, nth, err, f.silicon.changed())
					}
					last.stopAgent()
				}
			}
		}
	}
	if len(deaths) != len(steps) {
		t.Errorf("agents died at %v, of %v", deaths, steps)
	}
}

// A share's GPU is put back also if the agent died while it was prepared.
func TestCrashBeforeTheFirstShare(t *testing.T) {
	for _, step := range []string{"form-begun", "mode-recorded", "mode-changed", "mode-made", "form-entered", "create-saved"} {
		f := newForge(t)
		die := agenttest.CrashAt(step, 1)
		r := f.run("", func(name string) { die(name) })
		asker := f.asker(os.Getuid())
		died := agenttest.Crashes(step, func() { _, _ = r.create(t.Context(), asker.peer, timesliced("0", gib)) })
		if !died {
			t.Fatalf("%s: nobody died", step)
		}
		asker.hangUp()
		asker.kill()
		die = func(string) {}
		r.stopAgent()
		next := f.run("", nil)
		eventually(t, "the GPU is as it was", func() bool { return len(f.list(next).Tenants) == 0 && f.silicon.changed() == unchanged })
		next.stopAgent()
	}
}
