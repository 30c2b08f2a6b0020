package pacing

import (
	"math"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
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
