package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/divvy-gpu/divvy/internal/agent/control"
	"github.com/divvy-gpu/divvy/internal/simgpu"
)

// instance is what the simulated machine is called.
const instance = "demo"

// machine is where the tenants run: a simulated one in a run directory of its
// own, or the real one with the agent that its user has.
type machine struct {
	prefix  string
	rundir  string // empty on the real machine
	tenants []*tenant
	agent   int // process id, to see it end
}

func open(ctx context.Context, prefix string, real bool) (*machine, error) {
	m := &machine{prefix: prefix}
	if real {
		return m, nil
	}
	var err error
	if m.rundir, err = os.MkdirTemp("/dev/shm", "divvy-demo-"); err != nil {
		return nil, err
	}
	if _, err := m.divvy(ctx, "simgpu", "start", "a100-80g", "--name", instance); err != nil {
		return nil, errors.Join(err, os.RemoveAll(m.rundir))
	}
	return m, nil
}

func (m *machine) program(name string) string {
	return filepath.Join(m.prefix, "bin", name)
}

// on selects the machine for commands that take --simgpu.
func (m *machine) on() []string {
	if m.rundir == "" {
		return nil
	}
	return []string{"--simgpu", instance}
}

func (m *machine) environment() []string {
	if m.rundir == "" {
		return os.Environ()
	}
	return append(os.Environ(), "DIVVY_RUNDIR="+m.rundir)
}

// divvy returns what a command prints.
func (m *machine) divvy(ctx context.Context, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, m.program("divvy"), args...)
	cmd.Env = m.environment()
	var said bytes.Buffer
	cmd.Stderr = &said
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("divvy %s: %w: %s", strings.Join(args, " "), err, strings.TrimSpace(said.String()))
	}
	return string(out), nil
}

// list is what the machine's agent says, nothing if none runs.
func (m *machine) list(ctx context.Context) (control.Listing, error) {
	var document struct {
		Agents []control.Listing `json:"agents"`
	}
	text, err := m.divvy(ctx, append([]string{"ls", "-o", "json"}, m.on()...)...)
	if err != nil {
		return control.Listing{}, err
	}
	if err := json.Unmarshal([]byte(text), &document); err != nil {
		return control.Listing{}, fmt.Errorf("read list: %w", err)
	}
	if len(document.Agents) == 0 {
		return control.Listing{}, nil
	}
	m.agent = document.Agents[0].Info.PID
	return document.Agents[0], nil
}

// report is the simulated driver's own record.
func (m *machine) report(ctx context.Context) (*simgpu.Report, error) {
	text, err := m.divvy(ctx, "simgpu", "report", instance, "-o", "json")
	if err != nil {
		return nil, err
	}
	return simgpu.ParseReport([]byte(text))
}

// until polls a condition.
func until(ctx context.Context, what string, condition func() (bool, error)) error {
	ctx, cancel := context.WithTimeout(ctx, longest)
	defer cancel()
	ticker := time.NewTicker(5 * time.Millisecond)
	defer ticker.Stop()
	for {
		done, err := condition()
		if done || err != nil {
			return err
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return fmt.Errorf("wait until %s: %w", what, ctx.Err())
		}
	}
}

// close stops what was started, in a context that Ctrl-C does not end.
func (m *machine) close(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, longest)
	defer cancel()
	for _, t := range m.tenants {
		t.end()
	}
	if m.rundir == "" {
		return nil
	}
	// The agent ends by itself with its last share; its socket goes with it.
	endpoint := control.Endpoint{Rundir: m.rundir, Simgpu: filepath.Join(m.rundir, "simgpu", instance)}
	faults := []error{until(ctx, "the agent has ended", func() (bool, error) {
		_, err := os.Stat(endpoint.Socket())
		return errors.Is(err, os.ErrNotExist), nil
	})}
	_, err := m.divvy(ctx, "simgpu", "stop", instance, "--force")
	return errors.Join(append(faults, err, os.RemoveAll(m.rundir))...)
}
