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
