package alloc

import (
	"errors"
	"strings"
	"testing"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
)

// A swap share of a cluster takes what it keeps of the GPU, and its limit of the memory that the host has for such shares.
func TestSwapMemory(t *testing.T) {
	inv, err := Host([]GPU{
		{UUID: "GPU-a", Index: 0, Capacity: 8 << 30, SwapMemory: 20 << 30, MostSwapMemory: 8 << 30},
		{UUID: "GPU-b", Index: 1, Capacity: 16 << 30},
	})
	if err != nil {
		t.Fatal(err)
	}
	swap := func(kept, limit uint64) Request {
		return Request{Count: 1, Memory: v1alpha1.Bytes(kept << 30), SwapMemory: limit << 30}
	}
	var held []Assignment
	for _, r := range []Request{swap(1, 8), swap(1, 8), swap(1, 4)} {
		a, err := Search(inv, r)
		if err != nil || len(a.Shares) != 1 || a.Shares[0].UUID != "GPU-a" || a.Shares[0].Limit != r.Memory.InBytes() || a.Shares[0].SwapMemory != r.SwapMemory {
			t.Fatalf("%+v gets %+v, %v", r, a.Shares, err)
		}
		if err := inv.Reserve(a); err != nil {
			t.Fatal(err)
		}
		held = append(held, a)
	}
	if g := inv.Node(0).GPUs[0]; g.Granted != 3<<30 || g.FreeSwapMemory() != 0 {
		t.Errorf("%d bytes are granted, %d of the host are left", g.Granted, g.FreeSwapMemory())
	}
	for text, r := range map[string]Request{
		"GPU 0 has 0 of the host's 20Gi for swap shares not granted and the share needs 2Gi": swap(1, 2),
		"a swap share of 9Gi is more than one of GPU 0 can have: ask for at most 8Gi":        {Count: 1, Memory: v1alpha1.Bytes(1 << 30), SwapMemory: 9 << 30, Among: "GPU-a"},
		"GPU 1 has no memory of the host for swap shares":                                    {Count: 1, Memory: v1alpha1.Bytes(1 << 30), SwapMemory: 2 << 30, Among: "GPU-b"},
	} {
		var refusal *Refusal
		if _, err := Search(inv, r); !errors.As(err, &refusal) || refusal.Error() != text {
			t.Errorf("got  %v\nwant %s", err, text)
		}
	}
	if err := inv.Reserve(held[0]); !errors.Is(err, ErrAssignment) || !strings.Contains(err.Error(), "too little memory of the host left for swap shares") {
		t.Errorf("reserved once more: %v", err)
	}
	inv.Release(held[2])
	if _, err := Search(inv, swap(1, 4)); err != nil {
		t.Errorf("after one has ended: %v", err)
	}
	for _, bad := range []Request{{Count: 1, Whole: true, SwapMemory: 1 << 30}, swap(4, 4), swap(5, 4)} {
		if err := bad.Validate(); !errors.Is(err, ErrRequest) {
			t.Errorf("%+v: %v", bad, err)
		}
	}
}
