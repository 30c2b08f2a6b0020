package vfio

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/divvy-gpu/divvy/internal/process"
	"github.com/divvy-gpu/divvy/internal/vm/binding"
	"github.com/divvy-gpu/divvy/internal/vm/facts"
)

// begin has a goroutine work on an entry. The caller holds the lock.
func (b *Book) begin(j *job) {
	j.busy, j.fault, j.left = true, nil, nil
	b.work.Go(func() {
		err := b.run(j)
		if j.writer != nil {
			j.writer.Close()
			j.writer = nil
		}
		b.finish(j, err)
	})
}

// finish tells everybody how the work on an entry ended.
func (b *Book) finish(j *job, err error) {
	b.mu.Lock()
	there := slices.Contains(b.jobs, j)
	late, left := j.late, j.left
	again := err == nil && there && j.entry.Phase == Bound && !j.wanted
	j.busy, j.fault, j.late, j.entry.Stuck = again, err, late && again, nil
	j.changed()
	e := j.entry
	if again { // it was released in the last moment
		b.begin(j)
	}
	b.mu.Unlock()
	if late && !again && b.config.Late != nil && !errors.Is(err, ErrClosed) {
		if errors.Is(err, ErrReturning) && !there {
			err = nil // as it was asked
		}
		b.config.Late(e, there, left, err)
	}
}

// changed wakes who waits for a change. The caller holds the lock.
func (j *job) changed() {
	close(j.change)
	j.change = make(chan struct{})
}

// run binds an entry, or puts it back.
func (b *Book) run(j *job) error {
	if err := b.await(j); err != nil {
		return err
	}
	var fault error
	if j.entry.Phase == Binding && b.isWanted(j) {
		fault = b.bind(j)
		if fault == nil {
			return nil
		}
		if errors.Is(fault, ErrClosed) {
			return fault
		}
	}
	if err := b.undo(j); err != nil {
		return errors.Join(fault, err)
	}
	for _, f := range j.left {
		if fault != nil {
			fault = fmt.Errorf("%w; %s", fault, f)
		}
	}
	return fault
}

func (b *Book) isWanted(j *job) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return j.wanted
}

// await waits for the process that an earlier agent left in a write.
func (b *Book) await(j *job) error {
	id := j.entry.Writer
	if id == (process.ID{}) {
		return nil
	}
	ended, stop, err := id.Watch()
	if err != nil {
		return fmt.Errorf("find the process that writes for %s: %w", j.entry.Plan.Device, err)
	}
	defer stop()
	step := binding.Step{Kind: "end", Device: j.entry.Plan.Device}
	if j.entry.Begun > 0 {
		step = j.entry.Plan.Steps[j.entry.Begun-1]
	}
	if _, err := b.outcome(j, step, nil, ended); err != nil && !errors.Is(err, errEnded) {
		return err
	}
	return b.note(j, "found-again", func(e *Entry) { e.Writer = process.ID{} })
}

// bind makes the steps of a plan that are not begun, if all is as it was planned for.
func (b *Book) bind(j *job) error {
	seen := map[binding.State]bool{}
	for _, s := range j.entry.Plan.Steps {
		if seen[s.State] { // a later step stands on what an earlier one makes
			continue
		}
		seen[s.State] = true
		if err := b.unchanged(s); err != nil && !errors.Is(err, ErrVanished) { // a function may be there by an earlier step alone
			return fmt.Errorf("%s: %w", s, err)
		}
	}
	for i, s := range j.entry.Plan.Steps {
		if !b.isWanted(j) {
			return fmt.Errorf("give %s to %s: %w", j.entry.Plan.Device, j.entry.Owner, ErrReturning)
		}
		if err := b.forward(j, i, s); err != nil {
			return fmt.Errorf("%s: %w", s, err)
		}
	}
	for _, s := range j.entry.Plan.Steps {
		if !s.Alike {
			continue
		}
		if err := b.holds(s, s.After); err != nil { // somebody else came between two steps
			return fmt.Errorf("%s: %w", s, err)
		}
	}
	return b.note(j, "bound", func(e *Entry) { e.Phase, e.Writer = Bound, process.ID{} })
}

// forward makes one step.
func (b *Book) forward(j *job, i int, s binding.Step) error {
	if err := b.unchanged(s); err != nil {
		return err
	}
	if s.Do.Path == "" {
		return b.note(j, "begun", func(e *Entry) { e.Begun = i + 1 })
	}
	do, err := b.withReceipt(j.entry.Owner, s)
	if err != nil {
		return err
	}
	if err := b.write(j, s, do, func(e *Entry) { e.Begun = i + 1 }); err != nil {
		if s.Kind.Whole() && !errors.Is(err, ErrClosed) && !errors.Is(err, errEnded) { // the file took nothing
			return errors.Join(err, b.note(j, "refused", func(e *Entry) { e.Begun = i }))
		}
		return err
	}
	return b.holds(s, s.After)
}

// unchanged returns an error if a device is not as a step was planned for.
func (b *Book) unchanged(s binding.Step) error {
	found, err := b.found(s)
	if err == nil && found != s.Before {
		err = fmt.Errorf("%w: %s is %q and was %q", ErrChanged, s.State.Path, found, s.Before)
	}
	return err
}

// found is what a step's state tells.
func (b *Book) found(s binding.Step) (string, error) {
	if !b.config.Machine.Exists(binding.DeviceFolder(s.Device)) {
		return "", ErrVanished
	}
	if s.State.Path == "" {
		return s.Before, nil
	}
	return b.config.Machine.State(s.State)
}

// holds sees that a write had its effect.
func (b *Book) holds(s binding.Step, want string) error {
	if s.State.Path == "" {
		return nil
	}
	got, err := b.found(s)
	if err == nil && got != want {
		err = fmt.Errorf("%w: %s is %q, not %q", ErrKept, s.State.Path, got, want)
	}
	return err
}

// note changes an entry and writes it down.
func (b *Book) note(j *job, step string, change func(*Entry)) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	before := j.entry
	change(&j.entry)
	if err := b.save(step); err != nil {
		j.entry = before
		return err
	}
	return nil
}

// errEnded says that a writer ended without an answer.
var errEnded = errors.New("the process that writes has ended")

// write makes one write, after the entry was changed and written down with who makes it.
func (b *Book) write(j *job, s binding.Step, w binding.Write, change func(*Entry)) error {
	if err := b.ended(); err != nil {
		return err
	}
	if j.writer == nil {
		var err error
		if j.writer, err = b.config.Machine.Start(); err != nil {
			return fmt.Errorf("start a process that writes: %w", err)
		}
	}
	id := j.writer.ID()
	if change != nil || j.entry.Writer != id {
		if err := b.note(j, "begun", func(e *Entry) {
			if e.Writer = id; change != nil {
				change(e)
			}
		}); err != nil {
			return err
		}
	}
	result, err := b.outcome(j, s, j.writer.Write(w), j.writer.Ended())
	if err != nil {
		return err
	}
	b.step("written")
	if errors.Is(result, ErrOpen) {
		return b.openError(j.entry.Plan, result)
	}
	return result
}

// outcome waits for the outcome of a write, or for the end of who makes it. Where that takes too long, the entry is stuck
// meanwhile, and everybody else is told.
func (b *Book) outcome(j *job, s binding.Step, outcome <-chan error, ended <-chan struct{}) (error, error) {
	begun := b.config.Now()
	look, limit := time.NewTimer(b.config.Limits.Look), time.NewTimer(b.config.Limits.Write)
	defer look.Stop()
	defer limit.Stop()
	for {
		select {
		case result := <-outcome:
			b.unstick(j)
			return result, nil
		case <-ended:
			b.unstick(j)
			select {
			case result := <-outcome:
				return result, nil
			default:
				j.writer = nil
				return nil, errEnded
			}
		case <-look.C:
			b.stick(j, s, begun, false)
		case <-limit.C:
			b.stick(j, s, begun, true)
		case <-b.closed:
			return nil, ErrClosed
		}
	}
}

// stick notes that a write does not end, and who holds the device. Where it may yet end by itself, only with a holder.
func (b *Book) stick(j *job, s binding.Step, begun time.Time, over bool) {
	held, err := b.config.Machine.Holders(j.entry.Plan.Members)
	if err != nil { // it is stuck all the same
		held = facts.Held{Unseen: []string{err.Error()}}
	}
	if len(held.Holders) == 0 && !over {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	name, returning := s.String(), j.entry.Phase == Returning
	if returning {
		name = s.Undoing()
	}
	j.entry.Stuck = &StuckError{
		Device: j.entry.Plan.Device, Step: name, Returning: returning, Since: begun, Holders: held.Holders, Unseen: strings.Join(held.Unseen, "; "),
		Slow: j.entry.Plan.Form == binding.FormFunctions && len(held.Holders) == 0,
	}
	j.changed()
}

func (b *Book) unstick(j *job) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if j.entry.Stuck != nil {
		j.entry.Stuck = nil
		j.changed()
	}
}
