package residency_test

import (
	"testing"

	"github.com/divvy-gpu/divvy/internal/residency"
)

// While the work of one that leaves is waited for, nobody else leaves for the same bytes, however often the law is asked: neither
// where a share has grown nor where there is less room.
func TestOneLeavesForWhatIsShort(t *testing.T) {
	for name, c := range map[string]struct {
		grown uint64 // GiB of the first
		room  uint64 // GiB
	}{
		"a share grows":      {4, 12},
		"there is less room": {3, 11},
	} {
		t.Run(name, func(t *testing.T) {
			var law residency.Law
			gpus := []residency.GPU{{Room: 12 * gib, Rate: 12 * gib}}
			var shares []residency.Share
			for _, key := range []string{"a", "b", "c", "d"} {
				shares = append(shares, residency.Share{Key: key, Bytes: []uint64{3 * gib}, There: []uint64{3 * gib}, Works: true})
			}
			law.Decide(second, gpus, shares)
			gpus[0].Room, shares[0].Bytes[0] = c.room*gib, c.grown*gib
			for now := uint64(2 * second); now < 2*second+residency.Drain; now += second / 500 {
				orders, _ := law.Decide(now, gpus, shares)
				leaving := 0
				for _, order := range orders {
					if order.State != residency.Resident {
						leaving++
					}
				}
				if leaving != 1 {
					t.Fatalf("%d shares leave after %d ms: %+v", leaving, (now-2*second)/(second/1000), orders)
				}
			}
		})
	}
}

// Where a share takes more than there is room for, it leaves itself, however few bytes another one would have to move. One that has
// nothing to do leaves before it.
func TestWhoGrowsLeaves(t *testing.T) {
	for name, c := range map[string]struct {
		idle bool // the other one
		want string
	}{
		"the other one works": {false, "grower"},
		"the other one rests": {true, "other"},
	} {
		t.Run(name, func(t *testing.T) {
			var law residency.Law
			gpus := []residency.GPU{{Room: 12 * gib, Rate: 12 * gib}}
			shares := []residency.Share{
				{Key: "grower", Bytes: []uint64{8 * gib}, There: []uint64{8 * gib}, Works: true},
				{Key: "other", Bytes: []uint64{4 * gib}, There: []uint64{gib}, Works: !c.idle},
			}
			law.Decide(second, gpus, shares)
			shares[0].Bytes = []uint64{9 * gib}
			orders, _ := law.Decide(2*second, gpus, shares)
			for i, order := range orders {
				if leaves := order.State == residency.Leaving; leaves != (shares[i].Key == c.want) {
					t.Errorf("%s leaves: %v; want that %s does", shares[i].Key, leaves, c.want)
				}
			}
		})
	}
}
