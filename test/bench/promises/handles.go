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

	"github.com/divvy-gpu/divvy/internal/simgpu"
	"github.com/divvy-gpu/divvy/test/bench/measurement"
	"github.com/divvy-gpu/divvy/test/bench/simulated"
)

const deadHandles = "promise.dead_handles"

// measureHandles runs random legal operations of 8 threads in a share with a cap, on a machine that counts the handles
// that reach the driver after the program has destroyed their objects.
func measureHandles(ctx context.Context, o options) ([]measurement.Row, error) {
	operations := 1_000_000
	if o.quick {
		operations = 20_000
	}
	var dead []float64
	for seed := range o.runs() {
		n, err := countDead(ctx, o, operations, seed)
		if err != nil {
			return nil, err
		}
		dead = append(dead, float64(n))
	}
	name := fmt.Sprintf("%d operations of 8 threads, --cores 50", operations)
	return []measurement.Row{row(deadHandles, name, "handles", 0, dead)}, nil
}

func countDead(ctx context.Context, o options, operations, seed int) (dead int, err error) {
	file, err := countingMachine(o)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(filepath.Dir(file))) }()
	m, err := simulated.Open(ctx, o.build, file)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, m.Close()) }()
	program, err := filepath.Abs(filepath.Join(o.build, "test", "cuda", "handles"))
	if err != nil {
		return 0, fmt.Errorf("find the program: %w", err)
	}
	name := filepath.Base(m.Instance)
	err = simulated.Execute(m.Divvy, "run", "--simgpu", name, "--memory", "4Gi", "--cores", "50", "--",
		program, fmt.Sprint(operations), fmt.Sprint(seed))
	if err != nil {
		return 0, err
	}
	text, err := exec.CommandContext(ctx, m.Divvy, "simgpu", "report", name, "-o", "json").Output()
	if err != nil {
		return 0, fmt.Errorf("ask for the report: %w", err)
	}
	var report simgpu.Report
	if err := json.Unmarshal(text, &report); err != nil {
		return 0, fmt.Errorf("read the report: %w", err)
	}
	return report.DeadHandles, nil
}

// countingMachine writes the file of a machine that answers such calls with an error and counts them.
func countingMachine(o options) (string, error) {
	text, err := exec.Command(filepath.Join(o.build, "bin", "divvy"), "simgpu", "machines", "a100-80g").Output()
	if err != nil {
		return "", fmt.Errorf("read a machine file: %w", err)
	}
	dir, err := os.MkdirTemp("", "divvy-bench-")
	if err != nil {
		return "", fmt.Errorf("make a folder: %w", err)
	}
	file := filepath.Join(dir, "counting.yaml") // an instance has the name of its file
	text = append(bytes.Replace(text, []byte("name: a100-80g"), []byte("name: counting"), 1), "deadHandles: count\n"...)
	if err := os.WriteFile(file, text, 0o644); err != nil {
		return "", errors.Join(fmt.Errorf("write a machine file: %w", err), os.RemoveAll(dir))
	}
	return file, nil
}
