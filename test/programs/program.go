package programs

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"time"
)

// Program is a program of another project.
type Program struct {
	Name string

	// machine is the simulated machine that it runs on, and gpu the GPU that a share is of.
	machine string
	gpu     int
	limit   uint64
	check   func(ctx context.Context, p *place) error
}

// longest bounds a check; the slowest takes some ten seconds.
const longest = 3 * time.Minute

// Check runs the program in one of [Ways], on a machine of its own, and returns everything that was not right.
func (p Program) Check(ctx context.Context, s Setting, way string) (err error) {
	ctx, cancel := context.WithTimeout(ctx, longest)
	defer cancel()
	at, err := s.open(ctx, p.machine, way, p.gpu, p.limit)
	if err != nil {
		return fmt.Errorf("start a simulated machine: %w", err)
	}
	defer func() { err = errors.Join(err, at.close(ctx)) }()
	return errors.Join(p.check(ctx, at), at.settled(ctx))
}

// output returns what a program says on standard output; a failure carries what it said on both.
func output(cmd *exec.Cmd) (string, error) {
	var errs strings.Builder
	cmd.Stderr = &errs
	text, err := cmd.Output()
	if err != nil {
		return string(text), fmt.Errorf("%w: %s%s", err, errs.String(), text)
	}
	return string(text), nil
}

// All are the programs that must run right.
func All() []Program {
	all := []Program{video, hashes}
	for _, c := range calculators {
		all = append(all, c.program())
	}
	return append(all, monitors...)
}
