package residency_test

import (
	"testing"

	"github.com/divvy-gpu/divvy/internal/residency"
)

// busyShare works, or waits if it is not resident.
func busyShare(key string, state residency.State, bytes ...uint64) residency.Share {
	resident := state == residency.Resident
	there := make([]uint64, len(bytes))
	if resident {
		copy(there, bytes)
	}
	return residency.Share{Key: key, Weight: 1, Bytes: bytes, There: there, Waits: !resident, Works: resident, Done: true}
}

// An agent that was started again leaves everybody where they are, whoever gives the fewest bytes.
func TestResume(t *testing.T) {
	gpus := []residency.GPU{{Room: 16 * gib, Rate: 12 * gib}}
	for _, resident := range []string{"a", "b"} {
		var law residency.Law
		states := map[string]residency.State{"a": residency.Away, "b": residency.Away}
		states[resident] = residency.Resident
		var shares []residency.Share
		for i, key := range []string{"a", "b"} {
			law.Resume(second, key, residency.Order{State: states[key]})
			shares = append(shares, busyShare(key, states[key], uint64(10+i)*gib))
		}
		orders, _ := law.Decide(second, gpus, shares)
		for i, s := range shares {
			if orders[i].State != states[s.Key] {
				t.Errorf("%s was resident: %s is %d now, was %d", resident, s.Key, orders[i].State, states[s.Key])
			}
		}
	}
}

// pass lets two busy shares that do not fit together take turns for a while, and returns at how many looks each was resident.
func pass(law *residency.Law, from, to uint64, states []residency.State, keys []string, bytes [][]uint64) (looks [2]int) {
	gpus := []residency.GPU{{Room: 16 * gib, Rate: 12 * gib}, {Room: 16 * gib, Rate: 12 * gib}}
	for now := from; now < to; now += 10 * ms {
		var shares []residency.Share
		for i, key := range keys {
			shares = append(shares, busyShare(key, states[i], bytes[i]...))
		}
		orders, _ := law.Decide(now, gpus, shares)
		for i := range orders {
			if states[i] = orders[i].State; states[i] == residency.Resident {
				looks[i]++
			}
		}
	}
	return looks
}

// Shares that had no GPU in common until now divide the time from now on, whatever each had before.
func TestTake(t *testing.T) {
	var law, other residency.Law
	for _, one := range []struct {
		law   *residency.Law
		from  uint64
		keys  []string
		bytes []uint64
	}{{&law, second, []string{"a", "beside a"}, []uint64{10 * gib, 0}}, {&other, 1900 * second, []string{"b", "beside b"}, []uint64{0, 10 * gib}}} {
		states := []residency.State{residency.Away, residency.Away}
		for _, key := range one.keys {
			one.law.Resume(one.from, key, residency.Order{State: residency.Away})
		}
		pass(one.law, one.from, 2000*second, states, one.keys, [][]uint64{one.bytes, one.bytes})
	}
	law.Take(&other, []string{"b", "nobody"})
	states := []residency.State{residency.Away, residency.Away}
	looks := pass(&law, 2000*second, 2300*second, states, []string{"a", "b"}, [][]uint64{{10 * gib, 10 * gib}, {10 * gib, 10 * gib}})
	if looks[0] < looks[1]*2/3 || looks[1] < looks[0]*2/3 {
		t.Errorf("a was resident at %d looks and b at %d", looks[0], looks[1])
	}
}
