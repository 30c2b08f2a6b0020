package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/divvy-gpu/divvy/internal/mps"
	"github.com/divvy-gpu/divvy/internal/simgpu"
	"github.com/divvy-gpu/divvy/test/bench/measurement"
	"github.com/divvy-gpu/divvy/test/bench/simulated"
	"github.com/divvy-gpu/divvy/test/escape"
)

// mps are the figures of backend mps.
func (b bench) mps() []measurement.Figure {
	return []measurement.Figure{
		{IDs: "mps.limits", Measure: b.limits},
		{IDs: "mps.death_s", Measure: b.deaths},
		{IDs: "fault.neighbours", Measure: b.neighbours},
		{IDs: "mps.escape", Measure: b.escapes},
	}
}

const (
	// sms are those of the machine's GPU.
	sms = 108
	// window is how long SM time is summed up.
	window = uint64(time.Second)
)

// beside starts programs in shares of MPS with these ceilings, and returns them when all work.
func beside(m *simulated.Machine, ceilings []int) (tenants []*simulated.Tenant, pids []int, err error) {
	for _, c := range ceilings {
		t, err := m.Start([]string{"--backend", "mps", "--cores", strconv.Itoa(c)},
			m.Gpubench, "load", "--ns", "1000000", "--grid", strconv.Itoa(sms), "--seconds", "600")
		if err != nil {
			return tenants, nil, err
		}
		tenants = append(tenants, t)
		own, _, err := t.Working(1)
		if err != nil {
			return tenants, nil, err
		}
		pids = append(pids, own...)
	}
	return tenants, pids, nil
}

// limits compares what shares were granted with what the daemon has, what the driver gave the programs, and what time
// they had of the SMs.
func (b bench) limits() (rows []measurement.Row, err error) {
	for _, ceilings := range [][]int{{30, 70}, {10, 20, 70}} {
		one, err := b.limitsOf(ceilings)
		if err != nil {
			return nil, err
		}
		rows = append(rows, one...)
	}
	return rows, nil
}

func (b bench) limitsOf(ceilings []int) (rows []measurement.Row, err error) {
	m, err := simulated.Open(b.ctx, b.build, "a100-80g")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, m.Close()) }()
	tenants, pids, err := beside(m, ceilings)
	defer func() { err = errors.Join(err, b.end(m, tenants)) }()
	if err != nil {
		return nil, err
	}
	atDaemon, err := b.daemonError(m, ceilings)
	if err != nil {
		return nil, err
	}
	inClient, err := clientError(m, ceilings, pids)
	if err != nil {
		return nil, err
	}
	var times []float64
	for range b.runs {
		wrong, err := b.timeError(m, ceilings, pids)
		if err != nil {
			return nil, err
		}
		times = append(times, wrong)
	}
	name := strings.Trim(strings.ReplaceAll(fmt.Sprint(ceilings), " ", "/"), "[]")
	row := func(of, unit string, goal float64, runs ...float64) measurement.Row {
		r := measurement.Of("mps.limits", unit, goal, measurement.Lower, command("mps.limits"), runs...)
		r.Case = name + ", " + of
		return r
	}
	return []measurement.Row{
		row("at the daemon", "points off", 0, atDaemon), row("in the client", "SMs off", 0, inClient), row("SM time", "points off", 2, times...),
	}, nil
}

// daemonError is by how many points the daemon's limit is not the loosest ceiling.
func (b bench) daemonError(m *simulated.Machine, ceilings []int) (float64, error) {
	d, err := daemon(m)
	if err != nil {
		return 0, err
	}
	has, err := escape.Percentage(d.Dirs.Log)
	most := 0
	for _, c := range ceilings {
		most = max(most, c)
	}
	return math.Abs(has - float64(most)), err
}

// daemon is the machine's control daemon.
func daemon(m *simulated.Machine) (mps.Daemon, error) {
	pipes := mps.Left(filepath.Join(m.Instance, "mps"))
	if len(pipes) != 1 {
		return mps.Daemon{}, fmt.Errorf("find the control daemon: there are %d", len(pipes))
	}
	dirs := mps.Dirs{Pipe: pipes[0], Log: filepath.Join(filepath.Dir(pipes[0]), "log")}
	return mps.Daemon{Dirs: dirs, Program: filepath.Join(m.Instance, mps.ControlProgram)}, nil
}

// clientError is by how many SMs the programs differ, which may have their part of them rounded up.
func clientError(m *simulated.Machine, ceilings, pids []int) (sum float64, err error) {
	text, err := exec.Command(m.Simgpuctl, "report", m.Instance).Output()
	if err != nil {
		return 0, fmt.Errorf("ask the simulated driver: %w", err)
	}
	var report simgpu.Report
	if err := json.Unmarshal(text, &report); err != nil {
		return 0, fmt.Errorf("read the simulated driver's report: %w", err)
	}
	found := 0
	for _, p := range report.Processes {
		for i, pid := range pids {
			if p.PID == pid && p.MPSServer != 0 && len(p.GPUs) == 1 {
				found++
				sum += math.Abs(float64(p.GPUs[0].Multiprocessors) - math.Ceil(float64(sms*ceilings[i])/100))
			}
		}
	}
	if found != len(pids) {
		return 0, fmt.Errorf("%d of %d programs are clients", found, len(pids))
	}
	return sum, nil
}

// record is what the simulated driver knows of the SMs: for how long each process had all of them.
type record struct {
	At uint64         `json:"t"`
	SM map[int]uint64 `json:"smPids"`
}

func read(m *simulated.Machine) (r record, err error) {
	text, err := exec.Command(m.Simgpuctl, "oracle", m.Instance).Output()
	if err == nil {
		err = json.Unmarshal(text, &r)
	}
	if err != nil {
		return r, fmt.Errorf("read the simulated driver's record: %w", err)
	}
	return r, nil
}

// timeError is by how many points the SM time of the worst program differs from its ceiling.
func (b bench) timeError(m *simulated.Machine, ceilings, pids []int) (worst float64, err error) {
	from, err := read(m)
	to := from
	for err == nil && to.At < from.At+window {
		select {
		case <-time.After(10 * time.Millisecond):
			to, err = read(m)
		case <-b.ctx.Done():
			return 0, b.ctx.Err()
		}
	}
	if err != nil {
		return 0, err
	}
	for i, pid := range pids {
		part := 100 * float64(to.SM[pid]-from.SM[pid]) / float64(to.At-from.At)
		worst = max(worst, math.Abs(part-float64(ceilings[i])))
	}
	return worst, nil
}
