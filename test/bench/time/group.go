package main

import (
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/divvy-gpu/divvy/test/bench/measurement"
)

// groups lets three processes work in one share, alone and beside a tenant that has the rest.
func groups(b *bench) ([]measurement.Row, error) {
	var rows []measurement.Row
	for _, g := range []struct {
		name     string
		commands []string // of gpubench load
		beside   bool
	}{
		{"3 x 1 ms", []string{"--ns 1000000", "--ns 1000000", "--ns 1000000"}, false},
		{"20 us, 1 ms and graph", []string{"--ns 20000", "--ns 1000000", "--ns 50000 --graph 20"}, false},
		{"3 x 1 ms beside 1 ms", []string{"--ns 1000000", "--ns 1000000", "--ns 1000000"}, true},
	} {
		if !strings.HasPrefix(g.name, b.kernels) {
			continue
		}
		errs, err := b.group(g.name, g.commands, g.beside)
		if err != nil {
			return nil, err
		}
		rows = append(rows, row("time.group_error_points", g.name, "points", 1.5, measurement.Lower, errs))
		if err := b.Alone(); err != nil {
			return nil, err
		}
	}
	return rows, nil
}

func (b *bench) group(name string, commands []string, beside bool) ([]float64, error) {
	const cores, rest = 40, 60
	script := ""
	for _, command := range commands {
		script += `"$0" load ` + command + " & "
	}
	fixed := func(cores int) []string { return []string{"--cores", fmt.Sprint(cores), "--policy", "fixed"} }
	if beside {
		t, err := b.Start(fixed(rest), b.Gpubench, "load", "--ns", "1000000")
		if err != nil {
			return nil, err
		}
		defer t.End()
	}
	t, err := b.Start(fixed(cores), "sh", "-c", script+"wait", b.Gpubench)
	if err != nil {
		return nil, err
	}
	defer t.End()
	pids, since, err := t.Working(len(commands))
	if err != nil {
		return nil, err
	}
	got, err := b.windows(pids, since, kernels{window: time.Second})
	if err != nil {
		return nil, err
	}
	fmt.Printf("  %-24s of %d: got %s\n", name, cores, numbers(got))
	var errs []float64
	for _, part := range got {
		errs = append(errs, math.Abs(part-cores))
	}
	return errs, nil
}
