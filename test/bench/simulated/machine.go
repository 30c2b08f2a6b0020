// Package simulated runs programs on a simulated machine for measurements: natively or in shares, beside the
// simulated driver's own record, which judges them.
package simulated

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// Machine is a running simulated machine with a run directory of its own.
type Machine struct {
	// Divvy, Gpubench and Simgpuctl are the programs of the build that is measured.
	Divvy, Gpubench, Simgpuctl string
	// Instance is where the simulated machine lies.
	Instance string
	// Oracle is the simulated driver's own record of GPU time.
	Oracle *Oracle

	ctx    context.Context
	name   string
	rundir string
}

// Open starts a simulated machine from a build folder and names its run directory in the environment, so that
// every program started from now on uses it. Name is one of `divvy simgpu machines` or a machine file.
func Open(ctx context.Context, build, name string) (m *Machine, err error) {
	build, err = filepath.Abs(build)
	if err != nil {
		return nil, fmt.Errorf("find the build folder: %w", err)
	}
	dir, err := os.MkdirTemp("/dev/shm", "divvy-bench-")
	if err != nil {
		return nil, fmt.Errorf("make a run directory: %w", err)
	}
	m = &Machine{
		Divvy: filepath.Join(build, "bin", "divvy"), Gpubench: filepath.Join(build, "bin", "gpubench"),
		Simgpuctl: filepath.Join(build, "libexec", "divvy", "simgpuctl"),
		ctx:       ctx, name: name, rundir: dir,
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, m.Close())
		}
	}()
	if err := os.Setenv("DIVVY_RUNDIR", dir); err != nil {
		return m, fmt.Errorf("name the run directory: %w", err)
	}
	if err := Execute(m.Divvy, "simgpu", "start", name); err != nil {
		return m, err
	}
	m.name = strings.TrimSuffix(filepath.Base(name), filepath.Ext(name))
	m.Instance = filepath.Join(dir, "simgpu", m.name)
	m.Oracle, err = watch(m.Simgpuctl, m.Instance)
	return m, err
}

// Close ends the machine with everything on it and removes its run directory.
func (m *Machine) Close() error {
	if m.Oracle != nil {
		m.Oracle.close()
	}
	var err error
	if m.Instance != "" {
		err = Execute(m.Divvy, "simgpu", "stop", filepath.Base(m.Instance), "--force")
	}
	return errors.Join(err, os.RemoveAll(m.rundir))
}

// Context is done when the measurement is broken off.
func (m *Machine) Context() context.Context { return m.ctx }

// Execute runs a program to its end; a failure carries what it said.
func Execute(argv ...string) error {
	text, err := exec.Command(argv[0], argv[1:]...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("run %s: %w: %s", strings.Join(argv, " "), err, strings.TrimSpace(string(text)))
	}
	return nil
}
