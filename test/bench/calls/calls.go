// Package calls compares what calls through our library cost in two builds of it: an older one, built in a tree of its
// own, and the one at hand. Both run the program of lib/cuda/test/calls.c in front of the fake driver.
package calls

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
)

// Kind is a kind of calls that the program makes. Count of them take about 30 ms.
type Kind struct {
	Word, Name string
	Count      int
}

// The kinds that the program knows.
var (
	Launch   = Kind{"launch", "launch, no limit", 2_000_000}
	Capped   = Kind{"capped", "launch, limited", 400_000}
	Allocate = Kind{"allocate", "allocation", 200_000}
	Both     = Kind{"both", "allocation and free", 200_000}
	Lookup   = Kind{"lookup", "look-up", 100_000}
)

// Pair is the program in the two builds.
type Pair struct {
	dir           string
	before, after string
}

// Build builds the library of an older commit, with today's program of calls. Close removes it.
func Build(ctx context.Context, commit, build string) (_ *Pair, err error) {
	dir, err := os.MkdirTemp("", "divvy-bench-")
	if err != nil {
		return nil, fmt.Errorf("make a folder: %w", err)
	}
	p := &Pair{dir: dir, after: filepath.Join(build, "test", "cuda", "calls")}
	p.before = filepath.Join(p.tree(), "build", "test", "cuda", "calls")
	defer func() {
		if err != nil {
			err = errors.Join(err, p.Close(ctx))
		}
	}()
	if err := command(ctx, "git", "worktree", "add", "--detach", p.tree(), commit); err != nil {
		return nil, err
	}
	program, err := os.ReadFile("lib/cuda/test/calls.c")
	if err != nil {
		return nil, fmt.Errorf("read the program of calls: %w", err)
	}
	if err := os.WriteFile(filepath.Join(p.tree(), p.source()), program, 0o644); err != nil {
		return nil, fmt.Errorf("write the program of calls: %w", err)
	}
	return p, command(ctx, "make", "-s", "-C", p.tree(), "build/test/cuda/calls")
}

func (p *Pair) tree() string {
	return filepath.Join(p.dir, "tree")
}

// source is the file from which the older makefile builds the program.
func (p *Pair) source() string {
	if _, err := os.Stat(filepath.Join(p.tree(), "lib/cuda/test/calls.c")); err == nil {
		return "lib/cuda/test/calls.c"
	}
	return "lib/cuda/test/test_calls.c"
}

// Close removes the older build, also after ctx is done.
func (p *Pair) Close(ctx context.Context) error {
	var err error
	if _, stat := os.Stat(p.tree()); stat == nil {
		err = command(context.WithoutCancel(ctx), "git", "worktree", "remove", "--force", p.tree())
	}
	return errors.Join(err, os.RemoveAll(p.dir))
}

// Times runs both builds again and again, one right after the other, and returns for each round how many percent more
// processor time a call takes now.
func (p *Pair) Times(ctx context.Context, kind Kind, rounds int) ([]float64, error) {
	builds := [2]string{p.before, p.after}
	var more []float64
	for round := range rounds {
		var each [2]float64
		for k := range builds {
			i := (k + round) % 2
			text, err := exec.CommandContext(ctx, builds[i], kind.Word, strconv.Itoa(kind.Count)).Output()
			if err != nil {
				return nil, fmt.Errorf("run %s %s: %w", builds[i], kind.Word, err)
			}
			if each[i], err = strconv.ParseFloat(strings.TrimSpace(string(text)), 64); err != nil {
				return nil, fmt.Errorf("read what %s %s took: %w", builds[i], kind.Word, err)
			}
		}
		more = append(more, PercentMore(each[0], each[1]))
	}
	return more, nil
}

// Instructions counts those of one call in both builds, the fake driver's own included.
func (p *Pair) Instructions(ctx context.Context, kind Kind) (before, after float64, err error) {
	if before, err = instructions(ctx, p.before, kind); err != nil {
		return 0, 0, err
	}
	after, err = instructions(ctx, p.after, kind)
	return before, after, err
}

// PercentMore says how many percent after is more than before.
func PercentMore(before, after float64) float64 {
	return 100 * (after/before - 1)
}

var references = regexp.MustCompile(`I\s+refs:\s+([0-9,]+)`)

// instructions is what twice as many calls take more.
func instructions(ctx context.Context, program string, kind Kind) (float64, error) {
	const few = 20_000
	var counted [2]float64
	for i := range counted {
		text, err := exec.CommandContext(ctx, "valgrind", "--tool=cachegrind", "--cache-sim=no", "--cachegrind-out-file=/dev/null",
			program, kind.Word, strconv.Itoa((i+1)*few)).CombinedOutput()
		match := references.FindSubmatch(text)
		if err != nil || match == nil {
			return 0, fmt.Errorf("count the instructions of %s: %w: %s", kind.Word, err, text)
		}
		if counted[i], err = strconv.ParseFloat(strings.ReplaceAll(string(match[1]), ",", ""), 64); err != nil {
			return 0, fmt.Errorf("read the instructions of %s: %w", kind.Word, err)
		}
	}
	return (counted[1] - counted[0]) / few, nil
}

func command(ctx context.Context, argv ...string) error {
	text, err := exec.CommandContext(ctx, argv[0], argv[1:]...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("run %s: %w: %s", strings.Join(argv, " "), err, text)
	}
	return nil
}
