package checkpointer

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/divvy-gpu/divvy/internal/nvml/helper"
	"github.com/divvy-gpu/divvy/internal/suspension"
)

// The outcomes of a question.
var (
	// ErrUnsupported: the driver has no checkpoints of processes.
	ErrUnsupported = errors.New("the driver has no checkpoints of processes: they need driver 570 or later on x86-64")
	// ErrRefused: the driver answered with an error, see [Refusal].
	ErrRefused = errors.New("the driver refused")
	// ErrSilent: no answer came in time. The driver may still do what it was asked.
	ErrSilent = errors.New("the driver does not answer")
	// ErrEnded: who asked for us has ended. The driver may have done what it was asked, or still do it.
	ErrEnded = errors.New("the process that asks the driver has ended")
	// ErrHeld: nobody is asked now, see [Checkpointer.Hold]. Nothing was asked, so it can be asked again.
	ErrHeld = errors.New("the driver is asked for no checkpoints while a GPU changes or leaves it")
	// ErrBusy: what the driver was asked before takes too long to wait for.
	ErrBusy = errors.New("the driver is still busy with checkpoints: try again")
	// ErrClosed: nobody is asked any more.
	ErrClosed = errors.New("the driver is asked no more")
)

// Refusal is an error of the driver's.
type Refusal struct {
	Act    suspension.Act
	PID    int
	Result int // CUresult
}

// Error implements error.
func (r *Refusal) Error() string {
	return fmt.Sprintf("%s process %d: the driver answers with result %d", r.Act, r.PID, r.Result)
}

// Unwrap implements errors.Is.
func (r *Refusal) Unwrap() error { return ErrRefused }

// The driver's results by which it is decided.
const (
	resultSuccess      = 0
	resultInvalidValue = 1 // of a process that it does not see, may not touch, or that does not use it
)

// Config is what a Checkpointer works with.
type Config struct {
	// Start starts a process that answers, see package comment.
	Start func() (helper.Process, error)
	// Open bounds how long opening the driver may take, and Look how long a question about a state.
	Open, Look time.Duration
	// Hold bounds how long [Checkpointer.Hold] waits for what was asked before.
	Hold time.Duration
	Log  *slog.Logger
}

// Usual are the usual bounds.
func Usual(start func() (helper.Process, error), log *slog.Logger) Config {
	return Config{Start: start, Open: 30 * time.Second, Look: 5 * time.Second, Hold: 20 * time.Second, Log: log}
}

// Checkpointer asks the driver. Questions about several processes may be asked at once: each is asked by a process of its
// own, so that one that is not answered holds up no other. The last one to answer is kept, so that the driver stays open.
type Checkpointer struct {
	config Config

	mu   sync.Mutex
	idle *asker // nil for none
	// all are those that have not ended.
	all    map[*asker]bool
	closed bool
	// holds counts those who want nobody to have the driver open.
	holds int
	// version is the driver's, of the last that was opened.
	version int
}

// New returns a Checkpointer, which starts nothing before it is asked.
func New(c Config) *Checkpointer {
	return &Checkpointer{config: c, all: map[*asker]bool{}}
}

// Version is the driver's version of CUDA, as 12080 for 12.8, or why it cannot be asked.
func (c *Checkpointer) Version(ctx context.Context) (int, error) {
	a, err := c.take(ctx)
	if err != nil {
		return 0, err
	}
	c.give(a)
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.version, nil
}

// State asks how far a process is. One that the driver does not know is [suspension.Unused].
func (c *Checkpointer) State(ctx context.Context, pid int) (suspension.State, error) {
	result, state, err := c.ask(ctx, fmt.Sprintf("state %d\n", pid), c.config.Look)
	switch {
	case err != nil:
		return 0, fmt.Errorf("ask for the state of process %d: %w", pid, err)
	case result == resultInvalidValue:
		return suspension.Unused, nil
	case result != resultSuccess:
		return 0, fmt.Errorf("ask for the state of process %d: %w with result %d", pid, ErrRefused, result)
	}
	return state, nil
}

// Do asks for an act, whose answer comes within a limit, and returns the state of the process after it. A lock waits for
// less than the limit until the process's calls have returned, and is not made if they do not. The state is
// [suspension.Unused] where it is not known.
func (c *Checkpointer) Do(ctx context.Context, act suspension.Act, pid int, limit time.Duration) (suspension.State, error) {
	question := fmt.Sprintf("%s %d\n", act, pid)
	if act == suspension.Lock {
		question = fmt.Sprintf("%s %d %d\n", act, pid, max(1, limit.Milliseconds()))
		limit += c.config.Look
	}
	result, state, err := c.ask(ctx, question, limit)
	switch {
	case err != nil:
		return suspension.Unused, fmt.Errorf("%s process %d: %w", act, pid, err)
	case result != resultSuccess:
		return state, &Refusal{Act: act, PID: pid, Result: result}
	}
	return state, nil
}

// ask puts a question to a process that is free, or to a new one.
func (c *Checkpointer) ask(ctx context.Context, question string, limit time.Duration) (result int, state suspension.State, err error) {
	a, err := c.take(ctx)
	if err != nil {
		return 0, 0, err
	}
	line, err := a.exchange(ctx, question, limit)
	if err == nil {
		var number int
		if _, err = fmt.Sscanf(line, "%d %d", &result, &number); err != nil {
			err = fmt.Errorf("read %q: %w", line, ErrEnded)
		}
		state = suspension.State(number)
	}
	if err != nil {
		c.drop(a)
		return 0, 0, err
	}
	c.give(a)
	return result, state, nil
}

// take returns a process that has the driver open and is asked nothing.
func (c *Checkpointer) take(ctx context.Context) (*asker, error) {
	c.mu.Lock()
	a, err := c.idle, c.refusal()
	c.idle = nil
	c.mu.Unlock()
	switch {
	case err != nil:
		return nil, err // one that is idle was ended
	case a != nil && a.alive():
		return a, nil
	case a != nil:
		c.drop(a)
	}
	return c.open(ctx)
}

// refusal is why nobody is asked now, nil if somebody is. mu is held.
func (c *Checkpointer) refusal() error {
	switch {
	case c.closed:
		return ErrClosed
	case c.holds > 0:
		return ErrHeld
	}
	return nil
}

// start starts a process. It does so under the lock: who holds all of them has to know each.
func (c *Checkpointer) start() (*asker, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.refusal(); err != nil {
		return nil, err
	}
	p, err := c.config.Start()
	if err != nil {
		return nil, err
	}
	a := newAsker(p)
	c.all[a] = true
	go func() {
		<-p.Ended()
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.all, a)
	}()
	return a, nil
}

// open starts a process, and waits until it has the driver open.
func (c *Checkpointer) open(ctx context.Context) (*asker, error) {
	a, err := c.start()
	if err != nil {
		return nil, err
	}
	line, err := a.exchange(ctx, "", c.config.Open)
	var word string
	var version int
	if err == nil {
		_, _ = fmt.Sscanf(line, "%s %d", &word, &version) // a word that is not known says it
	}
	switch {
	case err != nil:
		err = fmt.Errorf("open the driver for checkpoints: %w", err)
	case word == "none":
		err = ErrUnsupported
	case word != "ready":
		err = fmt.Errorf("open the driver for checkpoints: %q", line)
	default:
		c.mu.Lock()
		c.version, err = version, c.refusal() // nothing long is begun that somebody would wait for
		c.mu.Unlock()
	}
	if err != nil {
		c.drop(a)
		return nil, err
	}
	return a, nil
}

// give keeps a process for the next question, unless there is another.
func (c *Checkpointer) give(a *asker) {
	c.mu.Lock()
	if c.idle == nil && c.refusal() == nil {
		c.idle = a
		a = nil
	}
	c.mu.Unlock()
	if a != nil {
		c.drop(a)
	}
}

// drop ends a process. One that does not end, because it sleeps in the kernel, is left to itself.
func (c *Checkpointer) drop(a *asker) {
	a.process.Close()
	a.process.Kill()
}

// Hold has nobody have the driver open on account of checkpoints until release is called: questions are answered with
// [ErrHeld]. It waits for what was asked before, because a process that is being saved or restored is worth more than what
// it is held for. Where that takes too long, or a process does not end, it is [ErrBusy], and nothing is held.
func (c *Checkpointer) Hold() (release func(), err error) {
	c.mu.Lock()
	c.holds++
	idle, all := c.idle, slices.Collect(maps.Keys(c.all))
	c.idle = nil
	c.mu.Unlock()
	release = sync.OnceFunc(func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.holds--
	})
	if idle != nil {
		c.drop(idle)
	}
	for until := time.Now().Add(c.config.Hold); len(all) > 0; all = all[1:] {
		if !all[0].awaitEnd(time.Until(until)) {
			release()
			return nil, ErrBusy
		}
	}
	return release, nil
}

// Close ends all processes. What they were asking is cut short.
func (c *Checkpointer) Close() error {
	c.mu.Lock()
	c.closed = true
	all := slices.Collect(maps.Keys(c.all))
	c.idle = nil
	c.mu.Unlock()
	for _, a := range all {
		c.drop(a)
	}
	until := time.Now().Add(c.config.Look)
	for _, a := range all {
		if !a.awaitEnd(time.Until(until)) {
			c.config.Log.Warn("a process that asks the driver for checkpoints does not end")
		}
	}
	return nil
}
