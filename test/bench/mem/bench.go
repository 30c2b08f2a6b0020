package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/divvy-gpu/divvy/internal/simgpu"
	"github.com/divvy-gpu/divvy/test/bench/measurement"
)

const (
	mib = 1 << 20
	gib = 1 << 30

	machine = "a100-80g" // its driver calls cost nothing
	command = "make bench-mem"
)

type options struct {
	build, out, only string
	allocations      uint64
	starts           int
}

// bench runs programs on one simulated machine, natively or in shares of it.
type bench struct {
	options
	divvy, gpubench string
}

// measure makes a machine of its own, measures every figure, and takes the machine away again.
func measure(o options) (err error) {
	build, err := filepath.Abs(o.build)
	if err != nil {
		return fmt.Errorf("find the build folder: %w", err)
	}
	dir, err := os.MkdirTemp("/dev/shm", "divvy-bench-")
	if err != nil {
		return fmt.Errorf("make a run directory: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	if err := os.Setenv("DIVVY_RUNDIR", dir); err != nil {
		return fmt.Errorf("name the run directory: %w", err)
	}
	b := &bench{options: o, divvy: filepath.Join(build, "bin", "divvy"), gpubench: filepath.Join(build, "bin", "gpubench")}
	if _, err := b.output(b.divvy, "simgpu", "start", machine); err != nil {
		return err
	}
	defer func() {
		_, stopErr := b.output(b.divvy, "simgpu", "stop", machine, "--force")
		err = errors.Join(err, stopErr)
	}()
	return b.all()
}

func (b *bench) all() error {
	of := func(measure func(*bench) ([]measurement.Row, error)) func() ([]measurement.Row, error) {
		return func() ([]measurement.Row, error) { return measure(b) }
	}
	return measurement.Take([]measurement.Figure{
		{IDs: "mem.usable_percent", Measure: of(usable)},
		{IDs: "mem.alloc_added_ns mem.launch_added_ns", Measure: of(cost)},
		{IDs: "mem.init_added_ms", Measure: of(start)},
		{IDs: "mem.reclaim_ms", Measure: of(reclaim)},
		{IDs: "mem.crash_lost_bytes", Measure: of(crash)},
		{IDs: "mem.over_admitted_bytes mem.false_refusals", Measure: of(race)},
	}, b.only, b.out, os.Stdout)
}

// native is gpubench on the machine without Divvy.
func (b *bench) native(args ...string) []string {
	return append([]string{b.divvy, "simgpu", "exec", machine, "--", b.gpubench}, args...)
}

// share is gpubench inside a share of that many bytes.
func (b *bench) share(bytes uint64, args ...string) []string {
	return append([]string{b.divvy, "run", "--simgpu", machine, "--memory", fmt.Sprint(bytes), "--", b.gpubench}, args...)
}

// output runs a command and returns what it prints; a failure carries what it said.
func (b *bench) output(argv ...string) (string, error) {
	command := exec.Command(argv[0], argv[1:]...)
	text, err := command.Output()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return string(text), fmt.Errorf("run %s: %w: %s", strings.Join(argv, " "), err, strings.TrimSpace(string(exit.Stderr)))
	}
	if err != nil {
		return "", fmt.Errorf("run %s: %w", argv[0], err)
	}
	return string(text), nil
}

// result is what gpubench prints; each command fills a part.
type result struct {
	Result         string  `json:"result"`
	Allocated      uint64  `json:"allocated_bytes"`
	Free           uint64  `json:"free_bytes"`
	Total          uint64  `json:"total_bytes"`
	PID            int     `json:"pid"`
	PairNs         float64 `json:"pair_ns"`
	LaunchNs       float64 `json:"launch_ns"`
	InitNs         float64 `json:"init_cpu_ns"`
	OpenNs         float64 `json:"open_cpu_ns"`
	Allocations    uint64  `json:"allocations"`
	Refused        uint64  `json:"refused"`
	FalseRefusals  uint64  `json:"false_refusals"`
	RefusedRoom    uint64  `json:"refused_with_room_in_own_block"`
	Failed         bool    `json:"failed"`
	CheckerPeak    uint64  `json:"peak_bytes"`
	WallNanosecond uint64  `json:"wall_ns"`
}

// run runs gpubench; exit status 1 is the driver's refusal, which is a result too.
func (b *bench) run(argv []string) (result, error) {
	text, err := b.output(argv...)
	var exit *exec.ExitError
	if err != nil && (!errors.As(err, &exit) || exit.ExitCode() != 1) {
		return result{}, err
	}
	var r result
	if err := json.Unmarshal([]byte(text), &r); err != nil {
		return result{}, fmt.Errorf("read what %s printed: %w: %q", strings.Join(argv, " "), err, text)
	}
	return r, nil
}

// oracle is the simulated driver's own record.
func (b *bench) oracle() (*simgpu.Report, error) {
	text, err := b.output(b.divvy, "simgpu", "report", machine, "-o", "json")
	if err != nil {
		return nil, err
	}
	return simgpu.ParseReport([]byte(text))
}

// tenantPeak is the most bytes that any tenant ever held on the machine's first GPU.
func tenantPeak(report *simgpu.Report) uint64 {
	var peak uint64
	for _, tenant := range report.Tenants {
		if tenant.Tenant != "" && len(tenant.GPUs) > 0 {
			peak = max(peak, tenant.GPUs[0].Peak)
		}
	}
	return peak
}

// fresh restarts the machine, so that the oracle's peaks are of one measurement only.
func (b *bench) fresh(context.Context) error {
	if _, err := b.output(b.divvy, "simgpu", "stop", machine, "--force"); err != nil {
		return err
	}
	_, err := b.output(b.divvy, "simgpu", "start", machine)
	return err
}
