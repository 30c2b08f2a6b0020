package pacing

import (
	"fmt"
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/page"
)

// kernel is how long the kernels of the launching shares take.
const kernel = uint64(20 * time.Millisecond)

// crowd is shares of eight GPUs that launch kernels one after the other. On each GPU they
// take turns, kernel by kernel.
type crowd struct {
	division *division
	gpus     [8][]*busy
	turn     [8]int
	done     [8]uint64 // when the present kernel ends
}

func newCrowd(t testing.TB, shares int) *crowd {
	c := &crowd{division: newDivision(t)}
	perGPU := (shares + len(c.gpus) - 1) / len(c.gpus)
	for i := range shares {
		s := shareOf(v1alpha1.PolicyFixed, max(90/perGPU, 1), 1, v1alpha1.ClassOnline)
		s.GPU.UUID = fmt.Sprintf("GPU-00000000-0000-4000-8000-%012d", i%len(c.gpus))
		m := c.division.add(fmt.Sprintf("t%d", i), s)
		c.gpus[i%len(c.gpus)] = append(c.gpus[i%len(c.gpus)], &busy{pen: c.division.pen(m)})
	}
	for g := range c.gpus {
		c.done[g] = c.division.now + uint64(g)*kernel/uint64(len(c.gpus))
	}
	return c
}

// work is what the shares did up to now.
func (c *crowd) work() {
	for g, shares := range c.gpus {
		if c.done[g] > c.division.now {
			continue
		}
		shares[c.turn[g]].interval(c.done[g]-kernel, c.done[g], kernel)
		c.turn[g] = (c.turn[g] + 1) % len(shares)
		next := shares[c.turn[g]]
		next.pen.u64(workerWord(0, 0, page.OffsetOfWorkerOpenSince), c.done[g])
		next.pen.u64(workerWord(0, 0, page.OffsetOfWorkerOpenUntil), c.done[g]+kernel)
		c.done[g] += kernel
	}
}

// processorTime is what this thread has used.
func processorTime(t testing.TB) time.Duration {
	var used unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &used); err != nil {
		t.Fatal(err)
	}
	return time.Duration(used.Nano())
}

// BenchmarkSecond tells what a second of deciding costs, in percent of a processor.
func BenchmarkSecond(b *testing.B) {
	for _, shares := range []int{10, 40, 200} {
		b.Run(fmt.Sprint(shares), func(b *testing.B) {
			c := newCrowd(b, shares)
			c.division.pass(20, c.work)
			b.ReportAllocs()
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			spent := time.Duration(0)
			for b.Loop() {
				for end := c.division.now + uint64(time.Second); c.division.now < end; {
					c.division.now += uint64(time.Millisecond)
					c.work()
					begin := processorTime(b)
					c.division.loop.round(b.Context())
					spent += processorTime(b) - begin
				}
			}
			b.ReportMetric(100*spent.Seconds()/float64(b.N), "percent")
		})
	}
}
