package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/divvy-gpu/divvy/internal/agent/control"
	"github.com/divvy-gpu/divvy/internal/page"
	"github.com/divvy-gpu/divvy/internal/rundir"
	"github.com/divvy-gpu/divvy/internal/tenantdir"
	"github.com/divvy-gpu/divvy/test/bench/measurement"
)

// hold starts gpubench hold and returns when it holds its memory.
func (b *bench) hold(argv []string) (*holder, error) {
	command := exec.Command(argv[0], argv[1:]...)
	if _, err := command.StdinPipe(); err != nil {
		return nil, fmt.Errorf("connect to gpubench: %w", err)
	}
	out, err := command.StdoutPipe()
	if err != nil {
		return nil, fmt.Errorf("connect to gpubench: %w", err)
	}
	command.Stderr = os.Stderr
	if err := command.Start(); err != nil {
		return nil, fmt.Errorf("start gpubench: %w", err)
	}
	h := &holder{command: command}
	line, err := bufio.NewReader(out).ReadString('\n')
	var r result
	if err == nil {
		err = json.Unmarshal([]byte(line), &r)
	}
	if err != nil || r.Result != "CUDA_SUCCESS" {
		h.end()
		return nil, fmt.Errorf("hold memory: %w: %q", err, line)
	}
	h.pid = r.PID
	return h, nil
}

// end kills the holder and collects it; it may be called more than once.
func (h *holder) end() {
	h.once.Do(func() {
		_ = h.command.Process.Kill()
		_ = h.command.Wait()
	})
}

// reclaim measures from SIGKILL to the moment at which the tenant's page shows the memory as free.
func reclaim(b *bench) ([]measurement.Row, error) {
	var runs []float64
	for range 25 {
		took, err := b.reclaimOnce()
		if err != nil {
			return nil, err
		}
		runs = append(runs, took.Seconds()*1e3)
	}
	row := measurement.Of("mem.reclaim_ms", "ms", 10, measurement.Lower, command, runs...)
	row.Case = "with the agent"
	refused, err := b.refusedWithoutAgent()
	if err != nil {
		return nil, err
	}
	without := measurement.Of("mem.reclaim_ms", "refusals", 0, measurement.Lower, command, refused...)
	without.Case = "without the agent, refusals before the memory is back"
	return []measurement.Row{row, without}, nil
}

// A shell is the share's first process, so that the share outlives the process that is killed. Descriptor 3 ends
// when the measurement does, and with it whatever still holds memory.
const (
	twoHolders = `"$0" hold --bytes 64Mi <&3 & "$0" hold --bytes 4Gi <&3 & wait`
	thenAgain  = `"$0" hold --bytes 6Gi <&3 & read -r _; "$0" alloc --bytes 6Gi`
)

// tenant is a share with a shell in it.
type tenant struct {
	command *exec.Cmd
	input   io.WriteCloser
	ending  *os.File
	lines   *bufio.Scanner
}

func (b *bench) startTenant(script string) (*tenant, error) {
	reading, writing, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("make a pipe: %w", err)
	}
	defer reading.Close()
	argv := []string{"run", "--simgpu", machine, "--memory", "8Gi", "--", "sh", "-c", script, b.gpubench}
	t := &tenant{command: exec.Command(b.divvy, argv...), ending: writing}
	t.command.ExtraFiles = []*os.File{reading}
	t.command.Stderr = os.Stderr
	out, err := t.command.StdoutPipe()
	if err == nil {
		t.input, err = t.command.StdinPipe()
	}
	if err == nil {
		err = t.command.Start()
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("start a share: %w", err), writing.Close())
	}
	t.lines = bufio.NewScanner(out)
	return t, nil
}

// end lets everything in the share end and waits for it.
func (t *tenant) end() {
	_ = t.input.Close()
	_ = t.ending.Close()
	_ = t.command.Wait()
}

// next reads what the next gpubench in the share printed.
func (t *tenant) next() (result, error) {
	var r result
	if !t.lines.Scan() {
		return r, fmt.Errorf("the share printed nothing more: %w", errors.Join(t.lines.Err(), io.ErrUnexpectedEOF))
	}
	if err := json.Unmarshal(t.lines.Bytes(), &r); err != nil {
		return r, fmt.Errorf("read what the share printed: %w: %q", err, t.lines.Text())
	}
	return r, nil
}

func (b *bench) reclaimOnce() (time.Duration, error) {
	t, err := b.startTenant(twoHolders)
	if err != nil {
		return 0, err
	}
	defer t.end()
	victim := 0
	for range 2 {
		r, err := t.next()
		if err != nil {
			return 0, err
		}
		if r.Allocated == 4*gib {
			victim = r.PID
		}
	}
	state, err := statePage()
	if err != nil {
		return 0, err
	}
	start := time.Now()
	if err := syscall.Kill(victim, syscall.SIGKILL); err != nil {
		return 0, fmt.Errorf("kill process %d: %w", victim, err)
	}
	for time.Since(start) < 10*time.Second {
		snapshot, err := page.ReadState(state, 1)
		if err != nil {
			return 0, err
		}
		if snapshot.Usage[0].Used < 4*gib {
			return time.Since(start), nil
		}
	}
	return 0, errors.New("the memory was not back after 10 s")
}

// statePage finds the page of the one tenant there is.
func statePage() (string, error) {
	pages, err := filepath.Glob(tenantdir.Of(rundir.Tenants(), "*").State())
	if err != nil || len(pages) != 1 {
		return "", fmt.Errorf("find the tenant's page: %d pages, %w", len(pages), err)
	}
	return pages[0], nil
}

// refusedWithoutAgent kills the agent, then a process that holds most of the share, and counts refusals of the
// next process's first request, which needs the dead one's memory.
func (b *bench) refusedWithoutAgent() ([]float64, error) {
	var runs []float64
	for range 5 {
		refused, err := b.refusedOnce()
		if err != nil {
			return nil, err
		}
		runs = append(runs, refused)
	}
	return runs, nil
}

func (b *bench) refusedOnce() (float64, error) {
	t, err := b.startTenant(thenAgain)
	if err != nil {
		return 0, err
	}
	defer t.end()
	first, err := t.next()
	if err != nil {
		return 0, err
	}
	agent, err := agentPID()
	if err != nil {
		return 0, err
	}
	for _, pid := range []int{agent, first.PID} {
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
			return 0, fmt.Errorf("kill process %d: %w", pid, err)
		}
	}
	if _, err := io.WriteString(t.input, "go\n"); err != nil {
		return 0, fmt.Errorf("let the share go on: %w", err)
	}
	second, err := t.next()
	if err != nil {
		return 0, err
	}
	if second.Result == "CUDA_SUCCESS" {
		return 0, nil
	}
	return 1, nil
}

func agentPID() (int, error) {
	client, err := control.Find(context.Background(), control.Endpoint{
		Rundir: rundir.Path(), Simgpu: filepath.Join(rundir.Path(), "simgpu", machine),
	})
	if err != nil {
		return 0, fmt.Errorf("find the agent: %w", err)
	}
	return client.Info().PID, client.Close()
}

// startTimes reads what concurrent `gpubench init` processes printed, ascending, in ms of processor time.
func startTimes(text string, count int) ([]float64, error) {
	var times []float64
	for line := range strings.Lines(text) {
		var r result
		if err := json.Unmarshal([]byte(line), &r); err != nil {
			return nil, fmt.Errorf("read what a start printed: %w: %q", err, line)
		}
		if r.Result != "CUDA_SUCCESS" {
			return nil, fmt.Errorf("a start answered %s", r.Result)
		}
		times = append(times, (r.OpenNs+r.InitNs)/1e6)
	}
	if len(times) != count {
		return nil, fmt.Errorf("%d of %d starts printed something", len(times), count)
	}
	slices.Sort(times)
	return times, nil
}
