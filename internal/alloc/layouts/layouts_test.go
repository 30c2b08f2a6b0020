package layouts

import (
	"errors"
	"math/bits"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
)

// machines are recorded models of GPUs.
var machines = []string{"a100-80gb", "a30", "h100-80gb", "h200", "b200"}

// profilesOf reads the profiles of a recorded model; without those with media extensions where plain.
func profilesOf(t testing.TB, name string, plain bool) []Profile {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("../../../testdata/mig", name+".txt"))
	if err != nil {
		t.Fatal(err)
	}
	profiles, err := Parse(string(text))
	if err != nil {
		t.Fatal(err)
	}
	if plain {
		profiles = slices.DeleteFunc(profiles, func(p Profile) bool { return strings.Contains(p.Name, "+") })
	}
	return profiles
}

func modelOf(t testing.TB, name string, plain bool) *Model {
	t.Helper()
	m, err := NewModel(profilesOf(t, name, plain))
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func TestLayouts(t *testing.T) {
	for _, name := range machines {
		want := 723
		if name == "a30" {
			want = 26 // of the intervals of four slices: 1, 2 at 0 and 2, 4
		}
		if got := len(modelOf(t, name, true).Layouts()); got != want {
			t.Errorf("%s has %d layouts, want %d", name, got, want)
		}
		m := modelOf(t, name, false)
		for _, l := range m.Layouts() {
			check(t, m, l, 0)
		}
	}
}

// check fails the test unless a layout has only placements of the driver, none over another or over what is blocked,
// and no more engines than the GPU has. It looks at the profiles alone.
func check(t *testing.T, m *Model, l Layout, blocked uint32) {
	t.Helper()
	var owner [MaxSlices]bool
	for i := range owner {
		owner[i] = blocked&(1<<i) != 0
	}
	var taken [counters]int
	for rest := l; rest != 0; rest &= rest - 1 {
		place := m.Placements()[bits.TrailingZeros64(uint64(rest))]
		p := m.Profiles()[place.Profile]
		if !slices.Contains(p.Starts, place.Start) {
			t.Fatalf("%s begins at %d", p.Name, place.Start)
		}
		for at := place.Start; at < place.Start+p.Size; at++ {
			if owner[at] {
				t.Fatalf("two have memory slice %d: layout %b, blocked %b", at, l, blocked)
			}
			owner[at] = true
		}
		for c, n := range p.Takes {
			taken[c] += int(n)
		}
	}
	for c, n := range taken {
		most := 0
		for _, p := range m.Profiles() {
			most = max(most, int(p.Takes[c]))
		}
		if n > most {
			t.Fatalf("%d of counter %d are taken, and the GPU has %d", n, c, most)
		}
	}
}

// Whatever is asked for and ends, in whatever order, beside whatever others made: what is placed never lies over
// anything, is a placement of the driver's, and the same history gives the same places.
func TestPlacesNeverOverlap(t *testing.T) {
	for _, name := range []string{"a100-80gb", "a30"} {
		m := modelOf(t, name, false)
		for seed := range uint64(2) {
			var histories [2][]Choice
			for i := range histories {
				histories[i] = history(t, m, seed)
			}
			if !reflect.DeepEqual(histories[0], histories[1]) {
				t.Errorf("%s, seed %d: the same requests went to different places", name, seed)
			}
		}
	}
}

// history places 150 random requests, between ends of instances, on a GPU of which something else takes slices.
func history(t *testing.T, m *Model, seed uint64) (choices []Choice) {
	t.Helper()
	random := rand.New(rand.NewPCG(seed, 5))
	x, l, blocked := NewMix(m), Layout(0), uint32(0)
	if seed%2 == 1 { // something adopted: an instance of ours, and one that the model does not know
		l, blocked = m.Placed(0, 2), 1<<random.IntN(2)
	}
	for range 150 {
		profile := random.IntN(len(m.Profiles()))
		fits := m.Fits(l, blocked, profile)
		x.Observe(Arrival{Profile: profile, Held: int64(l.Len()) * 1000, Fitted: fits})
		c, ok := x.Policy().Choose(l, blocked, profile)
		if ok != fits || ok && c.Profile != profile {
			t.Fatalf("fits: %v, and was placed: %v (%+v)", fits, ok, c)
		}
		if ok {
			choices = append(choices, c)
			l |= m.Placed(profile, c.Start)
			check(t, m, l, blocked)
		}
		for rest := l; rest != 0; rest &= rest - 1 {
			if random.IntN(6) == 0 {
				l &^= rest & -rest
			}
		}
	}
	return choices
}

// The best place depends on the mix: where 4g is asked for, which begins at 0 only, 1g stays in the upper half; where 3g
// is, 1g's lie together in the lower half, which has one place more for them.
func TestPolicyFollowsTheMix(t *testing.T) {
	m := modelOf(t, "a100-80gb", false)
	small, three, four := m.Profile("1g.10gb"), m.Profile("3g.40gb"), m.Profile("4g.40gb")
	x := NewMix(m)
	for i := range window {
		x.Observe(Arrival{Profile: []int{small, four}[i%2], Held: 2000, Fitted: true})
	}
	if c, ok := x.Policy().Choose(0, 0, small); !ok || c.Start < 4 {
		t.Errorf("beside 4g, 1g begins at %d", c.Start)
	}
	for i := range window {
		x.Observe(Arrival{Profile: []int{small, small, small, three}[i%4], Held: 2000, Fitted: true})
	}
	at := Layout(0)
	for range 2 {
		c, ok := x.Policy().Choose(at, 0, small)
		if !ok {
			t.Fatal("no place for 1g")
		}
		at |= m.Placed(small, c.Start)
	}
	if m.Slices(at)&0xf0 != 0 {
		t.Errorf("beside 3g, two 1g lie at %08b", m.Slices(at))
	}
	fresh := NewMix(m)
	for i := range window {
		fresh.Observe(Arrival{Profile: []int{small, small, small, three}[i%4], Held: 2000, Fitted: true})
	}
	if !slices.Equal(fresh.Weights(), x.Weights()) || fresh.Load() != x.Load() {
		t.Errorf("what was asked for before is not forgotten: %v, want %v", x.Weights(), fresh.Weights())
	}
}

// The load follows from what arrivals find, without a clock.
func TestLoad(t *testing.T) {
	m := modelOf(t, "a30", false)
	x := NewMix(m)
	if x.Load() != expected {
		t.Errorf("before any request it is %d", x.Load())
	}
	for i := range window { // three held, half of what comes fits: load 6
		x.Observe(Arrival{Profile: 0, Held: 3000, Fitted: i%2 == 0})
	}
	if got := x.Load(); got < 8*5 || got > 8*6 {
		t.Errorf("the load is %d eighths, want about 48", got)
	}
}

// Whoever takes the first placement of a profile that is free takes the one that the policy chooses.
func TestOrderIsTheChoice(t *testing.T) {
	m := modelOf(t, "a100-80gb", false)
	p := m.Solve([]int64{5, 0, 1, 3, 2, 1, 1}, expected, nil)
	for _, l := range m.Layouts() {
		order := p.Order(l)
		if len(order) != len(m.Placements()) {
			t.Fatalf("%d of %d placements are in order", len(order), len(m.Placements()))
		}
		for profile := range m.Profiles() {
			want, ok := p.Choose(l, 0, profile)
			first := slices.IndexFunc(order, func(c Choice) bool {
				return c.Profile == profile && m.Valid(l|m.Placed(profile, c.Start)) && l&m.Placed(profile, c.Start) == 0
			})
			if ok != (first >= 0) || ok && order[first].Cost != want.Cost {
				t.Fatalf("layout %b: first is %d, chosen %+v", l, first, want)
			}
		}
	}
	order := p.Order(0, m.Placed(m.Profile("7g.80gb"), 0), 0)
	if len(order) != 3*len(m.Placements()) || order[0].GPU == 1 {
		t.Errorf("of three GPUs the full one comes first: %+v", order[0])
	}
}

// A batch fits where one of the layouts has it, however the instances have to be arranged.
func TestBatch(t *testing.T) {
	m := modelOf(t, "a100-80gb", false)
	count := make([]int, len(m.Profiles()))
	count[m.Profile("1g.20gb")], count[m.Profile("2g.20gb")] = 1, 3
	l, ok := m.Batch(0, count)
	if !ok || !slices.Equal(m.Count(l), count) {
		t.Errorf("three 2g and a double 1g: %b, %v", l, ok)
	}
	check(t, m, l, 0)
	four := make([]int, len(m.Profiles()))
	four[m.Profile("4g.40gb")] = 1
	for start, want := range map[int]bool{0: false, 6: true} {
		from := m.Placed(m.Profile("1g.10gb"), start)
		l, ok := m.Batch(from, four)
		if ok != want || ok && l&from != from {
			t.Errorf("a 4g beside a 1g at %d: %b, %v", start, l, ok)
		}
	}
}

func TestBadProfiles(t *testing.T) {
	for text, want := range map[string]string{
		"1g":                        "give a name",
		"1g 0-6":                    "has no size",
		"1g 0-6:0":                  "whole number from 1 to 32",
		"1g 6-0:1":                  "from 6 to 31",
		"1g 0,0:1":                  "stands twice",
		"1g 0:1 engines=1":          "write each of compute",
		"1g 0:1 ofa=1 ofa=1":        "write each of compute",
		"1g 0:1 ofa=300":            "from 0 to 255",
		"1g 0:1; 1g 1:1":            "two profiles are named",
		"1g 31:2":                   "outside memory slices",
		"":                          "0 placements",
		"a 0-31:1; b 0-31:1; c 0:1": "65 placements",
		"a 0-31:1":                  "more than 16384 layouts",
		strings.Repeat("#", 17<<10): "give at most",
	} {
		profiles, err := Parse(text)
		if err == nil {
			_, err = NewModel(profiles)
		}
		if !errors.Is(err, ErrModel) || !strings.Contains(err.Error(), want) {
			t.Errorf("%.40q: %v, want %q", text, err, want)
		}
	}
}

// Any text gives profiles that are what it says, or an error; and any profiles a model whose layouts are right, or an
// error.
func FuzzParse(f *testing.F) {
	f.Add("1g.10gb+me 0-6:1 compute=1 ofa=1; 7g.80gb 0:8 compute=7 ofa=1\n# text\n3g 0,4:4")
	f.Add("a 0-31:1")
	f.Fuzz(func(t *testing.T, text string) {
		profiles, err := Parse(text)
		if err != nil {
			if !errors.Is(err, ErrModel) {
				t.Fatal(err)
			}
			return
		}
		m, err := NewModel(profiles)
		if err != nil {
			if !errors.Is(err, ErrModel) {
				t.Fatal(err)
			}
			return
		}
		if !m.Valid(0) || len(m.Placements()) == 0 {
			t.Fatal("a model without the empty layout")
		}
	})
}

// A mix's policy depends on what was observed, and not on how often it was asked for in between.
func TestAskingForThePolicyChangesNothing(t *testing.T) {
	m := modelOf(t, "a100-80gb", true)
	often, once := NewMix(m), NewMix(m)
	for i := range 20 {
		a := Arrival{Profile: i % 3, Held: int64(1000 * (i % 4)), Fitted: i%5 > 0}
		often.Observe(a)
		often.Policy()
		once.Observe(a)
	}
	if !slices.Equal(often.Policy().worth, once.Policy().worth) {
		t.Error("asking for the policy after each request makes another policy")
	}
}
