package main

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"math"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/divvy-gpu/divvy/test/bench/measurement"
)

const modelID = "swap.model_error_percent"

// experiment is a published measurement and what the simulated driver makes of it.
type experiment struct {
	name       string
	have, want float64
}

func (e experiment) off() float64 { return 100 * math.Abs(e.have/e.want-1) }

// published makes the measurements of nvshare's thesis again, by the simulated driver's own test.
func published(ctx context.Context, o options) ([]measurement.Row, error) {
	text, err := exec.CommandContext(ctx, filepath.Join(o.build, "test", "simgpu", "machine", "published")).Output()
	if err != nil {
		return nil, fmt.Errorf("make published measurements again: %w", err)
	}
	all := experiments(text)
	of := func(name, begins, unit string, goal float64, better measurement.Direction, value func(experiment) float64) (measurement.Row, error) {
		var runs []float64
		note := "Published and simulated:"
		for _, e := range all {
			if strings.HasPrefix(e.name, begins) {
				runs = append(runs, value(e))
				note += fmt.Sprintf(" %s %g, %g;", strings.TrimPrefix(strings.TrimPrefix(e.name, begins), ": "), e.want, e.have)
			}
		}
		if len(runs) == 0 {
			return measurement.Row{}, fmt.Errorf("look for %q: %w", begins, errNone)
		}
		r := row(modelID, name, unit, goal, better, runs)
		r.Value = r.Worst // each of them has to reach the goal
		r.Note = strings.TrimSuffix(note, ";") + "."
		return r, nil
	}
	var rows []measurement.Row
	for _, c := range []struct {
		name, begins, unit string
		goal               float64
		better             measurement.Direction
		value              func(experiment) float64
	}{
		{"2 × 15.3 GB by turns of 14 lengths", "2 x 15.3 GB, turns of ", "%", 5, measurement.Lower, experiment.off},
		{"18 GiB swept twice, bytes each way", "18 GiB swept twice: ", "%", 5, measurement.Lower, experiment.off},
		{"2 × 15.3 GB without turns", "2 x 15.3 GB without turns", "× serial", 4, measurement.Higher, func(e experiment) float64 { return e.have }},
	} {
		r, err := of(c.name, c.begins, c.unit, c.goal, c.better, c.value)
		if err != nil {
			return nil, err
		}
		rows = append(rows, r)
	}
	return rows, nil
}

// experiments are in lines of a name, what is simulated, what was published, and the difference in percent.
func experiments(text []byte) (all []experiment) {
	for lines := bufio.NewScanner(bytes.NewReader(text)); lines.Scan(); {
		fields := strings.Fields(lines.Text())
		if len(fields) < 5 || fields[len(fields)-1] != "%" {
			continue
		}
		figures := fields[len(fields)-4 : len(fields)-2]
		have, errHave := strconv.ParseFloat(figures[0], 64)
		want, errWant := strconv.ParseFloat(figures[1], 64)
		if errHave == nil && errWant == nil {
			all = append(all, experiment{strings.Join(fields[:len(fields)-4], " "), have, want})
		}
	}
	return all
}
