package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"time"
)

func processCases() []testCase {
	return []testCase{
		{name: "processes", asks: "Does a program find itself in the driver's list of processes, also in a pid namespace?", needs: needs{share: true},
			expected: "natively and in a share it does, with its memory; in a pid namespace it does not with the closed kernel module, which lists the host's pids",
			means:    "where a program finds itself, its share can measure its overhead without the agent; where not even the host does, the agent cannot either",
			limit:    time.Minute, run: processes},
		{name: "nvml_cost", asks: "What does a question to NVML cost?", needs: needs{share: true},
			expected: "each below 1 ms at the median",
			means:    "what the agent asks every 0.4 s, and a share after loading code, would be felt; it has to ask less often",
			limit:    time.Minute, run: nvmlCost},
		{name: "nvidia_smi", asks: "Does nvidia-smi in a share show the share?", needs: needs{share: true},
			expected: "the share's limit as the GPU's memory, and one GPU", means: "nvidia-smi asks NVML in a way that Divvy does not answer",
			limit: time.Minute, run: nvidiaSMI},
	}
}

// listing is what gpuprobe processes says.
type listing struct {
	Result string
	Code   int
	Found  bool
	Listed int
	Self   bool
	Bytes  int64
}

func (l listing) String() string {
	switch {
	case !l.Found:
		return fmt.Sprintf("NVML does not find the GPU (%d)", l.Code)
	case l.Self && l.Bytes > 0:
		return fmt.Sprintf("finds itself, with its memory, among %d", l.Listed)
	case l.Self:
		return fmt.Sprintf("finds itself, without its memory, among %d", l.Listed)
	}
	return fmt.Sprintf("does not find itself among %d", l.Listed)
}

func processes(t *trial) error {
	share := t.share(flags{memory: t.size() / 2})
	var native, inside listing
	if err := t.ask(&native, t.natively(), t.gpuprobe(), "processes"); err != nil {
		return err
	}
	if err := t.ask(&inside, share, t.gpuprobe(), "processes"); err != nil {
		return err
	}
	t.compare("on the host", native.String(), inside.String())
	alone, err := t.apart(t.natively())
	if err != nil {
		t.note("in a pid namespace: not tried: %v", err)
	} else {
		t.compare("in a pid namespace", alone.String(), "")
	}
	switch {
	case !native.Self || native.Bytes <= 0:
		return differ("natively a program %s", native)
	case !inside.Self || inside.Bytes <= 0:
		return differ("in a share a program %s", inside)
	case err == nil && alone.Self && alone.Bytes > 0 && t.simgpu == "":
		return differ("in a pid namespace a program %s", alone)
	}
	return nil
}

// apart asks in user and pid namespaces of the program's own.
func (t *trial) apart(at place) (l listing, err error) {
	o, err := finish(t.ctx, slices.Concat(at, []string{t.gpuprobe(), "processes"}), t.environment(), isolated())
	if err != nil {
		return l, err
	}
	if err := o.last(&l); err != nil || o.status != 0 {
		return l, fmt.Errorf("ask in a pid namespace: %s", o.say())
	}
	return l, nil
}

func nvmlCost(t *trial) error {
	var native, share map[string]json.RawMessage
	if err := t.ask(&native, t.natively(), t.gpuprobe(), "cost"); err != nil {
		return err
	}
	if err := t.ask(&share, t.share(flags{memory: t.size() / 2}), t.gpuprobe(), "cost"); err != nil {
		return err
	}
	var slow []string
	for _, name := range slices.Sorted(maps.Keys(native)) {
		type times struct {
			Code    int
			Median  float64 `json:"median_us"`
			Slowest float64 `json:"slowest_us"`
		}
		var n, s times
		if json.Unmarshal(native[name], &n) != nil || json.Unmarshal(share[name], &s) != nil {
			continue // not a question
		}
		text := func(x times) string {
			return fmt.Sprintf("%.1f µs, slowest %.0f, code %d", x.Median, x.Slowest, x.Code)
		}
		t.compare(name, text(n), text(s))
		if n.Median > 1000 && name != "init_again" {
			slow = append(slow, name)
		}
	}
	t.compare("first init", string(native["init_ms"])+" ms", string(share["init_ms"])+" ms")
	if len(slow) > 0 {
		return differ("slower than 1 ms: %v", slow)
	}
	return nil
}

// findProgram looks for a program where it usually is, also beside $PATH.
func findProgram(name string, folders ...string) string {
	if path, err := exec.LookPath(name); err == nil {
		return path
	}
	for _, folder := range folders {
		file := folder + "/" + name
		if info, err := os.Stat(file); err == nil && info.Mode().IsRegular() && syscall.Access(file, 1) == nil {
			return file
		}
	}
	return ""
}

func nvidiaSMI(t *trial) error {
	program := findProgram("nvidia-smi", "/usr/bin", "/usr/lib/wsl/lib", "/run/current-system/sw/bin")
	if program == "" {
		return skip("nvidia-smi is not here")
	}
	words := []string{program, "--query-gpu=memory.total,count", "--format=csv,noheader,nounits"}
	native, err := t.call(t.natively(), words...)
	if err != nil {
		return err
	}
	if native.status != 0 {
		return skip("nvidia-smi does not work natively: %s", native.say())
	}
	share, err := t.call(t.share(flags{memory: t.size()}), words...)
	if err != nil {
		return err
	}
	if share.status != 0 {
		return differ("it ends in a share with %s", share.say())
	}
	t.compare("memory in MiB, GPUs", firstLine(native.out), firstLine(share.out))
	if want := fmt.Sprintf("%d, 1", t.size()/mib); strings.TrimSpace(share.out) != want {
		return differ("it shows %q, want %q", strings.TrimSpace(share.out), want)
	}
	return nil
}
