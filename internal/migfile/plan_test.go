package migfile

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/divvy-gpu/divvy/internal/alloc/layouts"
)

func h100(t *testing.T) *layouts.Model {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "..", "testdata", "mig", "h100-80gb.txt"))
	if err != nil {
		t.Fatal(err)
	}
	profiles, err := layouts.Parse(string(text))
	if err != nil {
		t.Fatal(err)
	}
	m, err := layouts.NewModel(profiles)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// instances reads such as "1g.10gb@3", "3g.40gb@4!" for one that has to stay, and "1g.10gb@3?" for one that no program can
// use.
func instances(text string) (all []Instance) {
	for one := range strings.FieldsSeq(text) {
		i := Instance{UUID: "MIG-" + strings.TrimSuffix(one, "!")}
		if strings.HasSuffix(one, "!") {
			i.Fixed = "in use by pid 7"
		}
		if i.Half = strings.HasSuffix(one, "?"); i.Half {
			i.Fixed = "another tool's"
		}
		name, start, _ := strings.Cut(strings.TrimRight(one, "!?"), "@")
		i.Profile = name
		fmt.Sscan(start, &i.Start)
		all = append(all, i)
	}
	return all
}

func (p Plan) text(m *layouts.Model) string {
	var all []string
	for _, i := range p.Remove {
		all = append(all, fmt.Sprintf("-%s@%d", i.Profile, i.Start))
	}
	for _, a := range p.Add {
		all = append(all, fmt.Sprintf("+%s@%d", m.Profiles()[a.Profile].Name, a.Start))
	}
	return strings.Join(all, " ")
}

func TestPlanFor(t *testing.T) {
	m := h100(t)
	for name, c := range map[string]struct {
		have string
		want map[string]int
		plan string
	}{
		"nothing":                   {"", nil, ""},
		"as it is":                  {"1g.10gb@3 3g.40gb@4!", map[string]int{"1g.10gb": 1, "3g.40gb": 1}, ""},
		"cleared":                   {"1g.10gb@3 2g.20gb@4", nil, "-1g.10gb@3 -2g.20gb@4"},
		"around what stays":         {"1g.10gb@5!", map[string]int{"1g.10gb": 1, "3g.40gb": 1}, "+3g.40gb@0"},
		"the rest moves if it must": {"1g.10gb@0 1g.10gb@5!", map[string]int{"1g.10gb": 2, "3g.40gb": 1}, "-1g.10gb@0 +1g.10gb@4 +3g.40gb@0"},
		"one that no program can use counts as none": {"1g.10gb@5?", map[string]int{"1g.10gb": 1}, "+1g.10gb@0"},
		"it stays beside others":                     {"1g.10gb@5? 1g.10gb@6", map[string]int{"1g.10gb": 1}, ""},
		"no more changes than needs":                 {"1g.10gb@0 1g.10gb@1 1g.10gb@6", map[string]int{"1g.10gb": 2}, "-1g.10gb@6"},
	} {
		plan, err := PlanFor(m, instances(c.have), c.want)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if c.plan == "" != plan.Empty() {
			t.Errorf("%s: empty is %v", name, plan.Empty())
		}
		if got := plan.text(m); got != c.plan {
			t.Errorf("%s: %q, want %q", name, got, c.plan)
		}
	}
}

func TestLayoutsThatCannotBe(t *testing.T) {
	m := h100(t)
	for name, c := range map[string]struct {
		have string
		want map[string]int
		says string
	}{
		"unknown profile":       {"", map[string]int{"1g.5gb": 1}, "no profile 1g.5gb: it has 1g.10gb"},
		"too many":              {"", map[string]int{"3g.40gb": 3}, "do not fit together"},
		"beside one that stays": {"1g.10gb@1! 1g.10gb@5!", map[string]int{"1g.10gb": 2, "3g.40gb": 1}, "only if instances move that have to stay: MIG-1g.10gb@1 (1g.10gb at memory slice 1, in use by pid 7)"},
		"fewer than stay":       {"1g.10gb@1!", map[string]int{"3g.40gb": 1}, "1 of 1g.10gb that have to stay, and the layout has 0"},
		"an unknown instance":   {"1g.10gb@9", nil, "none that the driver offers"},
	} {
		plan, err := PlanFor(m, instances(c.have), c.want)
		if !errors.Is(err, ErrLayout) || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v, %v; want an error with %q", name, plan, err, c.says)
		}
	}
}

// An instance without a UUID is named by its place.
func TestHalfAnInstanceStays(t *testing.T) {
	half := []Instance{{Profile: "1g.10gb", Start: 1, Fixed: "another tool's"}}
	_, err := PlanFor(h100(t), half, nil)
	if err == nil || !strings.HasSuffix(err.Error(), ": 1g.10gb at memory slice 1 (another tool's)") {
		t.Error(err)
	}
}

// Every layout is reached from every other one if nothing has to stay, and by the fewest changes.
func TestEveryLayoutIsReached(t *testing.T) {
	m := h100(t)
	all := m.Layouts()
	for at := 0; at < len(all); at += 37 {
		for to := 0; to < len(all); to += 41 {
			have, want := held(m, all[at]), map[string]int{}
			for profile, n := range m.Count(all[to]) {
				want[m.Profiles()[profile].Name] = n
			}
			plan, err := PlanFor(m, have, want)
			if err != nil {
				t.Fatal(err)
			}
			after := all[at]
			for _, i := range plan.Remove {
				after &^= m.Placed(m.Profile(i.Profile), i.Start)
			}
			for _, a := range plan.Add {
				after |= m.Placed(a.Profile, a.Start)
			}
			if !m.Valid(after) || !reflect.DeepEqual(m.Count(after), m.Count(all[to])) {
				t.Fatalf("from %v to %v: %s leads to %b", have, want, plan.text(m), after)
			}
		}
	}
}

func held(m *layouts.Model, l layouts.Layout) (all []Instance) {
	for _, p := range m.Placements() {
		if l&m.Placed(p.Profile, p.Start) != 0 {
			all = append(all, Instance{UUID: "MIG-x", Profile: m.Profiles()[p.Profile].Name, Start: p.Start})
		}
	}
	return all
}
