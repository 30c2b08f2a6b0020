package vfio

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/divvy-gpu/divvy/internal/checkpoint"
	"github.com/divvy-gpu/divvy/internal/vm/binding"
)

// Book keeps the devices of one machine that are given to virtual machines. Its functions may be called at the same time;
// what is about one device does not wait for another one.
type Book struct {
	config Config
	closed chan struct{}
	end    func()
	work   sync.WaitGroup

	// broken is why nothing of the book can be known, nil where all is well.
	broken error

	mu   sync.Mutex // held while the file is saved; never while a device is waited for
	file *checkpoint.File[[]Entry]
	jobs []*job
}

// job is an entry with what is done about it. Book.mu guards it, except that the goroutine which is busy with it alone
// changes the entry.
type job struct {
	entry Entry
	// busy is true while a goroutine works on it.
	busy bool
	// wanted is false once it is to be put back.
	wanted bool
	// late is true once somebody was told that it is stuck.
	late bool
	// fault is why the last work failed, left what it found changed.
	fault error
	left  []Foreign
	// change is closed and replaced when any of this changes.
	change chan struct{}
	writer Writer
}

// Open reads the book at a path. A file that does not exist is an empty book. [Book.Recover] must follow.
func Open(c Config) (*Book, error) {
	if c.Now == nil {
		c.Now = time.Now
	}
	closed := make(chan struct{})
	b := &Book{config: c, closed: closed, end: sync.OnceFunc(func() { close(closed) }), file: checkpoint.NewFile[[]Entry](c.Path, "vfio", 1)}
	entries, err := b.file.Load()
	if err != nil {
		return nil, fmt.Errorf("read which devices are with virtual machines: %w", err)
	}
	for _, e := range entries {
		if e.Begun < 0 || e.Begun > len(e.Plan.Steps) {
			return nil, fmt.Errorf("read which devices are with virtual machines: %w: %d steps of %d", checkpoint.ErrDamaged, e.Begun, len(e.Plan.Steps))
		}
		b.jobs = append(b.jobs, newJob(e))
	}
	return b, nil
}

// Broken is the book at a path that cannot be read. It is not empty: what it has is not known, so whoever asks for anything is
// told why it cannot be read, and no device is touched.
func Broken(c Config, why error) *Book {
	closed := make(chan struct{})
	return &Book{config: c, closed: closed, end: sync.OnceFunc(func() { close(closed) }), broken: why}
}

func newJob(e Entry) *job {
	return &job{entry: e, wanted: e.Phase == Bound, change: make(chan struct{})}
}

// Close ends all waiting. What is not finished stays in the book for the next agent.
func (b *Book) Close() {
	b.mu.Lock()
	b.end()
	b.mu.Unlock()
	b.work.Wait()
}

// Entries are those in the book.
func (b *Book) Entries() []Entry {
	b.mu.Lock()
	defer b.mu.Unlock()
	all := make([]Entry, len(b.jobs))
	for i, j := range b.jobs {
		all[i] = j.entry
		all[i].Plan.Steps = slices.Clone(j.entry.Plan.Steps)
	}
	return all
}

// Recover finishes what an earlier agent began: what is not bound is put back. It returns what others changed meanwhile. What
// is stuck is an error, and is put back later.
func (b *Book) Recover(ctx context.Context) ([]Foreign, error) {
	b.mu.Lock()
	if err := b.ended(); err != nil {
		b.mu.Unlock()
		return nil, err
	}
	var begun []*job
	for _, j := range b.jobs {
		if j.entry.Phase != Bound && !j.busy {
			begun = append(begun, j)
			b.begin(j)
		}
	}
	b.mu.Unlock()
	return b.settled(ctx, begun)
}

// Bind carries a plan out, or nothing of it. It is for an owner, who has the device until [Book.Release]; what the owner has
// already is not bound again. A [StuckError] means that the plan goes on once the write about which it is stuck has ended:
// asking again tells how far it is, and Release has it undone then.
func (b *Book) Bind(ctx context.Context, owner string, plan binding.Plan) error {
	j, err := b.enter(owner, plan)
	if err != nil || j == nil {
		return err
	}
	return b.wait(ctx, j, func() (bool, error) {
		switch {
		case j.entry.Stuck != nil:
			j.late = true
			return true, j.entry.Stuck
		case j.busy:
			return false, nil
		}
		return true, j.fault
	})
}

// enter finds or begins the entry for a plan, and returns nil if it is bound.
func (b *Book) enter(owner string, plan binding.Plan) (*job, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if err := b.ended(); err != nil {
		return nil, err
	}
	for _, j := range b.jobs {
		e := &j.entry
		switch {
		case !touches(e.Plan, plan):
		case e.Owner != owner || e.Plan.Device != plan.Device || e.Plan.Form != plan.Form:
			return nil, fmt.Errorf("give %s to %s: %w: %s has %s as %s", plan.Device, owner, ErrTaken, e.Owner, e.Plan.Device, e.Plan.Form)
		case e.Phase == Returning, !j.wanted:
			why := errors.Join(ErrReturning, j.fault)
			if e.Stuck != nil {
				why = errors.Join(ErrReturning, e.Stuck)
			}
			return nil, fmt.Errorf("give %s to %s: %w", plan.Device, owner, why)
		case e.Phase == Bound:
			return nil, nil
		default:
			return j, nil
		}
	}
	j := newJob(Entry{Owner: owner, Plan: plan, Phase: Binding})
	j.wanted = true
	b.jobs = append(b.jobs, j)
	if err := b.save("recorded"); err != nil {
		b.jobs = slices.DeleteFunc(b.jobs, func(other *job) bool { return other == j })
		return nil, err
	}
	b.begin(j)
	return j, nil
}

// Release puts back all that an owner has. That there is nothing is no error. What others changed since is left and returned.
// A device that a virtual machine has open stays bound, with [ErrOpen]; one that is stuck is put back later, with a [StuckError].
func (b *Book) Release(ctx context.Context, owner string) ([]Foreign, error) {
	if b.broken != nil {
		return nil, b.broken
	}
	b.mu.Lock()
	var mine []*job
	for _, j := range b.jobs {
		if j.entry.Owner == owner {
			mine = append(mine, j)
		}
	}
	b.mu.Unlock()
	var faults []error
	var going []*job
	for _, j := range mine {
		if err := b.unwant(j); err != nil {
			faults = append(faults, err)
			continue
		}
		going = append(going, j)
	}
	left, err := b.settled(ctx, going)
	return left, errors.Join(append(faults, err)...)
}

// unwant has an entry put back. One that is bound must not be open.
func (b *Book) unwant(j *job) error {
	b.mu.Lock()
	bound := j.entry.Phase == Bound && !j.busy
	b.mu.Unlock()
	if bound {
		if err := b.unused(j.entry); err != nil {
			return err
		}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if err := b.ended(); err != nil {
		return err
	}
	j.wanted = false
	if !j.busy && slices.Contains(b.jobs, j) {
		b.begin(j)
	}
	return nil
}

// unused returns an error if somebody has a device open that was given. Its driver would wait for them.
func (b *Book) unused(e Entry) error {
	held, err := b.openers(e.Plan)
	if err != nil {
		return fmt.Errorf("see whether somebody has %s open: %w", e.Plan.Device, err)
	}
	if len(held.Holders) > 0 {
		return fmt.Errorf("put %s back: %w: %s", e.Plan.Device, ErrOpen, binding.Named(held.Holders))
	}
	return nil
}

// settled waits until entries are put back, failed or stuck.
func (b *Book) settled(ctx context.Context, jobs []*job) (left []Foreign, err error) {
	var faults []error
	for _, j := range jobs {
		faults = append(faults, b.wait(ctx, j, func() (bool, error) {
			switch {
			case j.entry.Stuck != nil:
				j.late = true
				return true, j.entry.Stuck
			case j.busy:
				return false, nil
			}
			left = append(left, j.left...)
			j.left = nil
			if !slices.Contains(b.jobs, j) {
				return true, nil // whatever kept it from being bound
			}
			return true, j.fault
		}))
	}
	return left, errors.Join(faults...)
}

// wait asks about an entry whenever it has changed. The book's lock is held meanwhile.
func (b *Book) wait(ctx context.Context, j *job, told func() (bool, error)) error {
	for {
		b.mu.Lock()
		if is, err := told(); is {
			b.mu.Unlock()
			return err
		}
		change := j.change
		b.mu.Unlock()
		select {
		case <-change:
		case <-ctx.Done():
			b.mu.Lock()
			defer b.mu.Unlock()
			if j.entry.Phase == Binding {
				j.wanted = false
			}
			return fmt.Errorf("wait for %s: %w", j.entry.Plan.Device, ctx.Err())
		case <-b.closed:
			return ErrClosed
		}
	}
}

// save writes all entries down. The caller holds the lock.
func (b *Book) save(step string) error {
	entries := make([]Entry, len(b.jobs))
	for i, j := range b.jobs {
		entries[i] = j.entry
	}
	if err := b.file.Save(entries); err != nil {
		return fmt.Errorf("write down which devices are with virtual machines: %w", err)
	}
	b.step(step)
	return nil
}

func (b *Book) step(name string) {
	if b.config.Step != nil {
		b.config.Step("vfio-" + name)
	}
}
