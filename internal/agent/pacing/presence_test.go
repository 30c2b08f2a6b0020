package pacing

import (
	"errors"
	"testing"
	"time"

	"github.com/divvy-gpu/divvy/internal/agentconfig"
	"github.com/divvy-gpu/divvy/internal/nvml"
)

var errBusy = errors.New("the driver has no time")

// hider is a court of one tenant that was seen to hide what it did.
func hider(t *testing.T) (*court, *division, *watcher) {
	t.Helper()
	c := &court{}
	d, p := c.judged(t, agentconfig.OutsideReport, "liar")
	d.hide(0.9, 2400, short("liar"))
	if s := d.loop.tenants["liar"].shares[0]; s.misuse.unseen == 0 {
		t.Fatal("it was not found")
	}
	return c, d, newWatcher(p)
}

// When a GPU did no more than was told, or what it did is not known, nobody hides anything any more.
func TestUnseenIsForgotten(t *testing.T) {
	nobody := func(int) map[int]string { return nil }
	for name, end := range map[string]func(*division, *watcher){
		"it is over": func(d *division, _ *watcher) { d.hide(0, 1200, nobody) },
		"the driver does not answer": func(_ *division, w *watcher) {
			w.whole(t.Context(), 0, firstID, &nvml.Activity{Err: errBusy})
		},
		"the driver cannot answer": func(_ *division, w *watcher) {
			w.whole(t.Context(), 0, firstID, &nvml.Activity{Err: nvml.ErrNotSupported})
		},
	} {
		t.Run(name, func(t *testing.T) {
			_, d, w := hider(t)
			w.whole(t.Context(), 0, firstID, &nvml.Activity{Samples: samplesOf(0.9)})
			if !w.suspecting() {
				t.Fatal("nobody is looked for")
			}
			w.presences[0].meet(d.now, map[int]string{1: "liar"}, 0)
			end(d, w)
			w.whole(t.Context(), 0, firstID, nil)
			g, s := d.loop.gpus[firstID], d.loop.tenants["liar"].shares[0]
			if g.whole.Stands() || s.misuse.unseen != 0 {
				t.Errorf("it still stands: %v, %.2f", g.whole.Stands(), s.misuse.unseen)
			}
			if name != "it is over" && (w.suspecting() || w.presences[0].begun != 0 || g.wholeTaken != 0) {
				t.Error("it is still looked for")
			}
			if w.noWhole[0] != (name == "the driver cannot answer") {
				t.Errorf("asked no more: %v", w.noWhole[0])
			}
		})
	}
}

// A GPU is told of once for as long as it is suspected, and nothing is taken twice.
func TestUnseenIsToldOnce(t *testing.T) {
	c, d, w := hider(t)
	if text := d.loop.blame(firstID, newPresence()); text != "" {
		t.Errorf("said again: %s", text)
	}
	for range 4 {
		d.pass(120, nil)
		w.whole(t.Context(), 0, firstID, &nvml.Activity{Samples: samplesOf(0.9)})
	}
	if len(c.told) != 1 {
		t.Errorf("told %+v", c.told)
	}
}

// Looks from before it was sure that work is missing prove nothing, nor do those before the driver did not list.
func TestLooksBeginAnew(t *testing.T) {
	c, d, w := hider(t)
	p := newPresence()
	p.meet(1, map[int]string{1: "liar"}, 1)
	d.loop.unknowWhole(firstID)
	if text := d.loop.blame(firstID, p); text != "" || p.looks != 0 || p.begun != d.now {
		t.Errorf("said %q, %+v", text, p)
	}
	w.presences[0], w.suspects[0] = p, true
	w.look()
	if p.looks != 1 {
		t.Errorf("%d looks", p.looks)
	}
	p.seen["liar"], p.brief["liar"] = true, 1
	c.unlisted = errBusy
	w.look()
	if p.looks != 0 || len(p.seen)+len(p.brief) != 0 {
		t.Errorf("known of who is not listed: %+v", p)
	}
}

// A figure that the driver has not told, or not lately, is held against nobody.
func TestFigureOfTheDriverThatIsMissing(t *testing.T) {
	const now = uint64(time.Minute)
	for _, c := range []struct {
		told uint64
		want float64
	}{{0, 1}, {now - uint64(lag), 0.25}, {now - uint64(3*lag), 1}} {
		if got := (&misuse{busy: 0.25, told: c.told}).seen(now); got != c.want {
			t.Errorf("told at %d: %.2f", c.told, got)
		}
	}
}
