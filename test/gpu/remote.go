package main

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"
)

// With backend remote a worker has the driver in the program's place: what it answers there is compared with what
// the program gets natively and in a share of its own process.

func remoteCases() []testCase {
	return []testCase{{
		name: "remote", asks: "Does a program that is kept away from the driver get the same as one that has it (backend remote)?", needs: needs{share: true},
		expected: "copies come back equal; 20 kernels of 1 ms take 20 ms, launched one by one and as a graph; allocations end at the limit, which the program sees as the GPU's memory",
		means:    "the driver answers a worker otherwise than a program of its own, or a limit does not hold for one",
		limit:    3 * time.Minute, run: remote,
	}}
}

// tooOld is in the words with which `divvy run` refuses the share on a driver before CUDA 12.4.
const tooOld = "programs that are kept away from the driver need"

func remote(t *trial) error {
	away := flags{memory: t.size() / 2, backend: "remote"}
	o, err := t.call(t.share(away), t.gpubench(), "info")
	switch {
	case err != nil:
		return err
	case o.status != 0 && strings.Contains(o.err, tooOld):
		return skip("%s", firstLine(o.say()))
	case o.status != 0:
		return fmt.Errorf("make a share of backend remote: %s", o.say())
	}
	here := flags{memory: away.memory}
	for _, ask := range []func(*trial, flags, flags) error{remoteCopies, remoteKernels, remoteLimit, remoteSteps} {
		if err := ask(t, here, away); err != nil {
			return err
		}
	}
	return nil
}

// thrice asks a program natively, in a local share and in one of backend remote.
func thrice[T any](t *trial, here, away flags, words ...string) (answers [3]T, err error) {
	command := append([]string{t.gpubench()}, words...)
	for i, at := range []place{t.natively(), t.share(here), t.share(away)} {
		if err := t.ask(&answers[i], at, command...); err != nil {
			return answers, err
		}
	}
	return answers, nil
}

// compareThree records what was seen natively, in a local share and remote.
func (t *trial) compareThree(what string, seen [3]string) {
	t.facts = append(t.facts, fact{What: what, Native: seen[0], Share: seen[1], Seen: "remote: " + seen[2]})
}

func remoteCopies(t *trial, here, away flags) error {
	answers, err := thrice[struct{ Equal bool }](t, here, away, "copy", "--bytes", "128Mi")
	if err != nil {
		return err
	}
	for i, where := range places {
		if !answers[i].Equal {
			return differ("%s the bytes of a copy differ", where)
		}
	}
	return nil
}

// places are what thrice asks, as people say it.
var places = [3]string{"natively", "in a local share", "with backend remote"}

func remoteKernels(t *trial, here, away flags) error {
	for _, command := range []string{"spin", "graph"} {
		answers, err := thrice[struct {
			MS float64 `json:"event_ms"`
		}](t, here, away, command, "--count", "20", "--ns", "1000000")
		if err != nil {
			return err
		}
		var seen [3]string
		for i := range seen {
			seen[i] = fmt.Sprintf("%.2f ms", answers[i].MS)
		}
		t.compareThree(command, seen)
		for i, where := range places {
			if answers[i].MS < 19 {
				return differ("%s: 20 kernels of 1 ms took %.2f ms %s", command, answers[i].MS, where)
			}
		}
	}
	return nil
}

// remoteLimit has both kinds of share allocate until they are refused.
func remoteLimit(t *trial, here, away flags) error {
	for _, f := range []flags{here, away} {
		var a allocated
		o, err := t.call(t.share(f), t.gpubench(), "alloc", "--bytes", "64Mi", "--count", "1000")
		if err == nil {
			err = o.last(&a)
		}
		if err != nil {
			return err
		}
		where := places[1]
		if f.backend != "" {
			where = places[2]
		}
		t.note("%s %s were allocated of %s, then %s", where, bytesText(a.Allocated), bytesText(f.memory), a.Result)
		if a.Code != outOfMemory || a.Allocated > f.memory || a.Total != f.memory {
			return differ("%s %s were allocated in a share of %s that shows %s, then %s", where, bytesText(a.Allocated), bytesText(f.memory), bytesText(a.Total), a.Result)
		}
	}
	return nil
}

// remoteSteps measures what a step of many launches takes through the worker, as a part of what it takes in a local share.
func remoteSteps(t *trial, here, away flags) error {
	rounds := 2
	if t.thorough {
		rounds = 9
	}
	var ratios []float64
	for range rounds {
		var took [2]float64
		for i, f := range []flags{here, away} {
			o, err := t.call(t.share(f), t.gpubench(), "step", "--ns", "60000", "--count", "20")
			if err != nil {
				return err
			}
			if took[i] = medianStep(o.out); took[i] == 0 {
				return fmt.Errorf("run steps: %s", o.say())
			}
		}
		ratios = append(ratios, took[1]/took[0])
	}
	t.measured("gpu.remote_step_ratio", "", nil, ratios)
	return nil
}

// medianStep is the middle of the times that gpubench step prints, in ns; 0 if there are none.
func medianStep(out string) float64 {
	var times []float64
	for line := range strings.Lines(out) {
		var s struct {
			Wall float64 `json:"wall_ns"`
		}
		if json.Unmarshal([]byte(line), &s) == nil && s.Wall > 0 {
			times = append(times, s.Wall)
		}
	}
	if len(times) == 0 {
		return 0
	}
	slices.Sort(times)
	return times[len(times)/2]
}
