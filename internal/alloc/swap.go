package alloc

import (
	"fmt"
	"slices"
	"sort"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
)

// A swap share keeps a part of its limit on the GPU. The rest, its turn, is there while the share has its turn, so that the
// swap shares of a GPU need the room of the largest turn together. That room is nobody else's.

// TurnRoom is the memory in which the swap shares of a GPU take turns.
func (g *GPU) TurnRoom() uint64 {
	if len(g.turns) == 0 {
		return g.Turn
	}
	return max(g.Turn, g.turns[len(g.turns)-1])
}

// turnFor is how much of a swap share's turn a GPU has room for, beside what is granted there and what the share keeps. ok is
// false where the share does not fit. With overcommit a turn may be larger than its room, which is no smaller than what the
// share keeps then. shares is how many of equal shares the GPU would take.
func (g *GPU) turnFor(kept, turn uint64, shares int, overcommit bool) (room uint64, ok bool) {
	left := g.Capacity - min(g.Granted, g.Capacity)
	n := uint64(max(1, shares))
	if kept > left/n {
		return 0, false
	}
	left -= kept * n
	if overcommit && turn > left {
		return left, left >= max(min(kept, turn), g.TurnRoom())
	}
	return turn, max(turn, g.TurnRoom()) <= left
}

// contradictsSwap reports whether a request for swap shares asks for what they never have.
func (r *Request) contradictsSwap() bool { return r.Swap && (r.Whole || r.Profile != "") }

// parts divides the limit of a share: into what it keeps and what has turns. Of a share without swap all is kept.
func (r *Request) parts(limit uint64) (kept, turn uint64) {
	if !r.Swap {
		return limit, 0
	}
	kept = (&v1alpha1.ShareConfig{Swap: true, Kept: r.Kept}).KeptOf(limit)
	return kept, limit - min(kept, limit)
}

// neverSwaps says why a swap share with a limit never fits on a GPU, even an empty one.
func (r *Request) neverSwaps(g *GPU, limit uint64) Cause {
	kept, turn := r.parts(limit)
	empty := GPU{Capacity: g.Capacity}
	switch _, ok := empty.turnFor(kept, turn, 1, r.Overcommit); {
	case turn < v1alpha1.BlockBytes:
		return CauseKept
	case kept <= g.ContextBytes:
		return CauseContext
	case !ok:
		return CauseCapacity
	}
	return CauseNone
}

// Possible reports whether one share of the request fits on such a GPU without tenants.
func (r Request) Possible(g *GPU) bool { return impossible(&r, g) == CauseNone }

// lacksMemory reports whether so many shares with a limit do not fit into what a GPU has left.
func (r *Request) lacksMemory(g *GPU, limit uint64, shares int) bool {
	if r.Swap {
		kept, turn := r.parts(limit)
		_, ok := g.turnFor(kept, turn, shares, r.Overcommit)
		return !ok
	}
	return !r.Overcommit && (limit > g.FreeMemory() || limit > g.FreeMemory()/uint64(shares))
}

// Needs is what a share with a limit takes of the memory of a GPU that is not granted: of a swap share what it keeps, and
// what its turn needs beyond the room of the turns there.
func (r *Request) Needs(g *GPU, limit uint64) uint64 {
	kept, turn := r.parts(limit)
	if r.Swap && r.Overcommit {
		turn = min(turn, kept)
	}
	return kept + turn - min(turn, g.TurnRoom())
}

// mostOn is the largest limit, in whole blocks, of a swap share for which a GPU has room now.
func (r *Request) mostOn(g *GPU) uint64 {
	blocks := sort.Search(int(g.Capacity/v1alpha1.BlockBytes)+1, func(n int) bool {
		return r.lacksMemory(g, uint64(n+1)*v1alpha1.BlockBytes, 1)
	})
	return min(uint64(blocks)*v1alpha1.BlockBytes, g.Capacity)
}

// keptFits is the most, in whole blocks, that one swap share with a limit could keep to fit on a GPU: 0 where it has to have less
// memory, or where a context would not fit into what it keeps.
func (r *Request) keptFits(g *GPU, limit uint64) uint64 {
	if r.Count > 1 {
		return 0 // there are more GPUs than this one
	}
	kept, _ := r.parts(limit)
	blocks := sort.Search(int(min(kept, g.Capacity)/v1alpha1.BlockBytes), func(n int) bool {
		less := uint64(n+1) * v1alpha1.BlockBytes
		_, ok := g.turnFor(less, limit-min(less, limit), 1, r.Overcommit)
		return !ok
	})
	if fits := uint64(blocks) * v1alpha1.BlockBytes; fits > g.ContextBytes {
		return fits
	}
	return 0
}

// crowding is by how much all shares of a GPU together exceed it with one more: where that is 0 nobody waits for a turn.
func (g *GPU) crowding(limit uint64) uint64 {
	all := g.Granted + g.Swapped + limit
	return all - min(all, g.Capacity)
}

// addTurn counts the turn of a swap share that is held of a GPU, and dropTurn takes it back. Copies of the GPU keep theirs.
func (g *GPU) addTurn(turn, swapped uint64) {
	at, _ := slices.BinarySearch(g.turns, turn)
	g.turns = slices.Insert(slices.Clone(g.turns), at, turn)
	g.Swapped += swapped
}

func (g *GPU) dropTurn(turn, swapped uint64) {
	if at, there := slices.BinarySearch(g.turns, turn); there {
		g.turns = slices.Delete(slices.Clone(g.turns), at, at+1)
		g.Swapped -= swapped
	}
}

// lacksMemory reports whether a share that was assigned does not fit into what its GPU has left.
func (s *Share) lacksMemory(g *GPU) bool {
	if s.Kept > 0 {
		left := g.Capacity - min(g.Granted, g.Capacity)
		return s.Kept > left || max(s.Turn, g.TurnRoom()) > left-s.Kept
	}
	return s.Limit > g.Capacity || !s.Overcommit && s.Limit > g.FreeMemory()
}

// ofSwap describes GPUs on which a swap share does not fit, "" where that has nothing to do with swapping.
func (m *Miss) ofSwap(gpus, has, at string) string {
	switch {
	case m.Kept == 0 && m.Cause == CauseKept:
		return fmt.Sprintf("memory %s is too little for a part that stays on the GPU and one that leaves it: ask for more, or leave out --swap", amount(m.Need))
	case m.Kept == 0:
		return ""
	}
	switch m.Cause {
	case CauseCapacity:
		if m.KeptFits > 0 {
			return fmt.Sprintf("kept %s of memory %s leaves too little of %s for turns: ask for at most %s with --kept", amount(m.Kept), amount(m.Need), m.called(), amount(m.KeptFits))
		}
		return fmt.Sprintf("memory %s, of which %s stay on the GPU, is more than %s can hold in a turn: ask for at most %s, or add --overcommit, if you may, for turns that hold a part of it",
			amount(m.Need), amount(m.Kept), m.called(), amount(m.All))
	case CauseContext:
		return fmt.Sprintf("kept %s leaves nothing to the program: the context of one process takes %s of %s and stays there: ask for more with --kept, or for more memory",
			amount(m.Kept), amount(m.Free), m.called())
	case CauseKept:
		return fmt.Sprintf("kept %s of memory %s leaves nothing to swap: ask for less with --kept, or leave out --swap", amount(m.Kept), amount(m.Need))
	case CauseMemory:
		left, need := distinct(m.Free, m.Need)
		text := fmt.Sprintf("%s %s %s of %s not granted%s and the swap share needs %s", gpus, has, left, v1alpha1.RoundBytes(m.All), at, need)
		if more := m.Need - min(m.Need, m.Kept); more > 0 {
			text += fmt.Sprintf(", %s to keep and %s more for turns", v1alpha1.RoundBytes(m.Kept), v1alpha1.RoundBytes(more))
		} else {
			text += " to keep"
		}
		if m.KeptFits > 0 {
			text += fmt.Sprintf(", and would have room with --kept %s", amount(m.KeptFits))
		}
		return text
	}
	return ""
}
