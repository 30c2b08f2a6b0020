package main

import (
	"context"
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// The cases here leave a few GiB of the GPU free, so that what does not fit moves in seconds, and ask what no simulated driver
// can tell: whether a neighbour's allocations displace managed memory, how fast it moves, what the driver and the system
// charge for it, and who may take whom off the GPU.

func swapCases() []testCase {
	n := needs{share: true, together: true}
	return []testCase{
		{name: "swap", asks: "Do two tenants of 3 GiB take turns in 4, and does an allocation displace a neighbour's managed memory?", needs: n,
			expected: "both go on and find what they wrote; a neighbour's allocation in ordinary memory succeeds, and displaces theirs",
			means:    "memory beyond the GPU must not be used with this driver", limit: 4 * time.Minute, run: swap},
		{name: "suspend", asks: "Does a program leave the GPU with all that it has, and come back by its next call?", needs: n,
			expected: "nothing of it is on the GPU while it sleeps; its calls wait, a thread that asks NVML goes on; it finds what it wrote",
			means:    "shares must not be suspended with this driver", limit: 3 * time.Minute, run: suspend},
	}
}

const (
	// spare is what the cases leave free of the GPU.
	spare = 5 * gib
	// ballastContext is what the program that takes the rest has for its context.
	ballastContext = gib
	// spareKept is what a swap share keeps on the GPU: a context and code.
	spareKept = 768 * mib
	swapping  = 3 * gib
)

// swept is a line of gpubench sweep.
type swept struct {
	Step    *int   `json:"step"`
	Begin   int64  `json:"begin_ns"`
	End     int64  `json:"end_ns"`
	PID     int    `json:"pid"`
	Phase   string `json:"phase"`
	Command string `json:"command"`
	Result  string `json:"result"`
	Code    int    `json:"code"`
	Steps   int    `json:"steps"`
	Changed uint64 `json:"changed_bytes"`
}

// swept are the lines of a program so far.
func (f *follower) swept() (all []swept) {
	for _, line := range f.said() {
		var s swept
		if json.Unmarshal([]byte(line), &s) == nil {
			all = append(all, s)
		}
	}
	return all
}

// finish ends a program that goes through its memory and checks what it found there. It returns how often it went through it.
func (t *trial) finish(f *follower, who string) (int, error) {
	for _, s := range f.swept() {
		if s.Phase == "work" {
			_ = syscall.Kill(s.PID, syscall.SIGTERM) // one that has ended told why
		}
	}
	if _, err := t.await(f, `"command"`); err != nil {
		return 0, fmt.Errorf("%s: %w", who, err)
	}
	all := f.swept()
	last := all[len(all)-1]
	t.end(f.program)
	switch {
	case last.Code != 0:
		return last.Steps, differ("%s ended with %s after %d steps", who, last.Result, last.Steps)
	case last.Changed != 0:
		return last.Steps, differ("%s: %d bytes are not as they were written", who, last.Changed)
	}
	return last.Steps, nil
}

// allowing starts an agent that allows swap and suspension. Where another one serves, that one's word counts.
func (t *trial) allowing() (end func(), err error) {
	words := []string{t.divvy(), "agent", "--swap-memory", "8Gi", "--metrics-address", "none"}
	if t.simgpu != "" {
		words = append(words, "--simgpu-dir", filepath.Join(t.scratch, "r", "simgpu", simulated))
	}
	if gone, err := t.leaves(); err != nil || !gone {
		return func() {}, err // it has a share, or it is the system's
	}
	f, err := t.follow(nil, words...)
	if err != nil {
		return nil, err
	}
	_, err = t.until(time.Minute, func() (bool, error) {
		select {
		case <-f.done:
			return true, nil // it says no, and who is served by another agent will hear that one
		default:
			unserved, err := t.unserved()
			return !unserved, err
		}
	})
	end = func() {
		_ = syscall.Kill(f.cmd.Process.Pid, syscall.SIGTERM)
		select {
		case <-f.done:
		case <-time.After(killTime):
		}
		t.end(f.program)
	}
	return end, err
}

// leaves waits for an agent of earlier shares to end. Who asks it keeps it for a second, so it is asked more and more seldom.
func (t *trial) leaves() (bool, error) {
	for try := range 5 {
		if unserved, err := t.unserved(); err != nil || unserved {
			return unserved, err
		}
		select {
		case <-t.ctx.Done():
			return false, context.Cause(t.ctx)
		case <-time.After(time.Duration(try+1) * 1500 * time.Millisecond):
		}
	}
	return false, nil
}

// unserved reports whether no agent serves the GPU.
func (t *trial) unserved() (bool, error) {
	words := []string{t.divvy(), "ls", "-o", "json"}
	if t.simgpu != "" {
		words = append(words, "--simgpu", simulated)
	}
	o, err := t.call(nil, words...)
	if err != nil {
		return false, err
	}
	var document struct{ Agents []json.RawMessage }
	err = json.Unmarshal([]byte(o.out), &document)
	return err == nil && len(document.Agents) == 0, nil
}

// ballast takes all of the GPU but what is to be spare.
func (t *trial) ballast() (*follower, error) {
	if t.gpu.Free < spare+ballastContext {
		return nil, skip("the GPU has only %s free", bytesText(t.gpu.Free))
	}
	size := t.gpu.Free - spare
	f, err := t.follow(t.share(flags{memory: size}), t.gpubench(), "hold", "--bytes", fmt.Sprintf("%dMi", (size-ballastContext)/mib))
	if err != nil {
		return nil, err
	}
	if _, err := t.await(f, `"code":0`); err != nil {
		t.end(f.program)
		return nil, fmt.Errorf("take the rest of the GPU: %w", err)
	}
	return f, nil
}

func swap(t *trial) error {
	concurrent, err := t.managed()
	if err != nil {
		return err
	}
	if !concurrent {
		return skip("the driver cannot move managed memory while both processors may use it")
	}
	end, err := t.allowing()
	if err != nil {
		return err
	}
	defer end()
	rest, err := t.ballast()
	if err != nil {
		return err
	}
	defer t.end(rest.program)
	if err := t.displaced(); err != nil {
		return err
	}
	if err := t.besideFaults(); err != nil {
		return err
	}
	return t.turns()
}

// managed asks natively how managed memory moves, and what is told of it.
func (t *trial) managed() (concurrent bool, err error) {
	o, err := t.call(t.natively(), t.gpuprobe(), "managed")
	if err != nil {
		return false, err
	}
	for line := range strings.Lines(o.out) {
		var s struct {
			Step            string
			GBps            *float64
			Listed, Charged int64
		}
		if json.Unmarshal([]byte(line), &s) != nil || s.Step == "" {
			continue
		}
		rate := ""
		if s.GBps != nil {
			rate = fmt.Sprintf("%.2f GB/s; ", *s.GBps)
		}
		t.facts = append(t.facts, fact{What: "256 MiB of managed memory, " + s.Step,
			Native: fmt.Sprintf("%sNVML lists the process with %s; its cgroup is charged %s", rate, orNone(s.Listed), orNone(s.Charged))})
	}
	var a struct {
		Code, Concurrent int
		Result           string
	}
	if err := o.last(&a); err != nil {
		return false, err
	}
	if a.Code != 0 {
		return false, differ("natively managed memory ends with %s", a.Result)
	}
	return a.Concurrent != 0, nil
}

func orNone(bytes int64) string {
	if bytes < 0 {
		return "nothing that is told"
	}
	return bytesText(uint64(bytes))
}

// displaced has a program allocate ordinary memory natively for which a neighbour's managed memory has to leave.
func (t *trial) displaced() error {
	f, err := t.follow(t.natively(), t.gpubench(), "sweep", "--kind", "managed", "--bytes", "4Gi", "--pieces", "64", "--ns", "50000000", "--count", "0", "--pause", "50")
	if err != nil {
		return err
	}
	defer t.end(f.program)
	if _, err := t.await(f, `"step":1`); err != nil {
		return fmt.Errorf("use managed memory: %w", err)
	}
	var a allocated
	o, err := t.call(t.natively(), t.gpubench(), "alloc", "--bytes", "256Mi", "--count", "8")
	if err == nil {
		err = o.last(&a)
	}
	if err != nil {
		return err
	}
	steps, err := t.finish(f, "the neighbour")
	t.compare("ordinary memory beside a neighbour's managed memory of 4 GiB in 5", fmt.Sprintf("%s of 2 GiB, then %s; the neighbour goes on: %d steps", bytesText(a.Allocated), a.Result, steps), "")
	if err == nil && a.Code != 0 {
		err = differ("an allocation in ordinary memory ends with %s beside a neighbour's managed memory: shares without swap lose room to those with it", a.Result)
	}
	return err
}

// besideFaults compares what a program's kernels get beside a process that has more managed memory than there is room with what they
// get alone: whether the driver gives the time to others in which a process waits for memory.
func (t *trial) besideFaults() error {
	loops, err := t.loops()
	if err != nil {
		return err
	}
	work := tenant{at: t.natively(), command: t.work(loops)}
	alone, err := t.rates(work)
	if err != nil {
		return err
	}
	f, err := t.follow(t.natively(), t.gpubench(), "sweep", "--kind", "managed", "--bytes", "6Gi", "--pieces", "64", "--ns", "50000000", "--count", "0")
	if err != nil {
		return err
	}
	defer t.end(f.program)
	if _, err := t.await(f, `"step":1`); err != nil {
		return fmt.Errorf("use more managed memory than there is room: %w", err)
	}
	beside, err := t.rates(work)
	if err != nil {
		return err
	}
	t.compare("kernels of 1 ms a second: alone; beside a process that waits for its memory", fmt.Sprintf("%.0f; %.0f", alone[0], beside[0]), "")
	_, err = t.finish(f, "a process with more managed memory than there is room")
	return err
}

// turns has two tenants with more memory than there is go through it at once, after one alone.
func (t *trial) turns() error {
	seconds := 20
	switch {
	case t.thorough:
		seconds = 60
	case t.simgpu != "":
		seconds = 10
	}
	share := flags{memory: swapping + spareKept, kept: spareKept}
	start := func(seconds int) (*follower, error) {
		return t.follow(t.share(share), t.gpubench(), "sweep", "--bytes", fmt.Sprintf("%dMi", swapping/mib), "--pieces", "48", "--ns", "50000000", "--count", "0", "--seconds", fmt.Sprint(seconds))
	}
	alone, err := start(5)
	if err != nil {
		return err
	}
	if _, err := t.await(alone, `"command"`); err != nil {
		if o := alone.output(""); strings.Contains(o.err, "swap") && len(alone.said()) == 0 {
			return skip("%s", firstLine(o.say()))
		}
		return err
	}
	once, err := t.finish(alone, "a tenant alone")
	if err != nil {
		return err
	}
	var both [2]*follower
	for i := range both {
		if both[i], err = start(seconds); err != nil {
			return err
		}
		defer t.end(both[i].program)
	}
	sum, span := 0, stretch{}
	for i, f := range both {
		steps, err := t.finishAtEnd(f, fmt.Sprintf("tenant %d of two", i+1))
		if err != nil {
			return err
		}
		if steps == 0 {
			return differ("tenant %d of two does not get on", i+1)
		}
		sum += steps
		span.take(f)
	}
	single := stretch{}
	single.take(alone)
	rate := [2]float64{float64(once) / single.seconds(), float64(sum) / span.seconds()}
	t.compare("steps through 3 GiB a second: one alone; two by turns", "", fmt.Sprintf("%.1f; %.1f", rate[0], rate[1]))
	t.measured("gpu.swap_turns_ratio", "", nil, []float64{rate[0] / rate[1]})
	return nil
}

// stretch is from the first begin of some programs' steps to the last end, ns.
type stretch struct{ begin, end int64 }

func (s *stretch) take(f *follower) {
	for _, l := range f.swept() {
		if l.Step == nil {
			continue
		}
		if s.begin == 0 || l.Begin < s.begin {
			s.begin = l.Begin
		}
		s.end = max(s.end, l.End)
	}
}

func (s stretch) seconds() float64 { return float64(s.end-s.begin) / 1e9 }

// finishAtEnd is finish of a program that ends by itself.
func (t *trial) finishAtEnd(f *follower, who string) (int, error) {
	if _, err := t.await(f, `"command"`); err != nil {
		return 0, fmt.Errorf("%s: %w", who, err)
	}
	return t.finish(f, who)
}
