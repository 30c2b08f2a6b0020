package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strconv"
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

// setup is one way to run crowds.
type setup struct {
	name   string
	crowds []crowd
	start  func(m *simulated.Machine, flags, program []string) (*simulated.Tenant, error)
	after  time.Duration // the window begins so long after the first launch
	window time.Duration
}

func once(m *simulated.Machine, flags, program []string) (*simulated.Tenant, error) {
	return m.Start(flags, program...)
}

// again starts a program for a second, again and again in one share, and anew each time in
// a new one.
func again(m *simulated.Machine, flags, program []string) (*simulated.Tenant, error) {
	return m.Start(flags, append([]string{"sh", "-c", `while :; do "$@" --seconds 1; done`, "sh"}, program...)...)
}

func anew(m *simulated.Machine, flags, program []string) (*simulated.Tenant, error) {
	return m.StartAnew(flags, append(program, "--seconds", "1")...)
}

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
		{"fresh", all, once, 0, coldWindow},
		{"restarted every second", few, again, 0, coldWindow},
		{"new share each time", few, anew, 0, coldWindow},
		{"learned", few, once, learning, learnedWindow},
	}
	if quick {
		list[3].window = coldWindow
	}
	return list
}

// beyond is how much more of the GPU's time than its cap a program got, in points. Each has a machine of its own,
// because it would begin with the debts of the one before.
func (s *setup) beyond(ctx context.Context, o options, c crowd, percent int) (_ float64, err error) {
	m, err := simulated.Open(ctx, o.build, machine)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, m.Close()) }()
	t, err := s.start(m, cores(percent), c.load(m))
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
	t.End()
	return points, m.Alone()
}

// capCold holds crowds to caps from the first launch on. The value of a case is its worst crowd.
func capCold(ctx context.Context, o options) ([]measurement.Row, error) {
	var rows []measurement.Row
	for _, s := range setups(o.quick) {
		for _, percent := range []int{10, 30} {
			worst := math.Inf(-1)
			for _, c := range s.crowds {
				points, err := s.beyond(ctx, o, c, percent)
				if err != nil {
					return nil, fmt.Errorf("%s, cap %d, %v: %w", s.name, percent, c, err)
				}
				worst = max(worst, points)
			}
			rows = append(rows, row("promise.cap_cold_points", fmt.Sprintf("%s, cap %d", s.name, percent), "points", 2,
				[]float64{max(worst, 0)}))
		}
	}
	return rows, nil
}
