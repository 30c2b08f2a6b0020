package relay

import (
	"testing"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/alloc"
	"github.com/divvy-gpu/divvy/internal/remote/wire"
)

const gib = 1 << 30

// candidate is a host with one GPU of 80 GiB, of which so many are held, where the client may have so many more.
func candidate(held, left uint64) Candidate {
	return Candidate{Inventory: &wire.Inventory{
		GPUs: []alloc.GPU{{UUID: "GPU-1", Capacity: 80 * gib, Granted: held * gib}}, Left: wire.Left{Memory: new(left * gib)},
	}}
}

// Where a client's own shares are in the way it may wait as for a full GPU, on the host that lacks least.
func TestChooseWithinBounds(t *testing.T) {
	r := v1alpha1.ShareRequest{Memory: v1alpha1.Bytes(40 * gib)}
	for name, test := range map[string]struct {
		hosts    []Candidate
		at, wait int
	}{
		"within its bounds":                   {[]Candidate{candidate(0, 40)}, 0, -1},
		"beyond them":                         {[]Candidate{candidate(0, 39)}, -1, 0},
		"another host has room":               {[]Candidate{candidate(0, 39), candidate(0, 80)}, 1, -1},
		"of two bounds one lacks less":        {[]Candidate{candidate(0, 10), candidate(0, 30)}, -1, 1},
		"a full GPU lacks less than a bound":  {[]Candidate{candidate(0, 10), candidate(50, 80)}, -1, 1},
		"a bound lacks less than a full GPU":  {[]Candidate{candidate(0, 30), candidate(70, 80)}, -1, 0},
		"no bound and no GPU is large enough": {[]Candidate{{Inventory: &wire.Inventory{}}}, -1, -1},
	} {
		for i := range test.hosts {
			test.hosts[i].Host.Name = string(rune('a' + i))
		}
		c := Choose(test.hosts, nil, r)
		if c.At != test.at || test.at < 0 && (c.Wait != test.wait || c.Later != (test.wait >= 0)) {
			t.Errorf("%s: %+v", name, c)
		}
		if test.at < 0 && len(c.Words) != len(test.hosts) {
			t.Errorf("%s: not every host has words: %v", name, c.Words)
		}
	}
}
