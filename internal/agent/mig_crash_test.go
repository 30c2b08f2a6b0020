package agent

import (
	"errors"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/divvy-gpu/divvy/internal/agent/agenttest"
	"github.com/divvy-gpu/divvy/internal/agent/control"
)

// wholly compares the instances of the first GPU with the tenants: each has one, and there is no other.
func (q *quarry) wholly(r *running, what string) {
	q.t.Helper()
	eventually(q.t, what+": each instance is a share's", func() bool {
		shares := 0
		for _, t := range q.list(r).Tenants {
			i := t.Shares[0].Instance
			d := r.divisions.get(firstID)
			if p, ok := d.part(i.UUID); !ok || p.Profile != i.Profile || p.Start != i.Start {
				return false
			}
			shares++
		}
		return len(q.mig.Lists(firstID)) == shares
	})
}

// However far the agent was when it died, the next one has instances of shares alone.
func TestCrashOnTheWayToAnInstance(t *testing.T) {
	for _, step := range []string{"create-admitted", "instance-begun", "mig-created", "instance-made", "instance-saved", "create-saved", "create-made", "create-held"} {
		t.Run(step, func(t *testing.T) {
			q := newQuarry(t)
			die := agenttest.CrashAt(step, 1)
			q.step = func(name string) { die(name) }
			q.mig.Step = q.step
			r := q.run("")
			asker := q.asker(os.Getuid())
			if !agenttest.Crashes(step, func() { _, _ = r.create(t.Context(), asker.peer, instanceOf("2g.20gb")) }) {
				t.Fatal("nobody died")
			}
			die = func(string) {}
			r.stopAgent()
			next := q.run("")
			q.wholly(next, "restarted")
			asker.end()
			q.becomes()
		})
	}
}

// A tenancy's instance is made once, however far the agent was when it died, and ends with it.
func TestCrashOnTheWayToATenancy(t *testing.T) {
	for _, step := range []string{
		"prepare-entered", "instance-reserved", "instance-begun", "mig-created", "instance-made", "instance-saved", "prepare-made",
		"release-begun", "release-undone", "instance-ends", "mig-destroyed", "instance-ended",
	} {
		t.Run(step, func(t *testing.T) {
			q := newQuarry(t)
			die := agenttest.CrashAt(step, 1)
			q.step = func(name string) { die(name) }
			q.mig.Step = q.step
			r := q.still()
			wanted := placed("a", "2g.20gb", 2)
			died := agenttest.Crashes(step, func() {
				if _, err := r.Prepare(t.Context(), wanted); err != nil {
					t.Error(err)
				}
				if err := r.Release(t.Context(), "a"); err != nil {
					t.Error(err)
				}
			})
			if !died {
				t.Fatal("nobody died")
			}
			die = func(string) {}
			if alone := q.still(); strings.HasPrefix(step, "prepare") || strings.HasPrefix(step, "instance") { // or nobody asks again
				if err := alone.Release(t.Context(), "a"); err != nil || len(alone.Tenancies()) != 0 || len(q.directories()) != 0 {
					t.Errorf("released: %v, %v, %v", err, alone.Tenancies(), q.directories())
				}
				q.has()
			}
			next := q.run("")
			if _, err := next.Prepare(t.Context(), wanted); err != nil {
				t.Fatal(err)
			}
			q.has("2g.20gb@2 share")
			q.wholly(next, "prepared again")
			if err := next.Release(t.Context(), "a"); err != nil {
				t.Fatal(err)
			}
			q.has()
		})
	}
}

// A layout that an agent died on is finished by the next one, which tells of it.
func TestCrashOnTheWayToALayout(t *testing.T) {
	for _, step := range []string{"layout-removed", "mig-destroyed", "mig-created", "layout-added"} {
		t.Run(step, func(t *testing.T) {
			q := newQuarry(t)
			die := func(string) {}
			q.step = func(name string) { die(name) }
			q.mig.Step = q.step
			r := q.run("")
			q.lays(r, map[string]int{"3g.40gb": 2})
			die = agenttest.CrashAt(step, 2)
			to := map[string]int{"1g.10gb": 2, "2g.20gb": 1}
			if !agenttest.Crashes(step, func() { q.lays(r, to) }) {
				t.Fatal("nobody died")
			}
			die = func(string) {}
			r.stopAgent()
			next := q.run("")
			if got := q.counts(); got["1g.10gb layout"] != 2 || got["2g.20gb layout"] != 1 || len(got) != 2 {
				t.Errorf("the GPU has %v", got)
			}
			if !q.tells(next, control.EventGPU, "GPU 0 got the layout that was being applied when the last agent ended: 2 x 1g.10gb, 1 x 2g.20gb") {
				t.Errorf("events %+v", q.list(next).Events)
			}
			next.stopAgent()
			if again := q.run(""); len(again.laying) != 0 || q.tells(again, control.EventGPU, "got the layout") {
				t.Errorf("a third agent: %+v, %+v", again.laying, q.list(again).Events)
			}
		})
	}
}

// A layout that cannot be finished is told with what the GPU has, and not tried for ever.
func TestLayoutThatCannotBeFinished(t *testing.T) {
	q := newQuarry(t)
	die := agenttest.CrashAt("layout-added", 1)
	q.step = func(name string) { die(name) }
	r := q.run("")
	if !agenttest.Crashes("layout-added", func() { q.lays(r, map[string]int{"1g.10gb": 2, "3g.40gb": 1}) }) {
		t.Fatal("nobody died")
	}
	die = func(string) {}
	r.stopAgent()
	has := q.mig.Lists(firstID)
	q.mig.SetFail(func(string) error { return errors.New("the driver failed") })
	next := q.run("")
	text := "(2 x 1g.10gb, 1 x 3g.40gb) is not finished: make "
	if !q.tells(next, control.EventFault, text) || !q.tells(next, control.EventFault, "the driver failed") || !q.tells(next, control.EventFault, "it has "+strings.Replace(strings.TrimSuffix(has[0], " layout"), "@", " at memory slice ", 1)) {
		t.Errorf("events %+v", q.list(next).Events)
	}
	if len(next.laying) != 0 {
		t.Errorf("it is kept: %+v", next.laying)
	}
}

// tells reports whether an agent has an event of a kind with a text.
func (q *quarry) tells(r *running, kind control.EventKind, text string) bool {
	q.t.Helper()
	return slices.ContainsFunc(q.list(r).Events, func(e control.Event) bool { return e.Kind == kind && strings.Contains(e.Text, text) })
}

// lays gives the first GPU a layout.
func (q *quarry) lays(r *running, want map[string]int) *control.Rearrangement {
	q.t.Helper()
	to, err := r.layout(q.t.Context(), &control.Peer{UID: os.Getuid()}, control.LayoutParams{GPU: "0", On: true, Instances: want})
	if err != nil {
		q.t.Fatal(err)
	}
	return to
}

// counts are how many instances the first GPU has of each profile and origin.
func (q *quarry) counts() map[string]int {
	d, _ := q.mig.Division(q.t.Context(), first)
	all := map[string]int{}
	for _, p := range d.Parts {
		all[p.Profile+" "+string(p.Origin)]++
	}
	return all
}
