package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"
)

func memoryCases() []testCase {
	n := needs{share: true, together: true}
	return []testCase{
		{name: "account", asks: "Is a share charged what the driver says its process has?", needs: n,
			expected: "within 64 MiB, by the driver's figure of the process, or by the change of the whole GPU where the driver hides processes",
			means:    "a share's overhead is measured wrongly on this driver: it gets more or less than its limit", limit: time.Minute, run: account},
		{name: "late_lazy", asks: "Is memory charged that appears when code is loaded at its first launch, and local memory that grows?", needs: n,
			expected: "the share and the driver agree within 4 MiB more than in the case account",
			means:    "lazy loading lets a share pass its limit by its code until somebody measures again", limit: 2 * time.Minute, run: late("LAZY")},
		{name: "late_eager", asks: "The same with eager loading: is memory charged that appears when a module is loaded?", needs: n,
			expected: "the share and the driver agree within 4 MiB more than in the case account",
			means:    "growth that no call announces is missed", limit: 2 * time.Minute, run: late("EAGER")},
	}
}

// follower reads a program's lines while it runs.
type follower struct {
	*program
	mutex sync.Mutex
	lines []string
	rest  *io.PipeReader
	done  chan struct{}
}

// follow starts a command and reads what it prints.
func (t *trial) follow(at place, command ...string) (*follower, error) {
	reader, writer := io.Pipe()
	p, err := start(append(append([]string{}, at...), command...), t.environment(), nil, writer)
	if err != nil {
		return nil, err
	}
	f := &follower{program: p, rest: reader, done: make(chan struct{})}
	go func() {
		<-p.ended
		_ = writer.Close()
	}()
	go func() {
		defer close(f.done)
		for lines := bufio.NewScanner(reader); lines.Scan(); {
			f.mutex.Lock()
			f.lines = append(f.lines, lines.Text())
			f.mutex.Unlock()
		}
	}()
	return f, nil
}

// end ends a program that is not needed any more.
func (t *trial) end(p *program) {
	t.stuck = t.stuck || p.kill() != nil
}

// said are the lines so far.
func (f *follower) said() []string {
	f.mutex.Lock()
	defer f.mutex.Unlock()
	return f.lines
}

// await waits for a line that has the text.
func (t *trial) await(f *follower, text string) (string, error) {
	var line string
	ok, err := t.until(time.Hour, func() (bool, error) {
		for _, l := range f.said() {
			if strings.Contains(l, text) {
				line = l
				return true, nil
			}
		}
		select {
		case <-f.done:
			return false, fmt.Errorf("wait for a program: it ended: %s", f.program.output(strings.Join(f.said(), "\n")).say())
		default:
			return false, nil
		}
	})
	if err == nil && !ok {
		err = fmt.Errorf("wait for a program: it said nothing")
	}
	return line, err
}

// shareNow is what `divvy ls` says of a share.
type shareNow struct {
	Used     uint64 `json:"used"`
	Observed uint64 `json:"observed"`
	Overhead uint64 `json:"overhead"`
	Peak     uint64 `json:"peak"`
	Time     *struct {
		Limited bool
		Charged uint64 `json:"chargedNanoseconds"`
	}
}

// tenantNow is one of this test's shares as `divvy ls` lists it.
type tenantNow struct {
	Name   string
	Layer  string // how our libraries came in front of the driver's
	Shares []shareNow
}

// shares lists those that this test made and that have not ended.
func (t *trial) shares() (found []tenantNow, err error) {
	words := []string{t.divvy(), "ls", "-o", "json"}
	if t.simgpu != "" {
		words = append(words, "--simgpu", simulated)
	}
	o, err := t.call(nil, words...)
	if err != nil {
		return nil, err
	}
	var document struct {
		Agents []struct{ Tenants []tenantNow }
	}
	if err := json.Unmarshal([]byte(o.out), &document); err != nil {
		return nil, fmt.Errorf("list shares: %w (%s)", err, o.say())
	}
	for _, agent := range document.Agents {
		for _, tenant := range agent.Tenants {
			if strings.HasPrefix(tenant.Name, shareNames) {
				found = append(found, tenant)
			}
		}
	}
	return found, nil
}

// listed finds a share by its name.
func (t *trial) listed(name string) (now shareNow, layer string, err error) {
	shares, err := t.shares()
	if err != nil {
		return now, layer, err
	}
	for _, s := range shares {
		if s.Name == name && len(s.Shares) == 1 {
			return s.Shares[0], s.Layer, nil
		}
	}
	return now, layer, fmt.Errorf("list shares: %s is not there", name)
}

// truth is the driver's figure of the processes that came since before, and where it is from. Where the driver hides
// them it is the change of the whole GPU, which is right only if nobody else came or went.
func truth(before, after gpu) (bytes uint64, source string) {
	known := map[int]bool{}
	for _, p := range before.Processes {
		known[p.PID] = true
	}
	for _, p := range after.Processes {
		if !known[p.PID] && p.Bytes > 0 {
			bytes += uint64(p.Bytes)
		}
	}
	if bytes > 0 {
		return bytes, "the driver's figure of the process"
	}
	return after.Used - min(before.Used, after.Used), "the change of the whole GPU, because the driver hides processes here"
}

// agree compares a share's account with the driver, again for some seconds: the agent measures now and then. So many
// MiB may be between them.
func (t *trial) agree(id, name string, before gpu, tolerance float64) error {
	var now shareNow
	var real uint64
	var source, layer string
	off := func() float64 { return (float64(now.Used) - float64(real)) / mib }
	ok, err := t.until(10*time.Second, func() (bool, error) {
		after, err := t.now()
		if err != nil {
			return false, err
		}
		real, source = truth(before, after)
		now, layer, err = t.listed(name)
		return max(off(), -off()) <= tolerance, err
	})
	if err != nil {
		return err
	}
	t.compare("memory by "+source+"; by the share's account, with its overhead", bytesText(real), fmt.Sprintf("%s, %s", bytesText(now.Used), bytesText(now.Overhead)))
	t.note("layer of the share: %s; the agent's figure from the driver: %s", layer, bytesText(now.Observed))
	t.measured(id, "MiB", goal(2), []float64{max(off(), -off())})
	if !ok {
		return differ("the share's account is %+.0f MiB from %s", off(), source)
	}
	return nil
}

func account(t *trial) error {
	before, err := t.now()
	if err != nil {
		return err
	}
	f, err := t.follow(t.share(flags{memory: t.size(), name: shareNames + "account"}), t.gpubench(), "hold", "--bytes", fmt.Sprintf("%dMi", t.size()/2/mib))
	if err != nil {
		return err
	}
	defer t.end(f.program)
	if _, err := t.await(f, `"code":0`); err != nil {
		return err
	}
	err = t.agree("gpu.account_error_mib", shareNames+"account", before, 64)
	if len(t.rows) > 0 {
		t.off = t.rows[0].Value
	}
	return err
}

func killed(t *trial) error {
	before, err := t.now()
	if err != nil {
		return err
	}
	f, err := t.follow(t.share(flags{memory: t.size()}), t.gpubench(), "hold", "--bytes", fmt.Sprintf("%dMi", t.size()/2/mib))
	if err != nil {
		return err
	}
	if _, err := t.await(f, `"code":0`); err != nil {
		return err
	}
	if err := f.kill(); err != nil {
		return err
	}
	var after gpu
	ok, err := t.until(10*time.Second, func() (done bool, err error) {
		after, err = t.now()
		return after.Used <= before.Used+64*mib, err
	})
	if err == nil && !ok {
		err = differ("%s more are in use than before", bytesText(after.Used-before.Used))
	}
	return err
}

// step is a line of gpuprobe late.
type step struct {
	Step   string
	Result string
	Free   uint64
	MS     float64
}

// late runs gpuprobe late natively and in a share, with eager or lazy loading.
func late(mode string) func(t *trial) error {
	return func(t *trial) error {
		t.vars = []string{"CUDA_MODULE_LOADING=" + mode}
		o, err := t.call(t.natively(), t.gpuprobe(), "late")
		if err != nil {
			return err
		}
		if o.status != 0 {
			return fmt.Errorf("load code natively: %s", o.say())
		}
		native := steps(strings.Split(o.out, "\n"))
		before, err := t.now()
		if err != nil {
			return err
		}
		name := shareNames + strings.ToLower(mode)
		f, err := t.follow(t.share(flags{memory: t.size(), name: name}), t.gpuprobe(), "late")
		if err != nil {
			return err
		}
		defer t.end(f.program)
		last, err := t.await(f, `"command"`)
		if err != nil {
			return err
		}
		share := steps(f.said())
		for i := 1; i < len(native) && i < len(share); i++ {
			t.compare("taken by "+native[i].Step, growth(native, i), growth(share, i))
		}
		t.note("in the share: %s", last)
		return t.agree("gpu.late_error_mib", name, before, t.off+4)
	}
}

func steps(lines []string) (list []step) {
	for _, line := range lines {
		var s step
		if json.Unmarshal([]byte(line), &s) == nil && s.Step != "" {
			list = append(list, s)
		}
	}
	return list
}

// growth is what a step took of the free memory.
func growth(list []step, i int) string {
	return fmt.Sprintf("%+.1f MiB in %.0f ms", (float64(list[i-1].Free)-float64(list[i].Free))/mib, list[i].MS)
}
