package residency_test

import (
	"testing"

	"github.com/divvy-gpu/divvy/internal/residency"
)

// A process that was stopped while it waited asks for turns for ever, and carries nothing out. It gets its part of the turns,
// and the others theirs between them.
func TestOneThatIsStopped(t *testing.T) {
	const step, room = 10 * second / 1000, 16 * gib
	law := residency.Law{}
	gpus := []residency.GPU{{Room: room, Rate: 12 * gib}}
	names := []string{"a", "b", "stopped"}
	orders := make([]residency.Order, len(names))
	for i := range orders {
		orders[i].State = residency.Resident // as all new shares are
	}
	var longest, away [2]uint64
	for now := uint64(second); now < 600*second; now += step {
		shares := make([]residency.Share, len(names))
		for i, name := range names {
			state, hung := orders[i].State, name == "stopped"
			shares[i] = residency.Share{
				Key: name, Online: true, Weight: 1, Bytes: []uint64{10 * gib}, There: []uint64{0},
				Waits: state != residency.Resident, Works: !hung && state == residency.Resident, Done: !hung,
			}
		}
		orders, _ = law.Decide(now, gpus, shares)
		for i := range away {
			if away[i] += step; orders[i].State == residency.Resident {
				away[i] = 0
			}
			longest[i] = max(longest[i], away[i])
		}
	}
	for i, waited := range longest {
		if waited > 2*residency.Longest { // the turns of both others
			t.Errorf("%s waits for %d ms", names[i], waited/(second/1000))
		}
		t.Logf("%s waits for %d ms", names[i], waited/(second/1000))
	}
}
