package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/divvy-gpu/divvy/internal/agent/control"
	"github.com/divvy-gpu/divvy/internal/simgpu"
	"github.com/divvy-gpu/divvy/test/bench/measurement"
	"github.com/divvy-gpu/divvy/test/bench/simulated"
)

const (
	overheadID = "driver.overhead_percent"
	queriesID  = "driver.nvml_queries_s"
)

// late is when overhead must be known: after the last growth.
const late = 5 * time.Second

// ways are how programs run whose overhead is measured. Containers have a pid namespace of their own.
var ways = []struct {
	name   string
	before []string // the program
	after  []string
	count  int
}{
	{"one process", nil, nil, 1},
	{"one process in a pid namespace", alone, nil, 1},
	{"three processes of a share, each in a pid namespace", alone, nil, 3},
	{"one process that allocates and frees all the time", nil, []string{"busy"}, 1},
}

// alone starts a program in a pid namespace of its own, also for an ordinary user.
var alone = []string{"unshare", "--user", "--map-root-user", "--pid", "--fork", "--kill-child"}

// measureOverhead compares the overhead that the agent knows of with what the simulated driver took, after code was
// loaded at first launches and local memory grew.
func measureOverhead(ctx context.Context, o options) ([]measurement.Row, error) {
	program, err := filepath.Abs(filepath.Join(o.build, "test/cuda/late"))
	if err != nil {
		return nil, fmt.Errorf("find the program: %w", err)
	}
	var rows []measurement.Row
	for _, way := range ways {
		command := repeated(slices.Concat(way.before, []string{program, "40", "100"}, way.after), way.count)
		var percents, seconds []float64
		for range o.runs() {
			percent, took, err := knownOnce(ctx, o, command, way.count)
			if err != nil {
				return nil, fmt.Errorf("measure %s: %w", way.name, err)
			}
			percents, seconds = append(percents, percent), append(seconds, took)
		}
		r := measurement.Of(overheadID, "%", 95, measurement.Higher, "make bench-drivers ONLY="+overheadID, percents...)
		r.Case = way.name
		t := measurement.Of(overheadID, "s", late.Seconds(), measurement.Lower, "make bench-drivers ONLY="+overheadID, seconds...)
		t.Case = way.name + ": until 95 % are known, after the last growth"
		rows = append(rows, r, t)
	}
	return rows, nil
}

func (o options) runs() int {
	if o.quick {
		return 1
	}
	return 3
}

// repeated runs a program so many times at once, as one command that lasts as long as they.
func repeated(program []string, count int) []string {
	return append([]string{"sh", "-c", `n=$1; shift; for i in $(seq "$n"); do "$@" & done; wait`, "sh", strconv.Itoa(count)}, program...)
}

// knownOnce runs processes in a share until all have grown. It returns which part of their overhead is known some
// seconds later, and how many seconds that took for 95 %. What is known too much counts like what is not known.
func knownOnce(ctx context.Context, o options, command []string, count int) (percent, took float64, err error) {
	file, err := withCode(o)
	if err != nil {
		return 0, 0, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(filepath.Dir(file))) }()
	m, err := simulated.Open(ctx, o.build, file)
	if err != nil {
		return 0, 0, err
	}
	defer func() { err = errors.Join(err, m.Close()) }()
	t, err := m.Start([]string{"--memory", "16Gi"}, command...)
	if err != nil {
		return 0, 0, err
	}
	defer t.End()
	if err := grown(ctx, t, count); err != nil {
		return 0, 0, err
	}
	took = late.Seconds()
	for begin := time.Now(); ; {
		if percent, err = known(ctx, m); err != nil {
			return 0, 0, err
		}
		since := time.Since(begin)
		if percent >= 95 && took >= late.Seconds() {
			took = since.Seconds()
		}
		if since >= late {
			return percent, took, nil
		}
		if err := m.Pause(250 * time.Millisecond); err != nil {
			return 0, 0, err
		}
	}
}

// withCode writes the file of a machine whose kernels take memory when they are first launched.
func withCode(o options) (path string, err error) {
	text, err := exec.Command(filepath.Join(o.build, "bin/divvy"), "simgpu", "machines", "a100-80g").Output()
	if err != nil {
		return "", fmt.Errorf("print a machine file: %w", err)
	}
	changed := strings.Replace(string(text), "  context:", "  code: 7Mi\n  context:", 1)
	if changed == string(text) {
		return "", errors.New("the machine file tells nothing of contexts")
	}
	dir, err := os.MkdirTemp("", "divvy-overhead-")
	if err != nil {
		return "", fmt.Errorf("make a folder for a machine file: %w", err)
	}
	path = filepath.Join(dir, "a100-80g.yaml")
	if err := os.WriteFile(path, []byte(changed), 0o600); err != nil {
		return "", fmt.Errorf("write a machine file: %w", err)
	}
	return path, nil
}

// grown waits until so many processes have said that they have grown.
func grown(ctx context.Context, t *simulated.Tenant, count int) error {
	deadline := time.After(time.Minute)
	for {
		if len(t.All()) >= count {
			return nil
		}
		select {
		case <-time.After(5 * time.Millisecond):
		case <-t.Ended():
			_, err := t.Wait(ctx)
			return errors.Join(errors.New("the programs ended"), err)
		case <-deadline:
			return errors.New("the programs do not grow")
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// known is which part of the overhead on the machine `divvy ls` shows.
func known(ctx context.Context, m *simulated.Machine) (percent float64, err error) {
	name := filepath.Base(m.Instance)
	var listing struct {
		Agents []control.Listing `json:"agents"`
	}
	if err := read(ctx, &listing, m.Divvy, "ls", "--simgpu", name, "-o", "json"); err != nil {
		return 0, err
	}
	var report simgpu.Report
	if err := read(ctx, &report, m.Divvy, "simgpu", "report", name, "-o", "json"); err != nil {
		return 0, err
	}
	var shown, taken float64
	for _, a := range listing.Agents {
		for _, t := range a.Tenants {
			for _, s := range t.Shares {
				shown += float64(s.Overhead)
			}
		}
	}
	for _, p := range report.Processes {
		for _, g := range p.GPUs {
			taken += float64(g.Context)
		}
	}
	if taken == 0 {
		return 0, errors.New("no process has overhead")
	}
	return 100 * (1 - max(shown-taken, taken-shown)/taken), nil
}

func read(ctx context.Context, into any, argv ...string) error {
	text, err := exec.CommandContext(ctx, argv[0], argv[1:]...).Output()
	if err != nil {
		return fmt.Errorf("run %s: %w", strings.Join(argv, " "), err)
	}
	if err := json.Unmarshal(text, into); err != nil {
		return fmt.Errorf("read what %s says: %w", strings.Join(argv, " "), err)
	}
	return nil
}

// measureQueries counts what a program that loads 3,000 modules in ten seconds asks NVML, where no agent measures.
func measureQueries(ctx context.Context, o options) ([]measurement.Row, error) {
	var told struct {
		Questions int     `json:"questions"`
		Seconds   float64 `json:"seconds"`
	}
	modules, seconds := "3000", "10"
	if o.quick {
		modules, seconds = "600", "2"
	}
	if err := read(ctx, &told, filepath.Join(o.build, "test/cuda/loads"), modules, seconds); err != nil {
		return nil, err
	}
	r := row(queriesID, "3,000 modules in 10 s, no agent", "1/s", 10, float64(told.Questions)/told.Seconds)
	return []measurement.Row{r}, nil
}
