package alloc

import (
	"errors"
	"testing"
)

// A refusal on one host has one sentence for each cause, and no advice.
func TestRefusalOnAHost(t *testing.T) {
	const capacity = 24 * gib
	gpus := func(n int, change func(i int, g *GPU)) []GPU {
		all := make([]GPU, 0, n)
		for i := range n {
			g := GPU{UUID: string(rune('a' + i)), Index: i, Capacity: capacity, ContextBytes: gib / 2}
			change(i, &g)
			all = append(all, g)
		}
		return all
	}
	full := func(_ int, g *GPU) { g.Granted, g.Cores, g.Tenants = capacity, 100, 1 }
	for name, c := range map[string]struct {
		gpus    []GPU
		request Request
		want    string
		misses  int
	}{
		"one":       {gpus(1, full), Request{Memory: bytes(gib)}, "GPU 0 has 0 of 24Gi not granted and the share needs 1Gi", 1},
		"all alike": {gpus(8, full), Request{Memory: bytes(gib)}, "each of GPUs 0 to 7 has 0 of 24Gi not granted and the share needs 1Gi", 8},
		"in the unit of lists": {
			gpus(1, func(_ int, g *GPU) { g.Granted = capacity - 3*gib - 400<<20 }), Request{Memory: bytes(4*gib + 100<<20)},
			"GPU 0 has 3.4Gi of 24Gi not granted and the share needs 4.1Gi", 1,
		},
		"exact where that says nothing": {
			gpus(1, func(_ int, g *GPU) { g.Granted = capacity - 3*gib + 1<<20 }), Request{Memory: bytes(3 * gib)},
			"GPU 0 has 3071Mi of 24Gi not granted and the share needs 3Gi", 1,
		},
		"some more free than others": {
			gpus(4, func(i int, g *GPU) { g.Granted = capacity - uint64(i)*gib }), Request{Memory: bytes(4 * gib)},
			"GPUs 0 to 3 have at most 3Gi of 24Gi not granted (GPU 3) and the share needs 4Gi", 4,
		},
		"several causes": {
			gpus(5, func(i int, g *GPU) {
				switch i {
				case 2:
					g.Fault = "it fell off the bus"
				case 3:
					g.Cores = 90
				default:
					g.Granted = capacity
				}
			}),
			Request{Memory: bytes(gib), Cores: 20},
			"each of GPUs 0, 1 and 4 has 0 of 24Gi not granted and the share needs 1Gi; GPU 2 takes no new shares: it fell off the bus; " +
				"GPU 3 has 10 of 100 cores left to guarantee and the share needs 20", 5,
		},
		"faults of two kinds": {
			gpus(3, func(i int, g *GPU) { g.Fault = []string{"XID 79", "XID 79", "it is silent"}[i] }), Request{Memory: bytes(gib)},
			"GPUs 0 and 1 take no new shares: XID 79; GPU 2 takes no new shares: it is silent", 3,
		},
		"whole ones": {gpus(2, full), Request{Whole: true, Count: 2}, "the request needs 2 GPUs and 0 have room; GPUs 0 and 1 have tenants and the request needs a whole GPU", 2},
		"shared in another way": {
			gpus(3, func(i int, g *GPU) { g.Form, g.Granted = []string{"x", "x", "y"}[i], uint64(i)*gib }), Request{Memory: bytes(gib), Form: "z"},
			"GPUs 0 and 1 have shares of backend x, and a GPU has shares of one backend at a time; " +
				"GPU 2 has shares of backend y, and a GPU has shares of one backend at a time", 3,
		},
		"another user's": {
			gpus(3, func(i int, g *GPU) { g.Form, g.User = "mps", []string{"ada", "ada", "bob"}[i] }), Request{Memory: bytes(gib), Form: "mps", User: "eve"},
			"GPUs 0 and 1 have shares of user ada, and a GPU of backend mps serves one user at a time; " +
				"GPU 2 has shares of user bob, and a GPU of backend mps serves one user at a time", 3,
		},
		"too many programs": {
			gpus(2, func(_ int, g *GPU) { g.Form, g.User, g.Clients, g.MostClients = "mps", "eve", 48, 48 }), Request{Memory: bytes(gib), Form: "mps", User: "eve"},
			"GPUs 0 and 1 have the 48 programs that the driver lets share a GPU by mps", 2,
		},
		"cores":     {gpus(2, full), Request{Memory: bytes(gib), Cores: 30, Overcommit: true}, "each of GPUs 0 and 1 has 0 of 100 cores left to guarantee and the share needs 30", 2},
		"too small": {gpus(2, full), Request{Memory: bytes(25 * gib)}, "memory 25Gi is more than GPU 0 has for tenants: ask for at most 24Gi", 1},
		"of several sizes": {
			gpus(4, func(i int, g *GPU) { g.Capacity = []uint64{24, 80, 24, 80}[i] * gib; g.Granted = g.Capacity - gib }),
			Request{Memory: bytes(4 * gib)},
			"each of GPUs 0 and 2 has 1Gi of 24Gi not granted and the share needs 4Gi; each of GPUs 1 and 3 has 1Gi of 80Gi not granted and the share needs 4Gi", 4,
		},
		"too small, of several sizes": {
			gpus(3, func(i int, g *GPU) { g.Capacity = []uint64{24, 80, 40}[i] * gib }), Request{Memory: bytes(81 * gib)},
			"memory 81Gi is more than GPU 1 has for tenants: ask for at most 80Gi", 1,
		},
		"too small together": {
			gpus(4, func(i int, g *GPU) { g.Capacity = []uint64{24, 80, 40, 80}[i] * gib }), Request{Memory: bytes(81 * gib), Count: 3},
			"memory 81Gi is more than GPU 2 has for tenants: ask for at most 40Gi", 1,
		},
		"too small but one": {
			gpus(3, func(i int, g *GPU) { g.Capacity = []uint64{24, 80, 40}[i] * gib }), Request{Memory: bytes(50 * gib), Count: 2},
			"memory 50Gi is more than GPU 2 has for tenants: ask for at most 40Gi", 1,
		},
		"named": {gpus(3, full), Request{Memory: bytes(gib), Among: "b"}, "GPU 1 has 0 of 24Gi not granted and the share needs 1Gi", 1},
	} {
		if c.request.Count == 0 {
			c.request.Count = 1
		}
		inventory, err := Host(c.gpus)
		if err != nil {
			t.Fatal(err)
		}
		_, err = Search(inventory, c.request)
		var refusal *Refusal
		if !errors.As(err, &refusal) || refusal.Error() != c.want || len(refusal.Misses) != c.misses {
			t.Errorf("%s: got\n%v\nwant\n%s", name, err, c.want)
		}
	}
}
