package pacing

import (
	"bytes"
	"math"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/arbiter"
	"github.com/divvy-gpu/divvy/internal/page"
	"github.com/divvy-gpu/divvy/internal/tenantdir"
)

// Whatever one tenant writes, the others' budgets and times stay theirs.
func TestHostilePagesHurtNobodyElse(t *testing.T) {
	const fixed, online = v1alpha1.PolicyFixed, v1alpha1.ClassOnline
	random := rand.New(rand.NewPCG(3, 1))
	for name, write := range map[string]func(p *pen, now uint64){
		"says nothing": func(*pen, uint64) {},
		"no page": func(p *pen, _ uint64) {
			if err := os.Truncate(p.file.Name(), 100); err != nil {
				t.Fatal(err)
			}
		},
		"time running backwards": func(p *pen, now uint64) {
			liar := busy{pen: p, count: uint32(now / uint64(yieldTick))}
			liar.interval(math.MaxUint64-now, now/2, math.MaxUint64)
		},
		"absurd use": func(p *pen, now uint64) {
			p.u64(bucketWord(0, page.OffsetOfBucketCharged), math.MaxUint64)
			p.u32(workerWord(0, 63, page.OffsetOfWorkerOwner), 1)
			p.u64(workerWord(0, 63, page.OffsetOfWorkerUnmeasured), now*now)
		},
		"work in the future": func(p *pen, now uint64) {
			p.u32(workerWord(0, 0, page.OffsetOfWorkerOwner), 1)
			p.u64(workerWord(0, 0, page.OffsetOfWorkerOpenSince), now+1<<40)
			p.u64(workerWord(0, 0, page.OffsetOfWorkerOpenUntil), math.MaxUint64)
		},
		"work without end": func(p *pen, _ uint64) {
			p.u32(workerWord(0, 0, page.OffsetOfWorkerOwner), 1)
			p.u64(workerWord(0, 0, page.OffsetOfWorkerOpenSince), 1)
			p.u64(workerWord(0, 0, page.OffsetOfWorkerOpenUntil), math.MaxUint64)
		},
		"noise": func(p *pen, _ uint64) {
			for range 200 {
				p.u64(bucketWord(0, 0)+8*random.Int64N((page.SizeOfGPU-page.OffsetOfGPUBucket)/8), random.Uint64())
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			d := newDivision(t)
			honest := d.add("honest", shareOf(fixed, 60, 1, online))
			liar := d.add("liar", shareOf(fixed, 40, 1, online))
			work := &busy{pen: d.pen(honest)}
			bad := d.pen(liar)
			own := uint64(3 * time.Millisecond)
			d.pass(1, nil)
			d.pass(100, func() {
				work.interval(d.now-own, d.now, own)
				if bad.file != nil {
					write(bad, d.now)
				}
			})
			d.now += uint64(time.Second) // whatever was waited for is given up
			d.pass(200, nil)
			b := d.budget(honest, 0)
			if rates(d, honest)[0] != 60 || rates(d, liar)[0] != 40 {
				t.Errorf("rates %v", rates(d, honest, liar))
			}
			// What overlaps with work that a neighbour claims is not wholly one's own,
			// and then comes back; nothing is taken.
			if b.Correction < 0 || b.Correction > 100*int64(own) {
				t.Errorf("correction %d", b.Correction)
			}
			if got := d.loop.Times("honest")[0]; got.Used > 100*own || got.Fault != "" {
				t.Errorf("honest: %+v", got)
			}
			got := d.loop.Times("liar")[0]
			if quiet := name == "says nothing" || name == "work without end"; quiet != (got.Fault == "") {
				t.Errorf("liar: %q", got.Fault)
			}
		})
	}
}

// obedient is a share that does as its budget says, alone on the GPU.
type obedient struct {
	*busy
	level float64
	paid  int64    // of the correction
	used  []uint64 // in each round, ns
}

// turn is one round of its work.
func (o *obedient) turn(now uint64, b page.Budget) {
	const span = uint64(yieldTick)
	o.level = min(o.level+float64(span)*float64(b.Rate)/page.Whole+float64(b.Correction-o.paid), page.Start)
	o.paid = b.Correction
	used := uint64(0)
	if b.Flags&page.BudgetLimited == 0 || o.level > 0 {
		used = span
		o.level -= float64(span)
		o.interval(now-span, now, span)
	}
	o.used = append(o.used, used)
}

// sample is the driver's figure: a sixth of a second that ended 300 ms ago.
func (o *obedient) sample() float64 {
	sum := uint64(0)
	end := len(o.used) - int(300*time.Millisecond/yieldTick)
	for _, used := range o.used[max(end-33, 0):max(end, 0)] {
		sum += used
	}
	return math.Floor(100*float64(sum)/float64(33*yieldTick)) / 100
}

// Nobody is accused for the nonsense that a neighbour tells of itself, also while that is believed: what it claims of
// the GPU's time and did not have was the others'.
func TestNonsenseAccusesNobodyElse(t *testing.T) {
	random := rand.New(rand.NewPCG(7, 1))
	const words = page.SizeOfState + page.SizeOfGPU // the header stands before them
	for name, write := range map[string]func(liar *busy, now uint64){
		"random bytes": func(b *busy, _ uint64) {
			noise := make([]byte, words-page.SizeOfState)
			for i := range noise {
				noise[i] = byte(random.Uint32())
			}
			b.pen.bytes(noise, page.SizeOfState)
		},
		"random pieces": func(b *busy, _ uint64) {
			noise := make([]byte, 4096)
			for i := range noise {
				noise[i] = byte(random.Uint32())
			}
			b.pen.bytes(noise, random.Int64N(words/4096)*4096)
		},
		"ones": func(b *busy, _ uint64) {
			b.pen.bytes(bytes.Repeat([]byte{0xff}, words-page.SizeOfState), page.SizeOfState)
		},
		"large numbers": func(b *busy, _ uint64) {
			b.pen.bytes(bytes.Repeat([]byte{0, 0, 0, 0, 0, 0, 0, 0x40}, (words-page.SizeOfState)/8), page.SizeOfState)
		},
		"work without end": func(b *busy, now uint64) {
			b.pen.u32(workerWord(0, 0, page.OffsetOfWorkerOwner), 1)
			b.pen.u64(workerWord(0, 0, page.OffsetOfWorkerOpenSince), now-uint64(300*time.Millisecond))
			b.pen.u64(workerWord(0, 0, page.OffsetOfWorkerOpenUntil), now+uint64(time.Hour))
		},
		"work that was not done": func(b *busy, now uint64) { b.interval(now-uint64(4*yieldTick), now, uint64(4*yieldTick)) },
	} {
		t.Run(name, func(t *testing.T) {
			d := newDivision(t)
			honest := d.add("honest", shareOf(v1alpha1.PolicyWeighted, 0, 1, v1alpha1.ClassOnline))
			liar := d.add("liar", shareOf(v1alpha1.PolicyWeighted, 0, 1, v1alpha1.ClassOnline))
			work := &obedient{busy: &busy{pen: d.pen(honest)}}
			bad := &busy{pen: d.pen(liar)}
			d.pass(1, nil)
			for round := range 4000 { // of 5 ms
				d.pass(1, func() {
					work.turn(d.now, d.budget(honest, 0))
					if round >= 400 && round%4 == 0 {
						write(bad, d.now)
					}
				})
				if round%80 == 79 {
					d.loop.observe(firstID, d.now, d.now-uint64(300*time.Millisecond), 1, map[string]float64{"honest": work.sample()}, map[string]int{"honest": 1})
				}
				if text := d.loop.Times("honest")[0].Fault; text != "" {
					t.Fatalf("round %d: %s", round, text)
				}
				if v := d.loop.tenants["honest"].shares[0].misuse.verdict; v > arbiter.Suspect {
					t.Fatalf("round %d: verdict %d", round, v)
				}
			}
		})
	}
}

// Under a user's own agent the config page is theirs as well.
func TestConfigPageCutShort(t *testing.T) {
	d := newDivision(t)
	honest := d.add("honest", shareOf(v1alpha1.PolicyFixed, 60, 1, v1alpha1.ClassOnline))
	vandal := d.add("vandal", shareOf(v1alpha1.PolicyFixed, 40, 1, v1alpha1.ClassOnline))
	d.pass(1, nil)
	if err := os.Truncate(tenantdir.Dir(vandal.Dir).Config(), 0); err != nil {
		t.Fatal(err)
	}
	d.pass(20, nil)
	if b := d.budget(honest, 0); d.now-b.Tick > uint64(steady+busyTick) {
		t.Errorf("the honest one's tick is %d at %d", b.Tick, d.now)
	}
	if got := d.loop.Times("vandal")[0].Fault; !strings.Contains(got, "corrupt") {
		t.Errorf("fault %q", got)
	}
}

// A hundred idle shares must cost next to nothing: twenty such rounds make up a
// second.
func BenchmarkIdleShares(b *testing.B) {
	for _, count := range []int{2, 100} {
		b.Run(strconv.Itoa(count), func(b *testing.B) { benchmarkRound(b, count, false) })
	}
}

// BenchmarkBusyShares is a round with work; two hundred make up a second.
func BenchmarkBusyShares(b *testing.B) {
	for _, count := range []int{2, 10} {
		b.Run(strconv.Itoa(count), func(b *testing.B) { benchmarkRound(b, count, true) })
	}
}

func benchmarkRound(b *testing.B, count int, working bool) {
	d := newDivision(b)
	var tenants []*busy
	for i := range count {
		m := d.add("t"+strconv.Itoa(i), shareOf(v1alpha1.PolicyWeighted, 0, 1, v1alpha1.ClassOnline))
		tenants = append(tenants, &busy{pen: d.pen(m)})
	}
	for b.Loop() {
		b.StopTimer()
		d.now += uint64(yieldTick)
		for _, w := range tenants {
			if working {
				w.interval(d.now-uint64(time.Millisecond), d.now, uint64(time.Millisecond))
			}
		}
		d.loop.gpus[firstID] = gpuDue(d)
		b.StartTimer()
		d.loop.round(b.Context())
	}
}

// gpuDue makes the GPU due whatever its ticks are.
func gpuDue(d *division) *gpuTime {
	g := d.loop.gpu(firstID)
	g.next = 0
	return g
}
