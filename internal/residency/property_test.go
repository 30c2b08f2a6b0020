package residency_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"testing"

	"github.com/divvy-gpu/divvy/internal/residency"
)

// turns is how many modelled turns the law has to pass.
func turns() int {
	if os.Getenv("DIVVY_LONG") == "swap" {
		return 1_000_000
	}
	return 10_000
}

// anyMachine has one to three GPUs and up to eight shares of any kind.
func anyMachine(t *testing.T, random *rand.Rand) *machine {
	gpus := make([]residency.GPU, 1+random.IntN(3))
	for g := range gpus {
		gpus[g] = residency.GPU{Room: (4 + random.Uint64N(76)) * gib, Rate: (1 + random.Uint64N(50)) * gib}
	}
	m := newMachine(t, gpus...)
	for range 1 + random.IntN(8) {
		m.addAny(random)
	}
	return m
}

func (m *machine) addAny(random *rand.Rand) {
	bytes := make([]uint64, len(m.gpus))
	several := random.IntN(4) == 0
	bytes[random.IntN(len(bytes))] = 1
	for g := range bytes {
		if several || bytes[g] == 1 {
			bytes[g] = 1 + random.Uint64N(m.gpus[g].Room)
		}
	}
	work, pause := busy()
	if random.IntN(2) == 0 {
		longest := []uint64{50 * ms, second, 30 * second}[random.IntN(3)]
		work, pause = func() uint64 { return 1 + random.Uint64N(longest) }, func() uint64 { return random.Uint64N(3 * longest) }
	}
	m.born++
	one := m.add(fmt.Sprint("t", m.born), 1+random.IntN(5), work, pause, bytes...)
	one.Online = random.IntN(4) == 0
	one.kernel = []uint64{0, ms, 300 * ms}[random.IntN(3)]
	one.stuck = random.IntN(20) == 0
}

// disturb has one share come, end, grow or shrink.
func (m *machine) disturb(random *rand.Rand) {
	if len(m.tenants) == 0 || len(m.tenants) < 8 && random.IntN(3) == 0 {
		m.addAny(random)
		return
	}
	one := m.tenants[random.IntN(len(m.tenants))]
	if random.IntN(3) == 0 {
		m.remove(one)
		return
	}
	for g, n := range one.Bytes {
		if n > 0 {
			one.Bytes[g] = 1 + random.Uint64N(m.gpus[g].Room)
			one.There[g] = min(one.There[g], one.Bytes[g])
		}
	}
}

// longestWait is the longest that anybody may wait: everybody else has all turns in a row that InARow allows, and as many online shares go first.
func (m *machine) longestWait() uint64 {
	return uint64(len(m.tenants)+1) * 2 * (residency.InARow*residency.Longest + residency.Longest)
}

// absence is for how long a share stays away beyond that because its work never ends.
func absence(one *tenant) uint64 {
	if one.stuck {
		return residency.LongestAbsence
	}
	return 0
}

// TestTurns lets shares of any kind come and go on machines of any kind, until the law has passed enough turns.
func TestTurns(t *testing.T) {
	passed := 0
	for seed := uint64(0); passed < turns(); seed++ {
		random := rand.New(rand.NewPCG(seed, 9))
		m := anyMachine(t, random)
		m.judge = func(m *machine) {
			fits(m)
			for _, one := range m.tenants {
				if one.left > 0 && one.order.State != residency.Resident && m.now-one.asked > m.longestWait()+absence(one) {
					t.Fatalf("seed %d: %s waits for %d s: %s", seed, one.Key, (m.now-one.asked)/second, m)
				}
			}
		}
		for range 20 {
			m.run(random.Uint64N(600 * second))
			if t.Failed() {
				t.Fatalf("seed %d", seed)
			}
			m.disturb(random)
		}
		passed += m.turns
	}
}

// TestWhatFitsIsNeverMoved lets shares that fit together come and go, of which some rest for long.
func TestWhatFitsIsNeverMoved(t *testing.T) {
	for seed := range uint64(200) {
		random := rand.New(rand.NewPCG(seed, 11))
		m := newMachine(t, residency.GPU{Room: 64 * gib, Rate: 10 * gib})
		for range 8 {
			m.addAny(random)
			one := m.tenants[len(m.tenants)-1]
			one.Bytes[0] = min(one.Bytes[0], 8*gib)
			one.There[0] = 0
		}
		m.run(600 * second)
		for _, one := range m.tenants {
			if m.changes > 0 || one.order.State != residency.Resident {
				t.Fatalf("seed %d: %d leave, and %s is %d", seed, m.changes, one.Key, one.order.State)
			}
		}
	}
}
