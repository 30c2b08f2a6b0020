package main

import (
	"context"
	"errors"
	"fmt"
	"math"

	"github.com/divvy-gpu/divvy/internal/residency"
	"github.com/divvy-gpu/divvy/test/bench/measurement"
)

const (
	turnsID = "swap.turns_ratio"
	fairID  = "swap.fair_points"
	// played is the machine of the virtual figures, with what swap shares may have of it and how fast its link is.
	played     = "p100-16g"
	playedRoom = (16*1024 - 104 - 3*304) * mib
	playedRate = 12_200_000_000
)

// steps are the lengths of what programs do between two looks at their gate, ns of GPU time: one run each.
var steps = []uint64{second / 5, second / 2, 2 * second}

// onStage opens the played machine, has something done there, and closes it.
func onStage(ctx context.Context, o options, free bool, do func(*stage) error) error {
	p, err := play(ctx, o, played)
	if err != nil {
		return err
	}
	s := &stage{player: p, gpu: residency.GPU{Room: playedRoom, Rate: playedRate}, free: free}
	return errors.Join(do(s), p.close())
}

// part is a program that has so many percent of the room.
func part(i, percent int, step uint64) *program {
	return &program{name: fmt.Sprint("p", i), weight: 1, area: playedRoom * uint64(percent) / 100 / areas / mib / 2 * 2, step: step}
}

// virtualTurns compares programs that take turns with the same ones after another.
func virtualTurns(ctx context.Context, o options) ([]measurement.Row, error) {
	var rows []measurement.Row
	for _, c := range []struct {
		name           string
		count, percent int
		goal           float64
	}{
		{"two of 95 %, virtual", 2, 95, 1.05},
		{"three of 60 %, virtual", 3, 60, 1.12},
	} {
		var ratios []float64
		var note string
		for _, step := range steps[:o.times(len(steps))] {
			work := int(400 * second / step)
			if o.quick {
				work /= 4
			}
			all := func(s *stage) error {
				for i := range c.count {
					p := part(i, c.percent, step)
					p.left = work
					if err := s.add(p); err != nil {
						return err
					}
				}
				return s.run(ctx, nil)
			}
			alone, err := serial(ctx, o, part(0, c.percent, step), work)
			if err != nil {
				return nil, err
			}
			err = onStage(ctx, o, false, func(s *stage) error {
				err := all(s)
				ratios = append(ratios, float64(s.now)/float64(alone*uint64(c.count)))
				turns := 0
				for _, p := range s.programs {
					turns += p.residents
				}
				note = fmt.Sprintf("%d turns in %.0f s, in steps of %.1f s.", turns, float64(s.now)/float64(second), float64(step)/float64(second))
				return err
			})
			if err != nil {
				return nil, err
			}
		}
		r := row(turnsID, c.name, "", c.goal, measurement.Lower, ratios)
		r.Note = fmt.Sprintf("Each has %d s of work, in steps of three lengths. The last run had ", 400) + note
		rows = append(rows, r)
	}
	return rows, nil
}

// serial is how long one program takes alone, ns.
func serial(ctx context.Context, o options, p *program, work int) (took uint64, err error) {
	err = onStage(ctx, o, true, func(s *stage) error {
		p.left = work
		if err := s.add(p); err != nil {
			return err
		}
		err := s.run(ctx, nil)
		took = s.now
		return err
	})
	return took, err
}

// virtualFair has two programs that never end share a GPU for ten turns of each weight's.
func virtualFair(ctx context.Context, o options) ([]measurement.Row, error) {
	var rows []measurement.Row
	for _, weights := range [][]int{{1, 1}, {1, 3}} {
		var off []float64
		var note string
		for _, step := range steps[:o.times(len(steps))] {
			err := onStage(ctx, o, false, func(s *stage) error {
				for i, weight := range weights {
					p := part(i, 95, step)
					p.weight, p.left = weight, math.MaxInt
					if err := s.add(p); err != nil {
						return err
					}
				}
				err := s.run(ctx, func() bool { return s.programs[0].residents+s.programs[1].residents > 10 })
				a, b := float64(s.executed["p0"]), float64(s.executed["p1"])
				want := 100 * float64(weights[0]) / float64(weights[0]+weights[1])
				got := 100 * a / (a + b)
				off = append(off, math.Abs(got-want))
				note = fmt.Sprintf("The last run had %.1f and %.1f %% in %.0f s.", got, 100-got, float64(s.now)/float64(second))
				return err
			})
			if err != nil {
				return nil, err
			}
		}
		r := row(fairID, fmt.Sprintf("weights %d:%d, virtual", weights[0], weights[1]), "points", 3, measurement.Lower, off)
		r.Note = note
		rows = append(rows, r)
	}
	return rows, nil
}
