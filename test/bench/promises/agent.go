package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/divvy-gpu/divvy/internal/agent/control"
	"github.com/divvy-gpu/divvy/test/bench/measurement"
	"github.com/divvy-gpu/divvy/test/bench/simulated"
)

const (
	agentCost = "promise.agent_cpu_percent"
	// gpusShared is how many GPUs the machine of this figure has.
	gpusShared = 8
	// watched is how long the agent is watched, and settling what is left out before.
	watched, settling = 8 * time.Second, 3 * time.Second
)

// crowds are how many shares launch, and the part of a core that the agent may take then.
var crowds = []struct {
	shares int
	goal   float64
}{{10, 2}, {40, 3}, {200, 6}}

// measureAgentCost lets shares launch kernels of 20 ms under caps that leave a tenth of each
// GPU free, and takes what the agent costs, how late it decides and how well the caps hold.
func measureAgentCost(ctx context.Context, o options) ([]measurement.Row, error) {
	var rows []measurement.Row
	for _, c := range crowds {
		if o.quick && c.shares > 40 {
			continue
		}
		var cost, late, wrong []float64
		for range o.runs() {
			r, err := crowded(ctx, o.build, c.shares)
			if err != nil {
				return nil, fmt.Errorf("%d shares: %w", c.shares, err)
			}
			cost, late, wrong = append(cost, r.percent), append(late, r.late), append(wrong, r.wrong)
		}
		name := fmt.Sprintf("%d shares on %d GPUs", c.shares, gpusShared)
		rows = append(rows, row(agentCost, name, "%", c.goal, cost),
			row(agentCost, name+": decision after a first wait, p99", "ms", 20, late),
			row(agentCost, name+": mean error of caps", "points", 1, wrong))
	}
	return rows, nil
}

// crowdResult is what one run found.
type crowdResult struct{ percent, late, wrong float64 }

func crowded(ctx context.Context, build string, shares int) (r crowdResult, err error) {
	m, err := simulated.Open(ctx, build, "a800x8")
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, m.Close()) }()
	perGPU := (shares + gpusShared - 1) / gpusShared
	var tenants []*simulated.Tenant
	defer func() {
		for _, t := range tenants {
			t.End()
		}
		err = errors.Join(err, m.Alone())
	}()
	for i := range shares {
		t, err := m.Start([]string{"--gpu", strconv.Itoa(i % gpusShared), "--cores", strconv.Itoa(90 / perGPU)},
			m.Gpubench, "load", "--ns", "20000000", "--sync", "1")
		if err != nil {
			return r, err
		}
		tenants = append(tenants, t)
		if _, _, err := t.Working(1); err != nil {
			return r, err
		}
	}
	list, err := listed(ctx, m)
	if err != nil {
		return r, err
	}
	if err := m.Pause(settling); err != nil {
		return r, err
	}
	return watchCrowd(ctx, m, list)
}

// listed asks the machine's agent for its list.
func listed(ctx context.Context, m *simulated.Machine) (*control.Listing, error) {
	text, err := exec.CommandContext(ctx, m.Divvy, "ls", "-o", "json", "--simgpu", filepath.Base(m.Instance)).Output()
	if err != nil {
		return nil, fmt.Errorf("list shares: %w", err)
	}
	var document struct {
		Agents []control.Listing `json:"agents"`
	}
	if err := json.Unmarshal(text, &document); err != nil {
		return nil, fmt.Errorf("read the list of shares: %w", err)
	}
	if len(document.Agents) != 1 {
		return nil, fmt.Errorf("%d agents serve the machine", len(document.Agents))
	}
	return &document.Agents[0], nil
}

func watchCrowd(ctx context.Context, m *simulated.Machine, list *control.Listing) (r crowdResult, err error) {
	l, err := newLateness(list.Tenants)
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, l.close()) }()
	before, err := usedNow(ctx, m)
	if err != nil {
		return r, err
	}
	spent, err := simulated.SpentByAgent(list.Info.PID)
	if err != nil {
		return r, err
	}
	begin := time.Now()
	for time.Since(begin) < watched {
		if err := l.look(); err != nil {
			return r, err
		}
		if err := m.Pause(2 * time.Millisecond); err != nil {
			return r, err
		}
	}
	passed := time.Since(begin)
	ended, err := monotonic()
	if err != nil {
		return r, err
	}
	now, err := simulated.SpentByAgent(list.Info.PID)
	if err != nil {
		return r, err
	}
	after, err := usedNow(ctx, m)
	if err != nil {
		return r, err
	}
	late, err := l.p99(ended)
	if err != nil {
		return r, err
	}
	r = crowdResult{percent: 100 * (now - spent).Seconds() / passed.Seconds(), late: late}
	for _, t := range list.Tenants {
		s := t.Shares[0]
		from, to := before[s.Index], after[s.Index]
		got := 100 * float64(to.Tags[t.ID]-from.Tags[t.ID]) / float64(to.At-from.At)
		r.wrong += math.Abs(got-float64(s.Cores)) / float64(len(list.Tenants))
	}
	fmt.Printf("  %d shares: %.2f %% of a core, %d first waits decided after %.1f ms (p99), caps wrong by %.2f points\n",
		len(list.Tenants), r.percent, len(l.late), r.late, r.wrong)
	return r, nil
}

// gpuUse is the simulated driver's record of one GPU: CLOCK_MONOTONIC, and GPU time by tenant.
type gpuUse struct {
	At   uint64            `json:"t"`
	GPU  int               `json:"gpu"`
	Tags map[string]uint64 `json:"tags"`
}

func usedNow(ctx context.Context, m *simulated.Machine) (map[int]gpuUse, error) {
	text, err := exec.CommandContext(ctx, m.Simgpuctl, "oracle", m.Instance).Output()
	if err != nil {
		return nil, fmt.Errorf("ask for the simulated driver's record: %w", err)
	}
	all := map[int]gpuUse{}
	for line := range strings.Lines(string(text)) {
		var one gpuUse
		if err := json.Unmarshal([]byte(line), &one); err != nil {
			return nil, fmt.Errorf("read the simulated driver's record: %w", err)
		}
		all[one.GPU] = one
	}
	return all, nil
}

// monotonic is the clock of the pages, in ns.
func monotonic() (uint64, error) {
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &now); err != nil {
		return 0, fmt.Errorf("read the clock: %w", err)
	}
	return uint64(now.Nano()), nil
}
