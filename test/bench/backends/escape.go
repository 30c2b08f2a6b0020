package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/divvy-gpu/divvy/internal/agent/control"
	"github.com/divvy-gpu/divvy/test/bench/measurement"
	"github.com/divvy-gpu/divvy/test/bench/simulated"
	"github.com/divvy-gpu/divvy/test/escape"
)

const (
	// escapeMachine has several GPUs.
	escapeMachine = "h100x8"
	// escapePercent of the SMs and escapeMemory are those of the share from which programs try to escape.
	escapePercent = 30
	escapeMemory  = 2 << 30
	// noticeGoal is in seconds.
	noticeGoal = 2
)

// escapes counts the ways in which a program gets more than its share. The simulated driver's report judges them.
func (b bench) escapes() (rows []measurement.Row, err error) {
	if os.Getuid() != 0 {
		return nil, errors.New("change modes of GPUs: run it as root")
	}
	folder, err := os.MkdirTemp("", "divvy-escape-")
	if err != nil {
		return nil, fmt.Errorf("make a folder: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(folder)) }()
	client, err := escape.Client(folder)
	if err != nil {
		return nil, err
	}
	static, err := escape.Client(folder, "-static")
	if err != nil {
		return nil, err
	}
	for _, measure := range []func() (measurement.Row, error){
		func() (measurement.Row, error) { return b.variables(client, static) },
		func() (measurement.Row, error) { return b.spoils(client, folder) },
		func() (measurement.Row, error) { return b.noticed(client, folder) },
		func() (measurement.Row, error) { return b.refused(client, folder) },
	} {
		row, err := measure()
		if err != nil {
			return nil, err
		}
		rows = append(rows, row)
	}
	return rows, nil
}

func escapeRow(name, unit string, goal float64, runs ...float64) measurement.Row {
	row := measurement.Of("mps.escape", unit, goal, measurement.Lower, command("mps.escape"), runs...)
	row.Case = name
	return row
}

// variables tries everything that programs make of their environment.
func (b bench) variables(client, static string) (row measurement.Row, err error) {
	y, err := b.yard(client)
	if err != nil {
		return row, err
	}
	defer func() { err = errors.Join(err, y.close()) }()
	ways, served, escaped := escape.Ways(client, static, y.other), 0, 0
	for name, command := range ways {
		s, err := y.hold(y.tight(), command...)
		if err != nil {
			return row, fmt.Errorf("%s: %w", name, err)
		}
		has, more, err := y.judge(s.said.PID)
		s.end()
		switch {
		case err != nil:
			return row, err
		case !has && name == escape.Honest:
			return row, errors.New("a program that tries nothing is not served")
		case more != "":
			escaped++
			fmt.Fprintf(os.Stderr, "%s: %s\n", name, more)
		case has:
			served++
		}
	}
	row = escapeRow(fmt.Sprintf("%d ways with variables, forks and programs", len(ways)), "succeed", 0, float64(escaped))
	row.Note = fmt.Sprintf("%d get their share, the others nothing", served)
	return row, nil
}

// spoils tries what can become of the control daemon, each on a machine of its own.
func (b bench) spoils(client, folder string) (row measurement.Row, err error) {
	spoils, served, escaped := escape.Spoils(), 0, 0
	for name, spoil := range spoils {
		has, more, err := b.spoiled(client, filepath.Join(folder, strings.ReplaceAll(name, " ", "-")), spoil)
		if err != nil {
			return row, fmt.Errorf("%s: %w", name, err)
		}
		if more != "" {
			escaped++
			fmt.Fprintf(os.Stderr, "%s: %s\n", name, more)
		} else if has {
			served++
		}
	}
	row = escapeRow(fmt.Sprintf("daemon stopped, killed or replaced, %d ways", len(spoils)), "succeed", 0, float64(escaped))
	row.Note = fmt.Sprintf("%d get their share, the others nothing", served)
	return row, nil
}

// spoiled lets a program of a share begin to use its GPU when its daemon is spoiled; file is where they agree on it.
func (b bench) spoiled(client, file string, spoil func(pid int, own, other string) error) (has bool, more string, err error) {
	y, err := b.yard(client)
	if err != nil {
		return false, "", err
	}
	defer func() { err = errors.Join(err, y.close()) }()
	pid, err := escape.Daemon(y.own)
	if err != nil {
		return false, "", err
	}
	defer func() {
		_ = syscall.Kill(pid, syscall.SIGKILL)        // it may be gone
		if _, err := os.Readlink(y.own); err == nil { // of the ways; an agent leaves links alone
			_ = os.Remove(y.own)
		}
	}()
	s, err := y.hold(y.tight(), client, "later", file)
	if err != nil {
		return false, "", err
	}
	defer s.end()
	if err := errors.Join(spoil(pid, y.own, y.other), os.WriteFile(file, nil, 0o600)); err != nil {
		return false, "", err
	}
	err = b.await("the program is answered", func() (bool, error) {
		text, err := os.ReadFile(file + ".said")
		return err == nil && strings.HasSuffix(string(text), "\n"), nil
	})
	if err != nil {
		return false, "", err
	}
	return y.judge(s.said.PID)
}

// ownDriver copies the driver's library, and is the command that uses the copy and asks for no daemon.
func (y *yard) ownDriver(client, folder string) ([]string, error) {
	own := filepath.Join(folder, "libown.so")
	library, err := os.ReadFile(filepath.Join(y.m.Instance, "libcuda.so.1"))
	if err == nil {
		err = os.WriteFile(own, library, 0o700)
	}
	if err != nil {
		return nil, fmt.Errorf("copy the driver's library: %w", err)
	}
	return []string{"env", "DIVVY_SIMGPU=" + y.m.Instance, client, "leave", own}, nil
}

// noticed measures how long a program with an own driver library is not listed as one outside its share. Its user's own
// agent cannot refuse it.
func (b bench) noticed(client, folder string) (row measurement.Row, err error) {
	y, err := b.yard(client)
	if err != nil {
		return row, err
	}
	defer func() { err = errors.Join(err, y.close()) }()
	command, err := y.ownDriver(client, folder)
	if err != nil {
		return row, err
	}
	var times []float64
	for range b.runs {
		s, err := y.hold(y.tight(), command...)
		if err != nil {
			return row, err
		}
		begun := time.Now()
		err = b.await("the program is listed", func() (bool, error) {
			l, err := y.list()
			return err == nil && slices.ContainsFunc(l.Outside, func(o control.Outside) bool { return o.PID == s.said.PID }), err
		})
		times = append(times, time.Since(begun).Seconds())
		_, more, judgeErr := y.judge(s.said.PID)
		s.end()
		if err := errors.Join(err, judgeErr); err != nil {
			return row, err
		}
		if more == "" {
			return row, errors.New("a program with an own driver library does not get past MPS")
		}
	}
	return escapeRow("own driver library, own agent: listed", "s", noticeGoal, times...), nil
}

// refused counts how often a program with an own driver library uses a GPU that a system agent gave to MPS alone.
func (b bench) refused(client, folder string) (row measurement.Row, err error) {
	m, err := simulated.Open(b.ctx, b.build, escapeMachine)
	if err != nil {
		return row, err
	}
	defer func() { err = errors.Join(err, m.Close()) }()
	agent, asks, err := serve(b.ctx, m)
	if err != nil {
		return row, err
	}
	defer func() { err = errors.Join(err, agent.end()) }()
	if err := asks.Close(); err != nil {
		return row, err
	}
	y := &yard{bench: b, m: m}
	defer func() { err = errors.Join(err, y.release(filepath.Join(os.Getenv("DIVVY_RUNDIR"), "mps"))) }()
	if err := y.occupy(client, 0); err != nil {
		return row, err
	}
	command, err := y.ownDriver(client, folder)
	if err != nil {
		return row, err
	}
	used := 0
	for range b.runs {
		s, err := y.hold(y.tight(), command...)
		if err != nil {
			return row, err
		}
		has, more, err := y.judge(s.said.PID)
		s.end()
		if err != nil {
			return row, err
		}
		if has || s.said.MiB > 0 {
			used++
			fmt.Fprintf(os.Stderr, "own driver library: %s\n", more)
		}
	}
	return escapeRow(fmt.Sprintf("own driver library, system agent, %d times", b.runs), "succeed", 0, float64(used)), nil
}
