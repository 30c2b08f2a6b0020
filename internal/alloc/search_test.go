package alloc

import (
	"errors"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
)

const gib = 1 << 30

func bytes(n uint64) v1alpha1.Memory { return v1alpha1.Bytes(n) }

func host(t *testing.T, gpus ...GPU) *Inventory {
	t.Helper()
	inventory, err := Host(gpus)
	if err != nil {
		t.Fatal(err)
	}
	return inventory
}

func three() []GPU {
	return []GPU{
		{UUID: "GPU-a", Index: 0, Capacity: 80 * gib, ContextBytes: gib / 2},
		{UUID: "GPU-b", Index: 1, Capacity: 80 * gib, Granted: 60 * gib, Cores: 90, ContextBytes: gib / 2},
		{UUID: "GPU-c", Index: 2, Capacity: 16 * gib, Granted: 17 * gib, ContextBytes: gib / 2},
	}
}

func TestSearch(t *testing.T) {
	for name, c := range map[string]struct {
		request Request
		want    string // UUIDs in order
		reason  Reason
		text    string // part of the refusal
	}{
		"fullest that fits":      {request: Request{Count: 1, Memory: bytes(20 * gib)}, want: "GPU-b"},
		"next when it is full":   {request: Request{Count: 1, Memory: bytes(21 * gib)}, want: "GPU-a"},
		"cores count":            {request: Request{Count: 1, Memory: bytes(gib), Cores: 11}, want: "GPU-a"},
		"two different":          {request: Request{Count: 2, Memory: bytes(gib)}, want: "GPU-b GPU-a"},
		"by index":               {request: Request{Count: 1, Among: "0", Memory: bytes(gib)}, want: "GPU-a"},
		"by UUID":                {request: Request{Count: 1, Among: "GPU-a", Memory: bytes(gib)}, want: "GPU-a"},
		"overcommit":             {request: Request{Count: 1, Among: "2", Memory: bytes(gib), Overcommit: true}, want: "GPU-c"},
		"percent of each":        {request: Request{Count: 1, Among: "0", Memory: v1alpha1.Percent(100)}, want: "GPU-a"},
		"unknown index":          {request: Request{Count: 1, Among: "7", Memory: bytes(gib)}, reason: ReasonUnknown, text: "GPUs 0 to 2"},
		"unknown UUID":           {request: Request{Count: 1, Among: "GPU-x", Memory: bytes(gib)}, reason: ReasonUnknown, text: "GPU-x"},
		"more than any":          {request: Request{Count: 1, Memory: bytes(81 * gib)}, reason: ReasonNever, text: "at most 80Gi"},
		"overcommit has an end":  {request: Request{Count: 1, Memory: bytes(81 * gib), Overcommit: true}, reason: ReasonNever, text: "at most 80Gi"},
		"below the context":      {request: Request{Count: 1, Memory: bytes(gib / 2)}, reason: ReasonNever, text: "the context of one process takes 512Mi"},
		"too many GPUs":          {request: Request{Count: 4, Memory: bytes(gib)}, reason: ReasonNever, text: "has 3"},
		"full":                   {request: Request{Count: 1, Among: "1", Memory: bytes(21 * gib)}, reason: ReasonFull, text: "has 20Gi of 80Gi not granted"},
		"granted beyond the GPU": {request: Request{Count: 1, Among: "2", Memory: bytes(gib)}, reason: ReasonFull, text: "has 0 of 16Gi not granted"},
		"no cores":               {request: Request{Count: 1, Among: "1", Memory: bytes(gib), Cores: 11}, reason: ReasonFull, text: "10 of 100 cores"},
		"some of several":        {request: Request{Count: 2, Memory: bytes(60 * gib)}, reason: ReasonFull, text: "the request needs 2 GPUs and 1 has room; GPU 1 has 20Gi of 80Gi not granted and the share needs 60Gi"},
		"never beats full":       {request: Request{Count: 3, Memory: bytes(60 * gib)}, reason: ReasonNever, text: "at most 16Gi"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := Search(host(t, three()...), c.request)
			if c.want != "" {
				var uuids []string
				for _, g := range got.Shares {
					uuids = append(uuids, g.UUID)
				}
				if err != nil || strings.Join(uuids, " ") != c.want {
					t.Fatalf("got %v, %v; want %s", uuids, err, c.want)
				}
				return
			}
			var refusal *Refusal
			if !errors.As(err, &refusal) {
				t.Fatalf("error %v is not a refusal", err)
			}
			if refusal.Reason != c.reason || !strings.Contains(refusal.Text, c.text) {
				t.Errorf("reason %d %q; want %d and %q", refusal.Reason, refusal.Text, c.reason, c.text)
			}
			if Waits(err) != (c.reason == ReasonFull) {
				t.Errorf("Waits = %v", Waits(err))
			}
		})
	}
}

func TestEmptyMachine(t *testing.T) {
	if _, err := Search(host(t), Request{Count: 1, Memory: bytes(gib)}); err == nil {
		t.Error("a machine without GPUs granted a share")
	}
}

// Without overcommit no sequence of requests makes the sum of limits exceed a
// GPU or guarantees more than all of its time, and no refusal of one share is
// given while some GPU has room.
func TestSumsHold(t *testing.T) {
	for seed := range uint64(200) {
		random := rand.New(rand.NewPCG(seed, 1))
		inventory := host(t, GPU{UUID: "GPU-a", Index: 0, Capacity: 80 * gib}, GPU{UUID: "GPU-b", Index: 1, Capacity: 24 * gib})
		gpus := inventory.nodes[0].GPUs
		for range 40 {
			limit, cores := 1+random.Uint64N(30*gib), random.IntN(60)
			request := Request{Count: 1 + random.IntN(2), Memory: bytes(limit), Cores: cores}
			assignment, err := Search(inventory, request)
			room := 0
			for _, g := range gpus {
				if limit <= g.FreeMemory() && cores <= g.FreeCores() {
					room++
				}
			}
			if (err == nil) != (room >= request.Count) {
				t.Fatalf("seed %d: %d of %d GPUs have room, but error is %v", seed, room, request.Count, err)
			}
			if err == nil {
				if err := inventory.Reserve(assignment); err != nil {
					t.Fatal(err)
				}
			}
			for _, g := range gpus {
				if g.Granted > g.Capacity || g.Cores > 100 {
					t.Fatalf("seed %d: %+v", seed, g)
				}
			}
		}
	}
}
