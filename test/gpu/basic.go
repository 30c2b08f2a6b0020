package main

import (
	"encoding/json"
	"fmt"
	"time"
)

// allocated is what gpubench alloc and hold say.
type allocated struct {
	Result    string `json:"result"`
	Code      int    `json:"code"`
	PID       int    `json:"pid"`
	Allocated uint64 `json:"allocated_bytes"`
	Free      uint64 `json:"free_bytes"`
	Total     uint64 `json:"total_bytes"`
}

const outOfMemory = 2 // CUDA_ERROR_OUT_OF_MEMORY

func basicCases() []testCase {
	inShare := needs{share: true}
	return []testCase{
		{name: "doctor", asks: "Does `divvy doctor` find what Divvy needs of this machine?",
			expected: "nothing is missing", means: "Divvy does not run here, or says so although it does", limit: 30 * time.Second, run: doctor},
		{name: "limit", asks: "Do allocations of 64 MiB end at the limit with CUDA_ERROR_OUT_OF_MEMORY?", needs: inShare,
			expected: "refused below the limit, which the program sees as the GPU's memory",
			means:    "a memory limit does not hold on this driver: the most serious answer there is", limit: time.Minute, run: limit},
		{name: "kinds", asks: "Is every kind of allocation limited?", needs: inShare,
			expected: "linear, async, managed, pitch, vmm and array memory are refused below the limit",
			means:    "one way to get memory is not charged on this driver", limit: 90 * time.Second, run: kinds},
		{name: "copies", asks: "Do copies in a share bring the same bytes back?", needs: inShare,
			expected: "equal", means: "a copy of a program in a share would damage its data", limit: 30 * time.Second, run: copies},
		{name: "graphs", asks: "Do kernels and a CUDA graph run in a share?", needs: inShare,
			expected: "20 kernels of 1 ms take 20 ms, launched one by one and as a graph",
			means:    "launches are lost, or work is measured wrongly", limit: 30 * time.Second, run: graphs},
		{name: "killed", asks: "Is a killed program's memory back at once?", needs: inShare,
			expected: "the driver and the share have it back within 10 s", means: "the share keeps what nobody holds", limit: time.Minute, run: killed},
		{name: "cost", asks: "What does a share add to an allocation and to a launch?", needs: inShare,
			expected: "at most 5 µs each: more would show in programs of short kernels",
			means:    "a hook does more on this driver than it should", limit: 2 * time.Minute, run: cost},
		{name: "aliases", asks: "Which names of driver functions share a pointer?",
			expected: "groups are listed; there is no wrong answer", means: "", limit: 30 * time.Second, run: aliases},
	}
}

func doctor(t *trial) error {
	o, err := t.call(nil, t.divvy(), "doctor", "-o", "json")
	if err != nil {
		return err
	}
	var found struct {
		Checks []struct{ Name, Status, Found string }
	}
	if err := json.Unmarshal([]byte(o.out), &found); err != nil {
		return fmt.Errorf("read what doctor says: %w (%s)", err, o.say())
	}
	missing := 0
	for _, c := range found.Checks {
		t.facts = append(t.facts, fact{What: c.Name + ", " + c.Status, Seen: c.Found})
		if c.Status == "fail" {
			missing++
		}
	}
	if o.status != 0 && t.simgpu == "" {
		return differ("%d checks failed", missing)
	}
	return nil
}

func limit(t *trial) error {
	var a allocated
	size := t.size()
	if err := t.askAllocated(&a, size, "alloc", "--bytes", "64Mi", "--count", "1000"); err != nil {
		return err
	}
	overhead := size - a.Allocated - min(a.Free, size-a.Allocated)
	t.compare("limit and allocated", "", bytesText(size)+", "+bytesText(a.Allocated))
	t.measured("gpu.context_overhead_mib", "MiB", nil, []float64{float64(overhead) / mib})
	switch {
	case a.Code != outOfMemory:
		return differ("the last allocation ended with %s", a.Result)
	case a.Allocated > size:
		return differ("%s were allocated in a share of %s", bytesText(a.Allocated), bytesText(size))
	case a.Total != size:
		return differ("the program sees %s in a share of %s", bytesText(a.Total), bytesText(size))
	case a.Free >= 66*mib:
		return differ("refused although %s were free", bytesText(a.Free))
	}
	return nil
}

// askAllocated runs gpubench, whose exit status is 1 when a request was refused, in a share.
func (t *trial) askAllocated(a *allocated, size uint64, words ...string) error {
	o, err := t.call(t.share(flags{memory: size}), append([]string{t.gpubench()}, words...)...)
	if err != nil {
		return err
	}
	return o.last(a)
}

func kinds(t *trial) error {
	size := t.size() / 2
	for _, kind := range []string{"linear", "async", "managed", "pitch", "vmm", "array"} {
		var a allocated
		if err := t.askAllocated(&a, size, "alloc", "--kind", kind, "--bytes", "64Mi", "--count", "1000"); err != nil {
			return fmt.Errorf("%s: %w", kind, err)
		}
		t.compare(kind, "", bytesText(a.Allocated)+", then "+a.Result)
		if a.Code != outOfMemory || a.Allocated > size {
			return differ("%s: %s in a share of %s, then %s", kind, bytesText(a.Allocated), bytesText(size), a.Result)
		}
	}
	return nil
}

func copies(t *trial) error {
	var a struct{ Equal bool }
	if err := t.ask(&a, t.share(flags{memory: t.size() / 2}), t.gpubench(), "copy", "--bytes", "128Mi"); err != nil {
		return err
	}
	if !a.Equal {
		return differ("the bytes differ")
	}
	return nil
}

func graphs(t *trial) error {
	for _, command := range []string{"spin", "graph"} {
		var native, share struct {
			Result string
			MS     float64 `json:"event_ms"`
		}
		words := []string{t.gpubench(), command, "--count", "20", "--ns", "1000000"}
		if err := t.ask(&native, t.natively(), words...); err != nil {
			return err
		}
		if err := t.ask(&share, t.share(flags{memory: t.size() / 2}), words...); err != nil {
			return err
		}
		t.compare(command, fmt.Sprintf("%.2f ms", native.MS), fmt.Sprintf("%.2f ms", share.MS))
		if native.MS < 19 || share.MS < 19 {
			return differ("%s: 20 kernels of 1 ms took %.2f ms natively and %.2f ms in a share", command, native.MS, share.MS)
		}
	}
	return nil
}

// cost alternates native runs and shares. What a share adds to both is told apart by whether 50,000 others live.
func cost(t *trial) error {
	rounds := 2
	if t.thorough {
		rounds = 5
	}
	var most float64
	for _, live := range []string{"1", "20000"} {
		var pairs, launches []float64
		for range rounds {
			var native, share struct {
				Pair   float64 `json:"pair_ns"`
				Launch float64 `json:"launch_ns"`
			}
			words := []string{t.gpubench(), "cost", "--count", "5000", "--bytes", "4096", "--live", live}
			if err := t.ask(&native, t.natively(), words...); err != nil {
				return err
			}
			if err := t.ask(&share, t.share(flags{memory: t.size()}), words...); err != nil {
				return err
			}
			t.compare("an allocation and its release; a launch; "+live+" live",
				fmt.Sprintf("%.0f ns; %.0f ns", native.Pair, native.Launch), fmt.Sprintf("%.0f ns; %.0f ns", share.Pair, share.Launch))
			pairs, launches = append(pairs, share.Pair-native.Pair), append(launches, share.Launch-native.Launch)
		}
		most = max(most, t.measured("gpu.alloc_added_ns", "ns", nil, pairs), t.measured("gpu.launch_added_ns", "ns", nil, launches))
		for i := len(t.rows) - 2; i < len(t.rows); i++ {
			t.rows[i].Case = live + " live"
		}
	}
	if most > 5000 {
		return differ("a share adds %.0f ns", most)
	}
	return nil
}

func aliases(t *trial) error {
	var a struct {
		Named, Present, Unlisted int
		Groups                   [][]string
	}
	if err := t.ask(&a, t.natively(), t.gpuprobe(), "aliases"); err != nil {
		return err
	}
	t.note("%d of %d known names are there; %d pointers have several names, %d have none", a.Present, a.Named, len(a.Groups), a.Unlisted)
	for _, group := range a.Groups {
		t.note("one pointer: %v", group)
	}
	return nil
}
