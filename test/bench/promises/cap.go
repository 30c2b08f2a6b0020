package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/divvy-gpu/divvy/test/bench/measurement"
	"github.com/divvy-gpu/divvy/test/bench/simulated"
)

// The figures of caps are taken in windows of these lengths.
const (
	coldWindow    = 15 * time.Second
	learnedWindow = 60 * time.Second
	// learning is how long a program runs before the longer one begins.
	learning = 10 * time.Second
	// long is the kernel of which one may go beyond the cap, because no launch can be cut.
	long = 500 * time.Millisecond
)

// crowd is threads that launch kernels of one length, each into a stream of its own.
type crowd struct {
	threads int
	kernel  time.Duration
}

func (c crowd) String() string { return fmt.Sprintf("%d x %v", c.threads, c.kernel) }

// load is gpubench's command. Threads share their kernels, so there are as many as threads.
func (c crowd) load(m *simulated.Machine) []string {
	return []string{m.Gpubench, "load", "--threads", strconv.Itoa(c.threads), "--different", strconv.Itoa(max(c.threads, 2)),
		"--ns", strconv.FormatInt(c.kernel.Nanoseconds(), 10), "--grid", "1000"}
}

// again is a program that runs another one for a second, again and again.
func again(argv []string) []string {
	return []string{"sh", "-c", "while :; do " + strings.Join(argv, " ") + " --seconds 1; done"}
}

// setup is one way to run crowds.
type setup struct {
	name    string
	crowds  []crowd
	program func(argv []string) []string
	after   time.Duration // the window begins so long after the first launch
	window  time.Duration
}

func same(argv []string) []string { return argv }

func setups(quick bool) []setup {
	var all []crowd
	for _, kernel := range []time.Duration{2 * time.Millisecond, 20 * time.Millisecond, 100 * time.Millisecond, long} {
		for _, threads := range []int{1, 4, 16} {
			all = append(all, crowd{threads, kernel})
		}
	}
	few := []crowd{{16, 2 * time.Millisecond}, {4, 100 * time.Millisecond}, {16, long}}
	if quick {
		all = few
	}
	list := []setup{
		{"fresh", all, same, 0, coldWindow},
		{"restarted every second", few, again, 0, coldWindow},
		{"learned", few, same, learning, learnedWindow},
	}
	if quick {
		list[2].window = coldWindow
	}
	return list
}

// beyond is how much more of the GPU's time than its cap a program got, in points.
func (s *setup) beyond(ctx context.Context, m *simulated.Machine, c crowd, percent int) (float64, error) {
	t, err := m.Start(cores(percent), s.program(c.load(m))...)
	if err != nil {
		return 0, err
	}
	defer t.End()
	_, since, err := t.Working(1)
	if err != nil {
		return 0, err
	}
	from := since + uint64(s.after)
	first, last, err := m.Oracle.Between(ctx, from, from+uint64(s.window))
	if err != nil {
		return 0, err
	}
	used, passed := float64(last.Busy-first.Busy), float64(last.At-first.At)
	if c.kernel == long {
		used = max(used-float64(long), 0)
	}
	points := 100*used/passed - float64(percent)
	fmt.Printf("  %-24s cap %d, %-12v %6.2f points beyond\n", s.name, percent, c, points)
	return points, nil
}

// capCold holds crowds to caps from the first launch on. The value of a case is its worst crowd.
func capCold(ctx context.Context, o options) (_ []measurement.Row, err error) {
	m, err := simulated.Open(ctx, o.build, machine)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, m.Close()) }()
	var rows []measurement.Row
	for _, s := range setups(o.quick) {
		for _, percent := range []int{10, 30} {
			worst := math.Inf(-1)
			for _, c := range s.crowds {
				points, err := s.beyond(ctx, m, c, percent)
				if err != nil {
					return nil, fmt.Errorf("%s, cap %d, %v: %w", s.name, percent, c, err)
				}
				if err := m.Alone(); err != nil {
					return nil, err
				}
				worst = max(worst, points)
			}
			rows = append(rows, row("promise.cap_cold_points", fmt.Sprintf("%s, cap %d", s.name, percent), "points", 2,
				[]float64{max(worst, 0)}))
		}
	}
	return rows, nil
}
