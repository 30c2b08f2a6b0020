package main

import (
	"bufio"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/divvy-gpu/divvy/test/bench/measurement"
	"github.com/divvy-gpu/divvy/test/bench/simulated"
)

const (
	// changes is how many instances are made or taken away.
	changes = 10_000
	// mostOfALife is how many of them a process lives for, before it is killed.
	mostOfALife = 200
)

// faulty are the calls that fail at random, each once.
var faulty = []string{
	"nvmlDeviceCreateGpuInstanceWithPlacement", "nvmlGpuInstanceCreateComputeInstance", "nvmlComputeInstanceDestroy", "nvmlGpuInstanceDestroy",
}

// churn is mig.churn: processes with the book of instances make and end them and are killed, with faults of the driver
// between, and another tool's instances beside. Each process that follows finishes what was begun, and compares book,
// driver and the other tool's list.
func (b *bench) churn() (rows []measurement.Row, err error) {
	dir, err := os.MkdirTemp("/dev/shm", "divvy-churn-")
	if err != nil {
		return nil, fmt.Errorf("make a run directory: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	if err := os.Setenv("DIVVY_RUNDIR", dir); err != nil {
		return nil, fmt.Errorf("name the run directory: %w", err)
	}
	divvy := filepath.Join(b.build, "bin", "divvy")
	if err := simulated.Execute(divvy, "simgpu", "start", "h200x8"); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, simulated.Execute(divvy, "simgpu", "stop", "h200x8", "--force")) }()
	library := filepath.Join(dir, "simgpu", "h200x8", "libnvidia-ml.so.1")
	random := rand.New(rand.NewPCG(15, 1))
	var wrong, done, killed int
	for life := 0; done < changes; life++ {
		if life%10 == 5 {
			call := faulty[random.IntN(len(faulty))]
			if err := simulated.Execute(divvy, "simgpu", "inject", "h200x8", "--call", call, "--return", "999", "--count", "1"); err != nil {
				return nil, err
			}
		}
		if err := b.otherTool(dir, library, life); err != nil {
			return nil, err
		}
		n, faults, err := b.life(dir, library, life, 1+random.IntN(mostOfALife))
		if err != nil {
			return nil, err
		}
		done, wrong, killed = done+n, wrong+faults, killed+1
	}
	row := measurement.Of("mig.churn", "faults", 0, measurement.Lower, command, float64(wrong))
	row.Note = fmt.Sprintf("overlaps, orphans and other tools' instances touched, in %d changes by %d processes that were killed", done, killed)
	return []measurement.Row{row}, nil
}

func (b *bench) process(role, dir, library string, life int) *exec.Cmd {
	cmd := exec.Command(os.Args[0], "-role", role, "-folder", dir, "-library", library, "-seed", strconv.Itoa(life))
	cmd.Stderr = os.Stderr
	return cmd
}

// otherTool makes or ends instances that are not Divvy's.
func (b *bench) otherTool(dir, library string, life int) error {
	if err := b.process("tool", dir, library, life).Run(); err != nil {
		return fmt.Errorf("run the other tool: %w", err)
	}
	return nil
}

// life runs one process until it has made so many changes, and kills it. It returns how many it made, and how many
// faults it found of the ones before.
func (b *bench) life(dir, library string, life, most int) (done, faults int, err error) {
	cmd := b.process("agent", dir, library, life)
	out, err := cmd.StdoutPipe()
	if err != nil {
		return 0, 0, fmt.Errorf("connect the process with the book: %w", err)
	}
	if err := cmd.Start(); err != nil {
		return 0, 0, fmt.Errorf("start the process with the book: %w", err)
	}
	lines := bufio.NewScanner(out)
	idle := false
	for done < most && !idle && lines.Scan() {
		switch kind, text, _ := strings.Cut(lines.Text(), " "); kind {
		case "idle":
			idle = true // the other tool has all of the GPU
		case "change":
			done++
		case "fault":
			faults++
			fmt.Fprintln(os.Stderr, "churn:", text)
		}
	}
	_ = cmd.Process.Kill()
	if err := cmd.Wait(); done < most && !idle {
		return done, faults, fmt.Errorf("the process with the book ended by itself after %d changes: %w", done, errors.Join(err, lines.Err()))
	}
	return done, faults, nil
}
