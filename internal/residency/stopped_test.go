package residency_test

import (
	"testing"

	"github.com/divvy-gpu/divvy/internal/residency"
)

// A process that was stopped while it waited asks for turns for ever, and carries nothing out. The others make room for it
// less and less often, and never for two of its turns in a row.
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
	var visits, present, left uint64
	for now := uint64(second); now < 600*second; now += step {
		shares := make([]residency.Share, len(names))
		for i, name := range names {
			state, hung := orders[i].State, name == "stopped"
			shares[i] = residency.Share{
				Key: name, Online: true, Weight: 1, Bytes: []uint64{10 * gib}, There: []uint64{0},
				Waits: state != residency.Resident, Works: !hung && state == residency.Resident, Done: !hung,
			}
		}
		before := orders[2].State
		orders, _ = law.Decide(now, gpus, shares)
		switch state := orders[2].State; {
		case state == residency.Away && before != residency.Away:
			left = now
		case state != residency.Away && before == residency.Away:
			if visits++; now-left < residency.Absence {
				t.Errorf("after %d ms it comes back %d ms after it left", now/(second/1000), (now-left)/(second/1000))
			}
			present += step
		case state != residency.Away:
			present += step
		}
		for i := range away {
			if away[i] += step; orders[i].State == residency.Resident {
				away[i] = 0
			}
			longest[i] = max(longest[i], away[i])
		}
	}
	if visits == 0 || visits > 4 || present > 600*second/10 {
		t.Errorf("it has %d turns, in which others wait for %d ms", visits, present/(second/1000))
	}
	for i, waited := range longest {
		if waited > 2*residency.Longest { // the turns of both others
			t.Errorf("%s waits for %d ms", names[i], waited/(second/1000))
		}
		t.Logf("%s waits for %d ms", names[i], waited/(second/1000))
	}
}

// A share that answers again has its turns as before, however long it was silent.
func TestOneThatGoesOn(t *testing.T) {
	m := newMachine(t, residency.GPU{Room: 16 * gib, Rate: 12 * gib})
	w, p := busy()
	one, other := m.add("one", 1, w, p, 12*gib), m.add("other", 1, w, p, 12*gib)
	one.stuck = true
	m.judge = fits
	m.run(1200 * second)
	one.stuck = false
	m.run(10 * second)
	was, its := one.gpuTime, other.gpuTime
	m.run(600 * second)
	if got, others := one.gpuTime-was, other.gpuTime-its; got < 250*second || others < 250*second {
		t.Errorf("it has %d s of 600, the other one %d", got/second, others/second)
	}
}

// Kernels of 30 s end 25 s after their share is late. That is an answer, so the share has its turns.
func TestLongKernels(t *testing.T) {
	m := newMachine(t, residency.GPU{Room: 16 * gib, Rate: 12 * gib})
	w, p := busy()
	long, other := m.add("long", 1, w, p, 12*gib), m.add("other", 1, w, p, 12*gib)
	long.kernel = 30 * second
	m.judge = func(m *machine) {
		if long.order.State != residency.Resident && m.now-long.asked > 2*residency.Longest {
			t.Fatalf("it waits for %d s", (m.now-long.asked)/second)
		}
	}
	m.run(3600 * second)
	if long.gpuTime < 1300*second || other.gpuTime < 1300*second {
		t.Errorf("it has %d s of 3600, the other one %d", long.gpuTime/second, other.gpuTime/second)
	}
}
