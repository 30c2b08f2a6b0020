package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/divvy-gpu/divvy/internal/agent/control"
	"github.com/divvy-gpu/divvy/internal/mps"
	"github.com/divvy-gpu/divvy/test/bench/measurement"
	"github.com/divvy-gpu/divvy/test/bench/simulated"
)

// longest bounds every wait.
const longest = 30 * time.Second

// deaths measures how long shares are not told that their daemon was killed, or that a program's fatal fault failed all,
// and how long new programs are not served.
func (b bench) deaths() (rows []measurement.Row, err error) {
	for _, c := range []struct {
		name, event string
		hit         func(*simulated.Machine) error
	}{{"daemon killed", "control daemon has ended", kill}, {"fatal fault", "a fatal fault", fault}} {
		var told, served []float64
		for range b.runs {
			t, s, err := b.death(c.event, c.hit)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", c.name, err)
			}
			told, served = append(told, t), append(served, s)
		}
		row := func(of string, goal float64, runs []float64) measurement.Row {
			r := measurement.Of("mps.death_s", "s", goal, measurement.Lower, command("mps.death_s"), runs...)
			r.Case = c.name + ", " + of
			return r
		}
		rows = append(rows, row("all shares told", 2, told), row("new programs served", 10, served))
	}
	return rows, nil
}

// death lets something happen to two shares, and returns the seconds until both are told and until another is served.
func (b bench) death(event string, hit func(*simulated.Machine) error) (told, served float64, err error) {
	m, err := simulated.Open(b.ctx, b.build, "a100-80g")
	if err != nil {
		return 0, 0, err
	}
	defer func() { err = errors.Join(err, m.Close()) }()
	tenants, _, err := beside(m, []int{30, 30})
	defer func() { err = errors.Join(err, b.end(m, tenants)) }()
	if err != nil {
		return 0, 0, err
	}
	begun := time.Now()
	if err := hit(m); err != nil {
		return 0, 0, err
	}
	if err := b.await("both shares are told", func() (bool, error) { return areTold(m, event, len(tenants)) }); err != nil {
		return 0, 0, err
	}
	told = time.Since(begun).Seconds()
	err = b.await("a new program is served", func() (bool, error) {
		out, err := exec.CommandContext(b.ctx, m.Divvy, "run", "--simgpu", "a100-80g", "--backend", "mps", "--memory", "2Gi", "--", m.Gpubench, "info").Output()
		return err == nil && strings.Contains(string(out), `"CUDA_SUCCESS"`), nil
	})
	return told, time.Since(begun).Seconds(), err
}

// await waits for a condition.
func (b bench) await(what string, condition func() (bool, error)) error {
	for begun := time.Now(); time.Since(begun) < longest; {
		done, err := condition()
		if done || err != nil {
			return err
		}
		select {
		case <-time.After(10 * time.Millisecond):
		case <-b.ctx.Done():
			return b.ctx.Err()
		}
	}
	return fmt.Errorf("%s: not so after %s", what, longest)
}

// areTold reports whether so many shares have an event with a text.
func areTold(m *simulated.Machine, text string, shares int) (bool, error) {
	out, err := exec.Command(m.Divvy, "ls", "-o", "json", "--simgpu", "a100-80g").Output()
	var document struct {
		Agents []control.Listing `json:"agents"`
	}
	if err == nil {
		err = json.Unmarshal(out, &document)
	}
	if err != nil {
		return false, fmt.Errorf("list shares: %w", err)
	}
	told := map[string]bool{}
	for _, l := range document.Agents {
		for _, e := range l.Events {
			if e.Kind == control.EventFault && strings.Contains(e.Text, text) {
				told[e.User+"/"+e.Tenant] = true
			}
		}
	}
	return len(told) >= shares, nil
}

// kill kills the control daemon.
func kill(m *simulated.Machine) error {
	d, err := daemon(m)
	if err != nil {
		return err
	}
	id, err := d.Find()
	if err != nil {
		return err
	}
	return id.Signal(syscall.SIGKILL)
}

// fault runs a program that makes a fatal fault in a share of its own.
func fault(m *simulated.Machine) error {
	out, err := exec.Command(m.Divvy, "run", "--simgpu", "a100-80g", "--backend", "mps", "--memory", "2Gi", "--", m.Gpubench, "fault").Output()
	if !strings.Contains(string(out), "CUDA_ERROR_ILLEGAL_ADDRESS") {
		return fmt.Errorf("make a fatal fault: %w: %q", err, out)
	}
	return nil
}

// end ends programs, and returns when the control daemon has ended, which would outlive the machine.
func (b bench) end(m *simulated.Machine, tenants []*simulated.Tenant) error {
	for _, t := range tenants {
		t.End()
	}
	return b.await("the control daemon ends", func() (bool, error) { return len(mps.Left(filepath.Join(m.Instance, "mps"))) == 0, nil })
}
