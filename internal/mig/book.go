package mig

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/divvy-gpu/divvy/internal/checkpoint"
	"github.com/divvy-gpu/divvy/internal/nvml"
)

// State is how far an entry of the book has come.
type State string

// The states, in the order in which an entry has them.
const (
	// Making is before the GPU instance exists, as far as the book knows.
	Making State = "making"
	// Half is before its compute instance exists, as far as the book knows.
	Half State = "half"
	// Whole is an instance that can be used.
	Whole State = "whole"
	// Ending is an instance that is being taken away.
	Ending State = "ending"
)

// Entry is one instance of Divvy's.
type Entry struct {
	GPU     string `json:"gpu"`
	Profile int    `json:"profile"`
	// Name is the profile's.
	Name      string            `json:"name"`
	Placement nvml.MIGPlacement `json:"placement"`
	State     State             `json:"state"`
	// ID is the GPU instance's, from state half on.
	ID int `json:"id"`
	// Compute is the compute instance's ID, and UUID its name for programs, from state whole on.
	Compute int    `json:"compute"`
	UUID    string `json:"uuid,omitempty"`
	// Origin says for whom it was made, in the caller's words. Books of version 1 have none.
	Origin string `json:"origin,omitempty"`
}

// Has reports whether an instance that the driver lists is an entry's. One that became somebody else's is not.
func (e Entry) Has(i nvml.MIGInstance) bool { return e.is(i) && !e.foreign(i) }

// is reports whether an entry is about an instance that the driver lists.
func (e Entry) is(i nvml.MIGInstance) bool {
	return e.Placement == i.Placement && e.Profile == i.Profile && (e.State == Making || e.ID == i.ID)
}

// Book makes instances, takes them away, and knows which are Divvy's. Several goroutines may use it: changes of one GPU
// wait for each other.
type Book struct {
	driver Driver
	file   *checkpoint.File[[]Entry]

	mu      sync.Mutex // held while entries are saved
	entries []Entry
	turns   map[string]chan struct{} // by GPU; one entry while nobody changes it

	// step is called after each step, so that a test can end there.
	step func(name string) error
}

// Open reads the book at a path. A file that does not exist is an empty book. [Book.Recover] must follow.
func Open(path string, driver Driver) (*Book, error) {
	b := &Book{
		driver: driver, turns: map[string]chan struct{}{}, step: func(string) error { return nil },
		// Version 1 lacks the origins alone.
		file: checkpoint.NewFile(path, "mig", 2, checkpoint.Older[[]Entry]{Version: 1, Decode: checkpoint.Strict[[]Entry]}),
	}
	var err error
	if b.entries, err = b.file.Load(); err != nil {
		return nil, fmt.Errorf("read which MIG instances are ours: %w", err)
	}
	return b, nil
}

// Entries are those in the book.
func (b *Book) Entries() []Entry {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.entries)
}

// turn waits until nobody else changes a GPU. Done must be called.
func (b *Book) turn(ctx context.Context, gpu string) (done func(), err error) {
	b.mu.Lock()
	turn := b.turns[gpu]
	if turn == nil {
		turn = make(chan struct{}, 1)
		turn <- struct{}{}
		b.turns[gpu] = turn
	}
	b.mu.Unlock()
	select {
	case <-turn:
		return func() { turn <- struct{}{} }, nil
	case <-ctx.Done():
		return nil, fmt.Errorf("wait for another change of %s: %w", gpu, ctx.Err())
	}
}

// Create makes an instance with its compute instance, or nothing. Its errors, and those of Destroy and Claim, do not name the
// instance: who asks for it knows it. A driver that does not answer leaves an entry, which
// [Book.Settle] finishes.
func (b *Book) Create(ctx context.Context, gpu string, profile nvml.MIGProfile, at nvml.MIGPlacement, origin string) (Entry, error) {
	done, err := b.turn(ctx, gpu)
	if err != nil {
		return Entry{}, err
	}
	defer done()
	if err := b.settle(ctx, gpu); errors.Is(err, nvml.ErrSilent) {
		return Entry{}, err
	}
	if !slices.Contains(profile.Placements, at) {
		return Entry{}, fmt.Errorf("%w: it cannot begin at memory slice %d", ErrOccupied, at.Start)
	}
	if err := b.free(ctx, gpu, at); err != nil {
		return Entry{}, err
	}
	e := Entry{GPU: gpu, Profile: profile.ID, Name: profile.Name, Placement: at, State: Making, Origin: origin}
	if err := b.save("recorded", func(all []Entry) []Entry { return append(all, e) }); err != nil {
		return Entry{}, err
	}
	made, err := b.make(ctx, e)
	if err != nil {
		if errors.Is(err, errStopped) || errors.Is(err, nvml.ErrSilent) {
			return Entry{}, err
		}
		return Entry{}, errors.Join(err, b.undo(ctx, gpu, at))
	}
	return made, nil
}

// make makes both halves of an entry.
func (b *Book) make(ctx context.Context, e Entry) (Entry, error) {
	var err error
	if e.ID, err = b.driver.CreateMIGInstance(ctx, e.GPU, e.Profile, e.Placement); err != nil {
		return e, err
	}
	if err := b.step("instance-made"); err != nil {
		return e, err
	}
	e.State = Half
	if err := b.put(e, "instance-recorded"); err != nil {
		return e, err
	}
	c, err := b.driver.CreateMIGCompute(ctx, e.GPU, e.ID)
	if err != nil {
		return e, err
	}
	if err := b.step("compute-made"); err != nil {
		return e, err
	}
	e.State, e.Compute, e.UUID = Whole, c.ID, c.UUID
	return e, b.put(e, "compute-recorded")
}

// Destroy takes an instance of Divvy's away. One that a process uses stays whole, and the error is [nvml.ErrInUse].
func (b *Book) Destroy(ctx context.Context, uuid string) error {
	e, done, err := b.whole(ctx, uuid)
	if err != nil {
		return err
	}
	defer done()
	e.State = Ending
	if err := b.put(e, "end-recorded"); err != nil {
		return err
	}
	err = b.end(ctx, e)
	if errors.Is(err, nvml.ErrInUse) {
		if whole, _ := b.stands(ctx, e); whole {
			e.State = Whole
			err = errors.Join(err, b.put(e, "kept"))
		}
	}
	if err != nil {
		return err
	}
	return nil
}

// Claim changes for whom an instance of Divvy's is.
func (b *Book) Claim(ctx context.Context, uuid, origin string) error {
	e, done, err := b.whole(ctx, uuid)
	if err != nil {
		return err
	}
	defer done()
	if e.Origin == origin {
		return nil
	}
	e.Origin = origin
	return b.put(e, "claimed")
}

// whole finds an instance of Divvy's by its UUID, and takes the turn at its GPU.
func (b *Book) whole(ctx context.Context, uuid string) (e Entry, done func(), err error) {
	find := func() (Entry, bool) {
		all := b.Entries()
		at := slices.IndexFunc(all, func(e Entry) bool { return e.UUID == uuid && e.State == Whole })
		if at < 0 {
			return Entry{}, false
		}
		return all[at], true
	}
	e, ours := find()
	if !ours {
		return e, nil, ErrForeign
	}
	if done, err = b.turn(ctx, e.GPU); err != nil {
		return e, nil, err
	}
	if e, ours = find(); !ours { // somebody took it away meanwhile
		done()
		return e, nil, ErrForeign
	}
	return e, done, nil
}

// Settle finishes what was begun about a GPU and could not be finished because the driver did not answer.
func (b *Book) Settle(ctx context.Context, gpu string) error {
	done, err := b.turn(ctx, gpu)
	if err != nil {
		return err
	}
	defer done()
	return b.settle(ctx, gpu)
}

// settle is Settle for who has the turn.
func (b *Book) settle(ctx context.Context, gpu string) error {
	for _, e := range b.Entries() {
		if e.GPU != gpu || e.State == Whole {
			continue
		}
		if err := b.end(ctx, e); err != nil {
			return fmt.Errorf("finish with MIG instance %s at %d: %w", e.Name, e.Placement.Start, err)
		}
	}
	return nil
}

// Recover finishes what an earlier agent began: what is half made is taken away, and what was to end ends. Entries of
// instances that are gone are crossed out and returned. An error about one GPU does not keep it from the others.
func (b *Book) Recover(ctx context.Context) (vanished []Entry, err error) {
	var faults []error
	for _, e := range b.Entries() {
		gone, err := b.recover(ctx, e)
		if err != nil {
			faults = append(faults, fmt.Errorf("recover MIG instance %s at %d of %s: %w", e.Name, e.Placement.Start, e.GPU, err))
		}
		if gone {
			vanished = append(vanished, e)
		}
	}
	return vanished, errors.Join(faults...)
}

// recover finishes one entry. A whole one that is gone is crossed out.
func (b *Book) recover(ctx context.Context, e Entry) (gone bool, err error) {
	done, err := b.turn(ctx, e.GPU)
	if err != nil {
		return false, err
	}
	defer done()
	if e.State != Whole {
		return false, b.end(ctx, e)
	}
	whole, err := b.stands(ctx, e)
	if err != nil || whole {
		return false, err
	}
	return true, b.end(ctx, e) // a GPU instance may be left of it
}

// undo takes away what was made of an entry that failed.
func (b *Book) undo(ctx context.Context, gpu string, at nvml.MIGPlacement) error {
	all := b.Entries()
	i := slices.IndexFunc(all, func(e Entry) bool { return e.GPU == gpu && e.Placement == at })
	return b.end(context.WithoutCancel(ctx), all[i])
}
