package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// The cases here share the GPU by what the driver offers: time slices and the multi-process service. Both are tried
// with an agent of this user's own, which changes no mode of a GPU.

func formCases() []testCase {
	both := needs{share: true, quiet: true, together: true}
	return []testCase{
		{name: "backend_timeslice", asks: "Do shares of backend timeslice have a memory limit alone?", needs: both,
			expected: "allocations end at the limit, no launch is counted or held back, the slower of two shares does at least a quarter of the faster's work, and modes stay",
			means:    "a memory limit does not hold, our library divides time where the driver should, or the driver's time slices starve a share",
			limit:    2 * time.Minute, run: byTimeSlices},
		{name: "backend_mps", asks: "Does a share of backend mps with 30 percent of the cores have its ceiling and its limit?", needs: both,
			expected: "30 % of the multiprocessors, also if the environment says 100; allocations end at the limit; CUDA does not start without the control daemon, which ends with the shares; modes stay",
			means:    "the driver serves a share without its limits, or Divvy leaves a daemon or a mode behind",
			limit:    2 * time.Minute, run: byMPS},
	}
}

// modeNow is a mode of a GPU as `divvy gpu ls` lists it. Made is what Divvy made it, empty where Divvy left it alone.
type modeNow struct{ Mode, Value, Made string }

// agentNow is the agent that serves the GPU.
type agentNow struct {
	own   bool // it was started by this user's shares and ends with them
	form  string
	modes []modeNow
}

// agent finds who serves the GPU; nil if nobody does.
func (t *trial) agent() (*agentNow, error) {
	words := []string{t.divvy(), "gpu", "ls", "-o", "json"}
	if t.simgpu != "" {
		words = append(words, "--simgpu", simulated)
	}
	o, err := t.call(nil, words...)
	if err != nil {
		return nil, err
	}
	if strings.Contains(o.err, "no agent runs") {
		return nil, nil
	}
	var document struct {
		Machines []struct {
			Info struct{ Ephemeral bool }
			GPUs []struct {
				UUID, Form string
				Modes      []modeNow
			}
		}
	}
	if err := json.Unmarshal([]byte(o.out), &document); err != nil {
		return nil, fmt.Errorf("list GPUs: %w (%s)", err, o.say())
	}
	for _, m := range document.Machines {
		for _, g := range m.GPUs {
			if g.UUID == t.gpu.UUID {
				return &agentNow{m.Info.Ephemeral, g.Form, g.Modes}, nil
			}
		}
	}
	return nil, nil
}

// mine skips the case where somebody else's agent serves the GPU: it may change modes.
func (t *trial) mine() error {
	agent, err := t.agent()
	if err == nil && agent != nil && !agent.own {
		err = skip("an agent of this machine serves the GPU, and may change its modes")
	}
	return err
}

// entered says what is wrong with the GPU while it has shares of a backend: another form, or a mode that Divvy changed.
func (t *trial) entered(form string) error {
	agent, err := t.agent()
	switch {
	case err != nil:
		return err
	case agent == nil:
		return errors.New("list GPUs: none is served")
	case agent.form != form:
		return differ("the GPU's form is %q", agent.form)
	}
	for _, m := range agent.modes {
		t.note("%s beside shares of backend %s: %s", m.Mode, form, m.Value)
		if m.Made != "" {
			return differ("Divvy changed %s to %s", m.Mode, m.Made)
		}
	}
	return nil
}

// asFound says whether the compute mode is the one of the beginning.
func (t *trial) asFound() error {
	now, err := t.now()
	if err == nil && now.Mode != t.gpu.Mode {
		err = differ("the compute mode is %d and was %d", now.Mode, t.gpu.Mode)
	}
	return err
}

// holds allocates in a new share until it is refused, which must be at the limit.
func (t *trial) holds(f flags) error {
	var a allocated
	o, err := t.call(t.share(f), t.gpubench(), "alloc", "--bytes", "64Mi", "--count", "1000")
	if err != nil {
		return err
	}
	if err := o.last(&a); err != nil {
		return err
	}
	t.compare("limit and allocated", "", bytesText(f.memory)+", "+bytesText(a.Allocated))
	if a.Code != outOfMemory || a.Allocated > f.memory || a.Allocated == 0 {
		return differ("%s were allocated in a share of %s, then %s", bytesText(a.Allocated), bytesText(f.memory), a.Result)
	}
	return nil
}

func byTimeSlices(t *trial) error {
	if err := t.mine(); err != nil {
		return err
	}
	command, err := t.ready()
	if err != nil {
		return err
	}
	f := flags{memory: t.size() / 2, backend: "timeslice"}
	if err := t.holds(f); err != nil {
		return err
	}
	if err := t.ungated(f, command); err != nil {
		return err
	}
	got, err := t.rates(tenant{at: t.share(f), command: command}, tenant{at: t.share(f), command: command})
	if err != nil {
		return err
	}
	t.note("two shares finish %.0f and %.0f launches of 1 ms in a second", got[0], got[1])
	if slices.Min(got) < slices.Max(got)/4 || slices.Min(got) <= 0 {
		return differ("two shares finish %.0f and %.0f launches in a second", got[0], got[1])
	}
	return t.asFound()
}

// ungated looks at one of two shares that work: nothing of its time may be limited or counted.
func (t *trial) ungated(f flags, command []string) error {
	for _, f.name = range []string{shareNames + "neighbour", shareNames + "ungated"} {
		load, err := t.follow(t.share(f), command...)
		if err != nil {
			return err
		}
		defer t.end(load.program)
		if _, err := t.await(load, "at_ns"); err != nil {
			return err
		}
	}
	now, _, err := t.listed(f.name)
	switch {
	case err != nil:
		return err
	case now.Time == nil:
		return errors.New("list the share: nothing is said of its time")
	case now.Time.Limited || now.Time.Charged != 0:
		return differ("its launches are counted: limited %t, charged %d", now.Time.Limited, now.Time.Charged)
	}
	return t.entered(f.backend)
}

// controlDaemon is one of the multi-process service. Pipe is its directory, empty where it is somebody else's.
type controlDaemon struct {
	pid  int
	pipe string
}

// controlDaemons lists those that run. With a simulated machine only that machine's count. The same program gives a daemon
// commands; to be a daemon it is told by -d or -f.
func (t *trial) controlDaemons() (found []controlDaemon) {
	files, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, file := range files {
		text, _ := os.ReadFile(file)
		program, args, _ := strings.Cut(string(text), "\x00")
		if options := strings.Split(args, "\x00"); !slices.Contains(options, "-d") && !slices.Contains(options, "-f") {
			continue
		}
		if filepath.Base(program) != "nvidia-cuda-mps-control" || t.simgpu != "" && !strings.HasPrefix(program, t.scratch) {
			continue
		}
		d := controlDaemon{}
		d.pid, _ = strconv.Atoi(filepath.Base(filepath.Dir(file)))
		vars, _ := os.ReadFile(filepath.Join(filepath.Dir(file), "environ"))
		for _, entry := range strings.Split(string(vars), "\x00") {
			if pipe, is := strings.CutPrefix(entry, "CUDA_MPS_PIPE_DIRECTORY="); is {
				d.pipe = pipe
			}
		}
		found = append(found, d)
	}
	return found
}

const (
	ceiling  = 30  // percent of the multiprocessors
	noDaemon = 805 // CUDA_ERROR_MPS_CONNECTION_FAILED
)

func byMPS(t *trial) error {
	if err := t.mine(); err != nil {
		return err
	}
	if major, _, _ := strings.Cut(t.gpu.Capability, "."); len(major) == 1 && major < "7" {
		return skip("the GPU is older than MPS with limits: its compute capability is %s", t.gpu.Capability)
	}
	if len(t.controlDaemons()) > 0 {
		return skip("a control daemon of MPS runs already")
	}
	err := t.underOurs(flags{memory: t.size() / 2, cores: ceiling, backend: "mps"})
	gone, late := t.until(15*time.Second, func() (bool, error) { return len(t.controlDaemons()) == 0, nil })
	switch {
	case err != nil:
		return err
	case late != nil:
		return late
	case !gone:
		return differ("the control daemon goes on after the last share")
	}
	return t.asFound()
}

// underOurs asks one client after another while a share keeps the daemon.
func (t *trial) underOurs(f flags) error {
	// It starts CUDA when its input ends.
	last, err := t.follow(t.share(f), "/bin/sh", "-c", `echo waits; read -r line; exec "$0" sms`, t.gpuprobe())
	if err != nil {
		return err
	}
	defer t.end(last.program)
	if _, err := t.await(last, "waits"); err != nil {
		if strings.Contains(err.Error(), "MPS is not installed") {
			return skip("nvidia-cuda-mps-control is not here")
		}
		return err
	}
	if err := t.entered(f.backend); err != nil {
		return err
	}
	if err := t.underCeiling(f); err != nil {
		return err
	}
	if err := t.holds(f); err != nil {
		return err
	}
	return t.without(last)
}

// multiprocessors is gpuprobe's answer.
type multiprocessors struct {
	Result string
	Code   int
	Count  int `json:"multiprocessors"`
}

func (t *trial) underCeiling(f flags) error {
	var whole, part multiprocessors
	if err := t.ask(&whole, t.natively(), t.gpuprobe(), "sms"); err != nil {
		return err
	}
	for _, vars := range [][]string{nil, {"CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=100", "CUDA_MPS_PIPE_DIRECTORY=/nowhere"}} {
		t.vars = vars
		err := t.ask(&part, t.share(f), t.gpuprobe(), "sms")
		t.vars = nil
		if err != nil {
			return err
		}
		t.compare(strings.TrimSpace("multiprocessors "+strings.Join(vars, " ")), fmt.Sprint(whole.Count), fmt.Sprint(part.Count))
		// The driver rounds to what the hardware can do.
		off := 100*part.Count - ceiling*whole.Count
		if part.Count <= 0 || max(off, -off) > max(200, 5*whole.Count) {
			return differ("%d of %d multiprocessors, where %d %% are the ceiling", part.Count, whole.Count, ceiling)
		}
	}
	return nil
}

// without lets a waiting client start CUDA while the control daemon cannot be found.
func (t *trial) without(client *follower) error {
	daemons := t.controlDaemons()
	if len(daemons) != 1 || daemons[0].pipe == "" {
		return fmt.Errorf("find the control daemon: %d run", len(daemons))
	}
	control := filepath.Join(daemons[0].pipe, "control")
	away := control + ".away"
	if err := os.Rename(control, away); err != nil {
		return fmt.Errorf("hide the control daemon: %w", err)
	}
	err := client.wait(t.ctx)
	if _, gone := os.Lstat(control); gone != nil {
		_ = os.Rename(away, control)
	} else {
		_ = os.Remove(away) // the agent started another daemon
	}
	if err != nil {
		return err
	}
	<-client.done
	var answer multiprocessors
	if err := client.output(strings.Join(client.said(), "\n")).last(&answer); err != nil {
		return err
	}
	t.note("without the control daemon: %s", answer.Result)
	if answer.Code != noDaemon {
		return differ("without the control daemon CUDA answers %s", answer.Result)
	}
	return nil
}
