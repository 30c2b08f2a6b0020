package pacing

import (
	"strings"
	"testing"
	"time"

	"github.com/divvy-gpu/divvy/internal/agentconfig"
	"github.com/divvy-gpu/divvy/internal/nvml"
)

func TestCulprit(t *testing.T) {
	const round = 100
	for name, c := range map[string]struct {
		there   map[int]member
		ended   map[string]int
		tenants []string
		want    string
	}{
		"the only share":                    {nil, nil, []string{"a"}, "a"},
		"the only share, and it moves":      {map[int]member{1: {"a", round}}, map[string]int{"a": round}, []string{"a"}, "a"},
		"somebody without a share is there": {map[int]member{1: {"", round}}, nil, []string{"a"}, ""},
		"somebody without a share was":      {nil, map[string]int{"": round - 1}, []string{"a"}, ""},
		"somebody was long ago":             {nil, map[string]int{"": round - endedKept - 1}, []string{"a"}, "a"},
		"a share of another GPU":            {map[int]member{1: {"b", round}}, nil, []string{"a"}, ""},
		"two that stay":                     {map[int]member{1: {"a", round}, 2: {"b", round}}, nil, []string{"a", "b"}, ""},
		"two of which one moves":            {map[int]member{1: {"a", round}}, map[string]int{"b": round - 2}, []string{"a", "b"}, "b"},
		"two that move":                     {nil, map[string]int{"a": round, "b": round - 2}, []string{"a", "b"}, ""},
		"a share that is gone moved":        {nil, map[string]int{"c": round}, []string{"a"}, ""},
	} {
		p := &presence{there: c.there, ended: c.ended}
		if got := p.culprit(c.tenants, round); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

func TestPresence(t *testing.T) {
	p := &presence{there: map[int]member{}, ended: map[string]int{}}
	p.meet(map[int]string{1: "a", 2: "b"}, 1)
	p.meet(map[int]string{1: "a", 2: "b"}, 2)
	if len(p.ended) != 0 || len(p.there) != 2 {
		t.Errorf("%+v", p)
	}
	p.meet(map[int]string{1: "b"}, 3) // the number is another process's now
	if p.ended["a"] != 3 || p.ended["b"] != 3 || len(p.there) != 1 || p.there[1].tenant != "b" {
		t.Errorf("%+v", p)
	}
}

// hide has the GPU do what nobody tells of, for so many rounds of 5 ms, and asks who did it.
func (d *division) hide(busy float64, rounds int, p *presence) (said string) {
	for round := range rounds {
		d.pass(1, nil)
		if round%120 != 119 {
			continue
		}
		var samples []nvml.Sample
		wall := time.Now()
		for _, age := range []time.Duration{800, 600, 400} {
			samples = append(samples, nvml.Sample{At: wall.Add(-age * time.Millisecond), Busy: busy})
		}
		if d.loop.observeWhole(firstID, d.now, samples, wall) {
			if text := d.loop.blame(firstID, p, round); text != "" {
				said = text
			}
		}
	}
	return said
}

// Whose processes hide work pays for it, and a misuse is told once; where several can have
// done it, that is said, and nobody pays.
func TestWhoHidesWorkPays(t *testing.T) {
	c := &court{}
	d, p := c.judged(t, agentconfig.OutsideKill, "liar")
	if said := d.hide(0.9, 1200, &presence{ended: map[string]int{}}); said != "" {
		t.Errorf("said %q", said)
	}
	liar := d.all[0]
	if owed := -d.budget(liar, 0).Correction; owed < int64(3*time.Second) || owed > int64(6*time.Second) {
		t.Errorf("it owes %v", time.Duration(owed))
	}
	p.answerMisuse(t.Context())
	p.answerMisuse(t.Context())
	if len(c.told) != 1 || !strings.Contains(c.told[0].Text, "end within moments") || len(c.answered) != 2 {
		t.Errorf("told %+v, answered %q", c.told, c.answered)
	}
	if text := p.Times("liar")[0].Fault; !strings.Contains(text, "killed") {
		t.Errorf("shown as %q", text)
	}
	// Figures that are missing accuse nobody.
	d.loop.unknowWhole(firstID)
	before := d.budget(liar, 0).Correction
	d.pass(10, nil)
	d.loop.blame(firstID, &presence{}, 1)
	if m := d.loop.tenants["liar"].shares[0].misuse; m.unseen != 0 || d.budget(liar, 0).Correction != before {
		t.Errorf("known is %+v", m)
	}

	c = &court{}
	d, p = c.judged(t, agentconfig.OutsideKill, "one", "other")
	said := d.hide(0.9, 1200, &presence{ended: map[string]int{}})
	if !strings.Contains(said, "one of the 2 shares") {
		t.Errorf("said %q", said)
	}
	p.answerMisuse(t.Context())
	for _, m := range d.all {
		if owed := d.budget(m, 0).Correction; owed != 0 || len(c.told) != 0 || len(c.answered) != 0 {
			t.Errorf("%s owes %d; told %+v, answered %q", m.ID, owed, c.told, c.answered)
		}
	}
}

// Nothing is concluded while a share on the GPU has no limit: what it does is not counted.
func TestUncountedWorkHidesNothing(t *testing.T) {
	d := newDivision(t)
	d.add("free", shareOf("weighted", 0, 1, "online"))
	d.pass(1, nil)
	if said := d.hide(0.9, 1200, &presence{}); said != "" || d.budget(d.all[0], 0).Correction != 0 {
		t.Errorf("said %q", said)
	}
}
