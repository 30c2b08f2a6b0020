package main

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"
)

func suspend(t *trial) error {
	if err := t.checkpoints(); err != nil {
		return err
	}
	end, err := t.allowing()
	if err != nil {
		return err
	}
	defer end()
	before, err := t.now()
	if err != nil {
		return err
	}
	const name = shareNames + "suspend"
	f, err := t.follow(t.share(flags{memory: 2 * gib, name: name}), t.gpubench(), "sweep", "--bytes", "1Gi", "--pieces", "16", "--ns", "10000000", "--count", "0", "--period", "10000")
	if err != nil {
		return err
	}
	defer t.end(f.program)
	asleep, err := t.doze(f, name)
	if err != nil {
		return err
	}
	next := lastStep(f) + 1
	after, err := t.now()
	if err != nil {
		return err
	}
	if after.Used > before.Used+64*mib {
		return differ("%s more are in use than before while it sleeps", bytesText(after.Used-before.Used))
	}
	if _, err := t.await(f, stepText(next)); err != nil { // its own call
		return fmt.Errorf("wake by a call: %w", err)
	}
	woken := steppedIn(f, next)
	if err := t.tell("suspend", name, "--hold"); err != nil {
		return err
	}
	begin := time.Now()
	if err := t.tell("resume", name); err != nil {
		return err
	}
	t.compare("1 GiB: asleep; woken by a call; woken by hand", "", fmt.Sprintf("%.2f s; %.2f s; %.2f s", asleep.Seconds(), woken.Seconds(), time.Since(begin).Seconds()))
	_, err = t.finish(f, "the tenant that slept twice")
	return err
}

// mostTries bounds how often a tenant is suspended that its program keeps awake.
const mostTries = 8

// doze suspends a tenant after one of its steps and returns how long that took. On a busy machine its next step may begin before it is
// off the GPU, and keeps it there: it is suspended after that one.
func (t *trial) doze(f *follower, name string) (time.Duration, error) {
	for try := 1; ; try++ {
		if _, err := t.await(f, stepText(lastStep(f)+1)); err != nil {
			return 0, err
		}
		begin := time.Now()
		err := t.tell("suspend", name)
		if err == nil {
			return time.Since(begin), nil
		}
		if try == mostTries || !strings.Contains(err.Error(), "calls the GPU") {
			return 0, err
		}
	}
}

// stepText is in the line of a step, and of no other.
func stepText(step int) string { return fmt.Sprintf(`"step":%d,`, step) }

// lastStep is the last step that a program has told of, -1 before the first.
func lastStep(f *follower) int {
	last := -1
	for _, s := range f.swept() {
		if s.Step != nil {
			last = max(last, *s.Step)
		}
	}
	return last
}

// tell runs `divvy suspend` or `resume`. A refusal is the reason to skip the case.
func (t *trial) tell(word, name string, flags ...string) error {
	words := append([]string{t.divvy(), word, name}, flags...)
	if t.simgpu != "" {
		words = append(words, "--simgpu", simulated)
	}
	o, err := t.call(nil, words...)
	switch {
	case err != nil:
		return err
	case o.status != 0 && word == "suspend" && strings.Contains(o.err, "swapMemory"):
		return skip("%s", firstLine(o.say()))
	case o.status != 0:
		return fmt.Errorf("divvy %s: %s", word, o.say())
	}
	return nil
}

// steppedIn is how long a step of a program took.
func steppedIn(f *follower, step int) time.Duration {
	for _, s := range f.swept() {
		if s.Step != nil && *s.Step == step {
			return time.Duration(s.End - s.Begin)
		}
	}
	return 0
}

// notSupported is CUDA's result where the driver, the processor or the GPU's mode has no checkpoints.
const notSupported = 801

// checkpoints asks natively who can take a process off its GPU, and which calls wait then.
func (t *trial) checkpoints() error {
	o, err := t.call(t.natively(), t.gpuprobe(), "checkpoint")
	if err != nil {
		return err
	}
	for line := range strings.Lines(o.out) {
		var s struct {
			By, Step, State, Call, Result string
			MS                            float64
			Returns                       bool
			Listed                        *int64
		}
		if json.Unmarshal([]byte(line), &s) != nil {
			continue
		}
		switch {
		case s.Step != "":
			t.facts = append(t.facts, fact{What: s.Step + " by its " + s.By, Native: fmt.Sprintf("%s in %.0f ms", s.Result, s.MS)})
		case s.Call != "" && s.By == "parent":
			t.facts = append(t.facts, fact{What: s.State + ": a thread's " + s.Call, Native: map[bool]string{true: "returns", false: "waits"}[s.Returns]})
		case s.Listed != nil && s.By == "parent":
			t.facts = append(t.facts, fact{What: s.State + ": NVML lists the process", Native: listedText(*s.Listed)})
		}
	}
	var a struct {
		Code     int
		Result   string
		Stranger bool
		Equal    bool
	}
	if err := o.last(&a); err != nil {
		return err
	}
	switch {
	case a.Code == notSupported:
		return skip("the driver has no checkpoints of processes")
	case a.Code != 0:
		return differ("natively a checkpoint by the process's parent ends with %s", a.Result)
	case !a.Equal:
		return differ("natively bytes changed while the process was off its GPU, or it did not come back")
	case !a.Stranger:
		t.note("a process that is no ancestor cannot take another one of the same user off its GPU: see the fact above for the answer")
	}
	return nil
}

func listedText(bytes int64) string {
	switch {
	case bytes == -2:
		return "not at all"
	case bytes < 0:
		return "without its memory"
	}
	return "with " + bytesText(uint64(bytes))
}
