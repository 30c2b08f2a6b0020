package pacing

import (
	"encoding/binary"
	"math"
	"os"
	"testing"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/page"
	"github.com/divvy-gpu/divvy/internal/tenantdir"
)

// order writes whose turn it is, as the agent's loop over turns does.
func (d *division) order(m Member, state, valid uint64) {
	d.t.Helper()
	file, err := os.OpenFile(tenantdir.Dir(m.Dir).Config(), os.O_RDWR, 0)
	if err != nil {
		d.t.Fatal(err)
	}
	defer file.Close()
	var words [page.SizeOfTurn]byte
	binary.LittleEndian.PutUint64(words[page.OffsetOfTurnOrder:], 7<<page.TurnBits|state)
	binary.LittleEndian.PutUint64(words[page.OffsetOfTurnValid:], valid)
	if _, err := file.WriteAt(words[:], page.OffsetOfConfigDevice+page.OffsetOfDeviceTurn); err != nil {
		d.t.Fatal(err)
	}
}

// A share without its turn keeps nothing of the GPU's time from the one whose turn it is, although a launch of its is under way
// and waits; with its turn, or when its gate has opened by itself, it has its part.
func TestShareWithoutItsTurn(t *testing.T) {
	for name, c := range map[string]struct {
		state, valid uint64
		want         int // percent, of the other share
	}{
		"no turns":         {page.TurnOpen, math.MaxUint64, 50},
		"away":             {page.TurnAway, math.MaxUint64, 100},
		"leaving":          {page.TurnLeaving, math.MaxUint64, 100},
		"entering":         {page.TurnEntering, math.MaxUint64, 100},
		"resident":         {page.TurnResident, math.MaxUint64, 50},
		"away long ago":    {page.TurnAway, 1, 50},
		"off the GPU, too": {page.TurnSuspended, math.MaxUint64, 100},
	} {
		t.Run(name, func(t *testing.T) {
			d := newDivision(t)
			share := shareOf(v1alpha1.PolicyWeighted, 0, 1, v1alpha1.ClassOnline)
			one, other := d.add("one", share), d.add("other", share)
			d.order(other, c.state, c.valid)
			works, waits := &busy{pen: d.pen(one)}, &busy{pen: d.pen(other)}
			waits.interval(d.now-2, d.now-1, 1)
			d.pass(40, func() {
				works.interval(d.now-uint64(yieldTick), d.now, uint64(yieldTick))
				waits.pen.u64(workerWord(0, 0, page.OffsetOfWorkerOpenSince), d.now-1)
				waits.pen.u64(workerWord(0, 0, page.OffsetOfWorkerOpenUntil), d.now+1_000_000_000)
				waits.pen.u64(bucketWord(0, page.OffsetOfBucketWanted), d.now)
			})
			if got := rates(d, one)[0]; got < c.want-3 || got > c.want+3 {
				t.Errorf("the other share has %d %%, want %d", got, c.want)
			}
		})
	}
}
