package alloc

import (
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
)

// granted is a share as the oracle keeps it: in amounts alone.
type granted struct {
	gpu               int
	kept, turn, limit uint64
	assignment        Assignment
}

// held is what shares need of a GPU: all of ordinary ones, what swap shares keep, and room for the largest turn.
func held(all []granted, gpu int) (needed, room uint64) {
	for _, g := range all {
		if g.gpu == gpu {
			needed += g.kept
			room = max(room, g.turn)
		}
	}
	return needed + room, room
}

// couldHave reports by trying whether one more share fits on a GPU, and with how large a turn.
func couldHave(all []granted, gpu int, capacity uint64, r Request) (turn uint64, fits bool) {
	limit := r.Memory.Of(capacity)
	if !r.Swap {
		sum, _ := held(append(slices.Clone(all), granted{gpu: gpu, kept: limit}), gpu)
		return 0, sum <= capacity
	}
	kept := (&v1alpha1.ShareConfig{Swap: true, Kept: r.Kept}).KeptOf(limit)
	if kept >= limit {
		return 0, false
	}
	turn, least := limit-kept, limit-kept
	if r.Overcommit {
		least = min(kept, least)
	}
	for ; ; turn -= min(turn, gib/4) { // all amounts of the test are whole quarters
		if turn < least {
			return 0, false
		}
		if sum, _ := held(append(slices.Clone(all), granted{gpu: gpu, kept: kept, turn: turn}), gpu); sum <= capacity {
			return turn, true
		}
	}
}

// Whatever is granted and ends: ordinary shares, what swap shares keep and the largest turn fit into each GPU, a request is
// refused only where the oracle finds no room, and what ends leaves nothing behind.
func TestSwapSharesFit(t *testing.T) {
	for seed := range uint64(300) {
		random := rand.New(rand.NewPCG(seed, 21))
		inventory := host(t, GPU{UUID: "GPU-a", Capacity: 16 * gib}, GPU{UUID: "GPU-b", Index: 1, Capacity: 24 * gib}, GPU{UUID: "GPU-c", Index: 2, Capacity: 24 * gib})
		gpus := inventory.nodes[0].GPUs
		var all []granted
		for range 80 {
			if len(all) > 0 && random.IntN(3) == 0 {
				i := random.IntN(len(all))
				if !inventory.Release(all[i].assignment) {
					t.Fatal("what was reserved is not held")
				}
				all = slices.Delete(all, i, i+1)
				checkHeld(t, gpus, all)
				continue
			}
			r := Request{Count: 1, Memory: bytes((1 + random.Uint64N(80)) * gib / 4), Swap: random.IntN(3) > 0}
			if r.Swap {
				r.Kept = bytes((1 + random.Uint64N(8)) * gib / 4)
				r.Overcommit = random.IntN(3) == 0
			}
			a, err := Search(inventory, r)
			fitting := 0
			for i := range gpus {
				if _, ok := couldHave(all, i, gpus[i].Capacity, r); ok {
					fitting++
				}
			}
			if (err == nil) != (fitting > 0) {
				t.Fatalf("seed %d: %d GPUs have room for %+v: %v", seed, fitting, r, err)
			}
			if err != nil {
				continue
			}
			s := a.Shares[0]
			g := granted{gpu: s.GPU, kept: s.Limit, limit: s.Limit, assignment: a}
			if r.Swap {
				g.kept, g.turn = s.Kept, s.Turn
			}
			if turn, _ := couldHave(all, s.GPU, gpus[s.GPU].Capacity, r); turn != g.turn {
				t.Fatalf("seed %d: %+v has a turn of %d, and there is room for %d", seed, r, g.turn, turn)
			}
			if err := inventory.Reserve(a); err != nil {
				t.Fatal(err)
			}
			all = append(all, g)
			checkHeld(t, gpus, all)
		}
	}
}

func checkHeld(t *testing.T, gpus []GPU, all []granted) {
	t.Helper()
	for i := range gpus {
		needed, room := held(all, i)
		swapped := uint64(0)
		for _, g := range all {
			if g.gpu == i {
				swapped += g.limit - g.kept
			}
		}
		g := &gpus[i]
		if needed > g.Capacity || g.Granted+g.TurnRoom() != needed || g.TurnRoom() != room || g.Swapped != swapped {
			t.Fatalf("GPU %d: %d needed, %d for turns, %d swapped: %+v", i, needed, room, swapped, g)
		}
	}
}

// A swap share goes where nobody has to wait for a turn, else where the fewest bytes are too many, and then to the fullest.
func TestSwapSharesKeepOutOfEachOthersTurns(t *testing.T) {
	inventory := host(t, GPU{UUID: "GPU-a", Capacity: 16 * gib}, GPU{UUID: "GPU-b", Index: 1, Capacity: 16 * gib})
	request := func(n uint64) Request { return Request{Count: 1, Memory: bytes(n * gib), Swap: true} }
	for i, c := range []struct {
		memory uint64
		want   string
	}{{12, "GPU-b"}, {12, "GPU-a"}, {4, "GPU-b"}, {4, "GPU-a"}, {8, "GPU-b"}} {
		a, err := Search(inventory, request(c.memory))
		if err != nil || a.Shares[0].UUID != c.want {
			t.Fatalf("share %d: %+v, %v, want %s", i, a.Shares, err, c.want)
		}
		if err := inventory.Reserve(a); err != nil {
			t.Fatal(err)
		}
	}
}

// Two of one GPU need what both keep, and the room of one turn.
func TestSwapOnOneGPU(t *testing.T) {
	for memory, fits := range map[uint64]bool{12: true, 14: true, 15: false} {
		r := Request{Count: 2, Same: true, Memory: bytes(memory * gib), Swap: true, Kept: bytes(2 * gib)}
		_, err := Search(host(t, GPU{UUID: "GPU-a", Capacity: 16 * gib}), r)
		if (err == nil) != fits {
			t.Errorf("two of %d GiB: %v", memory, err)
		}
	}
}

func TestSwapRefusals(t *testing.T) {
	gpu := GPU{UUID: "GPU-a", Capacity: 16 * gib, ContextBytes: gib / 2, Granted: 8 * gib, Turn: 2 * gib}
	for name, c := range map[string]struct {
		request Request
		reason  Reason
		text    string
	}{
		"larger than the GPU":              {Request{Memory: bytes(20 * gib)}, ReasonNever, "memory 20Gi, of which 2Gi stay on the GPU, is more than GPU 0 can hold in a turn: ask for at most 16Gi, or add --overcommit"},
		"keeps less than a context":        {Request{Memory: bytes(4 * gib), Kept: bytes(gib / 4)}, ReasonNever, "kept 256Mi leaves nothing to the program: the context of one process takes 512Mi of GPU 0"},
		"keeps all":                        {Request{Memory: bytes(4 * gib), Kept: bytes(4 * gib)}, ReasonNever, "kept 4Gi of memory 4Gi leaves nothing to swap"},
		"keeps more":                       {Request{Memory: bytes(4 * gib), Kept: bytes(5 * gib)}, ReasonNever, "leaves nothing to swap"},
		"less than two blocks":             {Request{Memory: bytes(gib / 1024)}, ReasonNever, "memory 1Mi is too little for a part that stays on the GPU and one that leaves it: ask for more, or leave out --swap"},
		"too little left":                  {Request{Memory: bytes(12 * gib), Kept: bytes(2 * gib)}, ReasonFull, "GPU 0 has 6Gi of 16Gi not granted and the swap share needs 10Gi, 2Gi to keep and 8Gi more for turns"},
		"too little left to keep":          {Request{Memory: bytes(9 * gib), Kept: bytes(7 * gib)}, ReasonFull, "GPU 0 has 6Gi of 16Gi not granted and the swap share needs 7Gi to keep"},
		"it keeps too much":                {Request{Memory: bytes(8 * gib), Kept: bytes(7 * gib)}, ReasonFull, "needs 7Gi to keep, and would have room with --kept 6Gi"},
		"would keep too much beside turns": {Request{Memory: bytes(30 * gib), Kept: bytes(12 * gib), Overcommit: true}, ReasonNever, "kept 12Gi of memory 30Gi leaves too little of GPU 0 for turns: ask for at most 8Gi with --kept"},
		"a turn of what it keeps":          {Request{Memory: bytes(40 * gib), Kept: bytes(5 * gib), Overcommit: true}, ReasonFull, "needs 8Gi, 5Gi to keep and 3Gi more for turns"},
		"an ordinary one of its own":       {Request{Memory: bytes(7 * gib)}, ReasonFull, "GPU 0 has 6Gi of 16Gi not granted and the share needs 7Gi"},
	} {
		c.request.Count, c.request.Swap = 1, name != "an ordinary one of its own"
		_, err := Search(host(t, gpu), c.request)
		var refusal *Refusal
		if !errors.As(err, &refusal) || refusal.Reason != c.reason || !strings.Contains(refusal.Text, c.text) {
			t.Errorf("%s: %v", name, err)
		}
	}
	less := Request{Count: 1, Memory: bytes(12 * gib), Swap: true} // of which a tenth is kept, at least 1 GiB
	_, err := Search(host(t, gpu), less)
	var refusal *Refusal
	if !errors.As(err, &refusal) || refusal.Misses[0].Most != 8*gib {
		t.Errorf("%v: %+v", err, refusal)
	}
	for _, r := range []Request{{Memory: bytes(8 * gib), Kept: bytes(4 * gib)}, {Memory: bytes(40 * gib), Kept: bytes(4 * gib), Overcommit: true}} {
		r.Count, r.Swap = 1, true
		a, err := Search(host(t, gpu), r)
		if err != nil || a.Shares[0].Kept != 4*gib || a.Shares[0].Turn != 4*gib {
			t.Errorf("%+v: %+v, %v", r, a.Shares, err)
		}
	}
	if err := (&Request{Count: 1, Swap: true, Whole: true}).Validate(); !errors.Is(err, ErrRequest) {
		t.Error(err)
	}
}
