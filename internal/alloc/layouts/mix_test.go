package layouts

import (
	"reflect"
	"testing"
)

// A mix that is made of what another one remembers goes on as that does.
func TestMixOfWhatWasSeen(t *testing.T) {
	m := modelOf(t, "a30", false)
	for _, n := range []int{0, 3, window, window + 50} {
		x := NewMix(m)
		for i := range n {
			x.Observe(Arrival{Profile: i * i % len(m.Profiles()), Held: int64(i % 7 * 500), Fitted: i%3 > 0})
		}
		again := MixOf(m, x.Seen())
		for i := range 10 {
			if len(again.Seen()) != min(n+i, window) || !reflect.DeepEqual(again.Seen(), x.Seen()) || !reflect.DeepEqual(again.Weights(), x.Weights()) || again.Load() != x.Load() {
				t.Fatalf("after %d and %d requests: %v and load %d, want %v and %d", n, i, again.Weights(), again.Load(), x.Weights(), x.Load())
			}
			x.Observe(Arrival{Profile: i % 3, Held: 1000})
			again.Observe(Arrival{Profile: i % 3, Held: 1000})
		}
	}
	if x := MixOf(m, []Arrival{{Profile: -1}, {Profile: 99}, {Profile: 1}}); len(x.Seen()) != 1 {
		t.Errorf("of requests for profiles that are not there it has seen %v", x.Seen())
	}
}

// As long as hardly anything is known an instance goes where it blocks the fewest placements.
func TestFirstInstancesBlockLittle(t *testing.T) {
	for _, name := range machines {
		m := modelOf(t, name, false)
		for profile := range m.Profiles() {
			x := NewMix(m)
			l := Layout(0)
			for range early - 1 {
				x.Observe(Arrival{Profile: profile, Fitted: true})
				got, ok := x.Policy().Choose(l, 0, profile)
				if !ok {
					break
				}
				blocks := map[int]int{}
				for i, place := range m.Placements() {
					to := l | 1<<i
					if place.Profile != profile || l&(1<<i) != 0 || !m.Valid(to) {
						continue
					}
					for j := range m.Placements() {
						if m.Valid(l|1<<j) && l&(1<<j) == 0 && (to&(1<<j) != 0 || !m.Valid(to|1<<j)) {
							blocks[place.Start]++
						}
					}
				}
				for start, n := range blocks {
					if n < blocks[got.Start] || n == blocks[got.Start] && start < got.Start {
						t.Errorf("%s: %s goes to %d in %b, which blocks %d placements, and %d at %d", name, m.Profiles()[profile].Name, got.Start, l, blocks[got.Start], n, start)
					}
				}
				l |= m.Placed(profile, got.Start)
			}
		}
	}
	m := modelOf(t, "h100-80gb", true)
	if got, _ := NewMix(m).Policy().Choose(0, 0, m.Profile("1g.10gb")); got.Start != 6 {
		t.Errorf("a first 1g begins at %d", got.Start)
	}
}
