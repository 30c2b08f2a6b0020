// Package suspensions suspends and resumes shares at random on a simulated GPU that has no room for all of them, while
// their programs work, and kills agent and helper meanwhile. The programs look at their memory at the end.
package suspensions

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"path/filepath"
	"time"

	"github.com/divvy-gpu/divvy/internal/agent/control"
	"github.com/divvy-gpu/divvy/internal/checkpointer"
	"github.com/divvy-gpu/divvy/internal/install"
	"github.com/divvy-gpu/divvy/internal/nvml/helper"
	"github.com/divvy-gpu/divvy/internal/suspension"
)

// Options say what is run.
type Options struct {
	Tree install.Tree
	// Count is how many suspensions there are, each with a resumption.
	Count int
	// Kills has agent or helper killed in every other one, at a random moment.
	Kills bool
	Seed  uint64
}

// Result is what happened.
type Result struct {
	// Suspensions is how many were carried out, Agents and Helpers how many were killed meanwhile.
	Suspensions, Agents, Helpers int
	// Changed are bytes of programs that were not as before, and Lost programs that did not work any more.
	Changed uint64
	Lost    int
	// Took are the times of suspensions and their resumptions together, as whoever asked saw them, of those in which nobody
	// was killed and which did not wait for room.
	Took []time.Duration
	// Driver is how long the driver's own calls for one of these took, in its middle.
	Driver time.Duration
}

// Run runs it. An error says that it could not be judged.
func Run(ctx context.Context, o Options) (r Result, err error) {
	w, err := open(ctx, o.Tree)
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, w.close()) }()
	c := campaign{world: w, options: o, random: rand.New(rand.NewPCG(o.Seed, 2)), result: &r}
	for i := range shares {
		if i >= fit {
			if err := c.suspend(ctx, c.in[0]); err != nil {
				return r, err
			}
			c.out, c.in = append(c.out, c.in[0]), c.in[1:]
		}
		p, err := w.start(ctx, fmt.Sprintf("p%d", i))
		if err != nil {
			return r, err
		}
		c.in = append(c.in, p)
	}
	for r.Suspensions < o.Count {
		if err := c.exchange(ctx); err != nil {
			return r, fmt.Errorf("%w; the agent said: %s", err, tail(w.log.String()))
		}
	}
	if err := c.time(ctx); err != nil {
		return r, err
	}
	return r, c.judge(ctx)
}

func tail(text string) string { return text[max(0, len(text)-2000):] }

// campaign is a run.
type campaign struct {
	*world
	options Options
	random  *rand.Rand
	result  *Result
	in, out []*program
}

// ask asks the agent, and the next one if it ends.
func (c *campaign) ask(ctx context.Context, f func(*control.Client) error) (err error) {
	waited := until(ctx, "an agent answers", func() bool {
		client, dialled := c.dial(ctx)
		if err = dialled; err == nil {
			err = errors.Join(f(client), client.Close())
		}
		return err == nil || control.CodeOf(err) != control.CodeInternal
	})
	if waited != nil {
		return errors.Join(waited, err)
	}
	return err
}

// suspend suspends a program's share, again where a kill or a call that took long had it turned round.
func (c *campaign) suspend(ctx context.Context, p *program) error {
	deadline := time.Now().Add(longest)
	for {
		err := c.ask(ctx, func(client *control.Client) error {
			_, err := client.Suspend(ctx, control.SuspendParams{Tenant: p.name, Hold: true})
			return err
		})
		if err == nil || control.CodeOf(err) != control.CodeRefused || time.Now().After(deadline) {
			return err
		}
	}
}

func (c *campaign) resume(ctx context.Context, p *program) error {
	return c.ask(ctx, func(client *control.Client) error {
		_, err := client.Resume(ctx, control.ResumeParams{Tenant: p.name}, nil)
		return err
	})
}

// exchange resumes a share that is out while one that is in leaves, the one before the other or the other way round, and
// kills somebody meanwhile.
func (c *campaign) exchange(ctx context.Context) error {
	in, out := c.random.IntN(len(c.in)), c.random.IntN(len(c.out))
	comes, goes := c.out[out], c.in[in]
	killed := make(chan error, 1)
	go func(agent bool, after time.Duration) { killed <- c.kill(ctx, agent, after) }(c.random.IntN(4) == 0, time.Duration(c.random.IntN(250_000))*time.Microsecond)
	came := make(chan error, 1)
	first := c.random.IntN(2) == 0
	if first {
		go func() { came <- c.resume(ctx, comes) }()
	}
	left := c.suspend(ctx, goes)
	if !first {
		came <- c.resume(ctx, comes)
	}
	if err := errors.Join(left, <-came, <-killed); err != nil {
		return fmt.Errorf("%s leaves for %s: %w", goes.name, comes.name, err)
	}
	c.in[in], c.out[out] = comes, goes
	c.result.Suspensions++
	return nil
}

// kill kills agent or helper after a while, in every other call.
func (c *campaign) kill(ctx context.Context, agent bool, after time.Duration) error {
	if !c.options.Kills || c.result.Suspensions%2 == 0 {
		return nil
	}
	select {
	case <-time.After(after):
	case <-ctx.Done():
		return ctx.Err()
	}
	if agent {
		c.result.Agents++
		return c.killAgent(ctx)
	}
	if c.killHelper() {
		c.result.Helpers++
	}
	return nil
}

// timed is how many suspensions are timed.
const timed = 100

// time times suspensions and resumptions of one share, and the driver's own calls for the same process.
func (c *campaign) time(ctx context.Context) error {
	p := c.in[0]
	for range min(timed, c.options.Count) {
		begun := time.Now()
		if err := c.suspend(ctx, p); err != nil {
			return err
		}
		if err := c.resume(ctx, p); err != nil {
			return err
		}
		c.result.Took = append(c.result.Took, time.Since(begun))
	}
	var err error
	c.result.Driver, err = c.driver(ctx, p.cmd.Process.Pid)
	return err
}

// driver is how long the driver's own calls take that suspend and resume a process.
func (c *campaign) driver(ctx context.Context, pid int) (time.Duration, error) {
	start := helper.Start(c.tree.Program("divvy-checkpoint"), filepath.Join(c.rundir, "simgpu", "m", "libcuda.so.1"))
	own := checkpointer.New(checkpointer.Usual(start, slog.New(slog.DiscardHandler)))
	if _, err := own.Version(ctx); err != nil {
		return 0, errors.Join(err, own.Close())
	}
	var least time.Duration
	for range 20 {
		begun := time.Now()
		for _, act := range []suspension.Act{suspension.Lock, suspension.Save, suspension.Restore, suspension.Unlock} {
			if _, err := own.Do(ctx, act, pid, longest); err != nil {
				return 0, errors.Join(err, own.Close())
			}
		}
		if took := time.Since(begun); least == 0 || took < least {
			least = took
		}
	}
	return least, own.Close()
}

// judge has every program look at its memory: those that are out once the others have ended.
func (c *campaign) judge(ctx context.Context) error {
	for _, p := range c.in {
		c.count(p)
	}
	for _, p := range c.out {
		if err := c.resume(ctx, p); err != nil {
			return err
		}
		c.count(p)
	}
	return nil
}

func (c *campaign) count(p *program) {
	if !p.finish() {
		c.result.Lost++
	}
	c.result.Changed += p.last.Changed
}
