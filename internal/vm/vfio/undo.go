package vfio

import (
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/divvy-gpu/divvy/internal/process"
	"github.com/divvy-gpu/divvy/internal/vm/binding"
)

// undo undoes the steps of an entry that were begun, the last one first, and crosses the entry out. One that was bound stays so
// where somebody has it open of whom nobody knew.
func (b *Book) undo(j *job) error {
	was := j.entry.Phase
	if was != Returning {
		if err := b.note(j, "returning", func(e *Entry) { e.Phase = Returning }); err != nil {
			return err
		}
	}
	for i := j.entry.Begun - 1; i >= 0; i-- {
		s := j.entry.Plan.Steps[i]
		if err := b.back(j, s); err != nil {
			err = fmt.Errorf("undo to %s: %w", s, err)
			if was != Binding && i == len(j.entry.Plan.Steps)-1 && errors.Is(err, ErrOpen) { // all of it stands
				return errors.Join(err, b.note(j, "kept", func(e *Entry) {
					e.Phase, e.Writer = Bound, process.ID{}
					j.wanted = true
				}))
			}
			return err
		}
		if err := b.note(j, "undone", func(e *Entry) { e.Begun = i }); err != nil {
			return err
		}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	all := b.jobs
	b.jobs = slices.DeleteFunc(slices.Clone(all), func(other *job) bool { return other == j })
	if err := b.save("crossed-out"); err != nil {
		b.jobs = all
		return err
	}
	j.entry.Writer = process.ID{}
	return nil
}

// back undoes one step. What somebody else changed is left, and so is a device that is gone.
func (b *Book) back(j *job, s binding.Step) error {
	found, err := b.found(s)
	switch {
	case errors.Is(err, ErrVanished):
		j.leave(Foreign{Device: s.Device, What: "device", Found: "gone", Before: "there"})
		return nil
	case err != nil:
		return err
	case s.Kind == binding.Reset && b.isBound(j, s):
		return nil
	case s.State.Path == "":
		// A reset is no condition for the driver to come back.
		if err := b.write(j, s, s.Undo, nil); errors.Is(err, ErrClosed) {
			return err
		} else if err != nil {
			j.leave(Foreign{Device: s.Device, What: path.Base(s.Undo.Path), Fault: err})
		}
		return nil
	case found == s.Before:
		return nil
	case found != s.After:
		j.leave(Foreign{Device: s.Device, What: path.Base(s.State.Path), Found: found, Before: s.Before})
		return nil
	case !b.isOurs(j.entry.Owner, s):
		j.leave(Foreign{Device: s.Device, What: path.Base(s.State.Path), Found: found, Before: s.Before})
		return nil
	case s.Kind == binding.Unbind:
		if foreign, is := b.kept(s); is {
			j.leave(foreign)
			return nil
		}
	}
	if err := b.write(j, s, b.withoutReceipt(j.entry.Owner, s), nil); err != nil {
		return err
	}
	return b.holds(s, s.Before)
}

// isBound tells whether a driver has a function that is to be reset. All of ours have let go of it by then, so somebody else has
// bound it, whose work a reset would end.
func (b *Book) isBound(j *job, s binding.Step) bool {
	driver, err := b.config.Machine.State(binding.State{Path: binding.DeviceFolder(s.Device) + "/driver", Link: true})
	switch {
	case err != nil:
		j.leave(Foreign{Device: s.Device, What: "reset", Fault: err})
	case driver != "":
		j.leave(Foreign{Device: s.Device, What: "driver", Found: driver})
	default:
		return false
	}
	return true
}

// kept tells why a driver cannot have its function back: it is gone, or an override that somebody else has set forbids it.
func (b *Book) kept(s binding.Step) (Foreign, bool) {
	if !b.config.Machine.Exists(path.Dir(s.Undo.Path)) {
		return Foreign{Device: s.Device, What: "driver", Before: s.Before}, true
	}
	override, err := b.config.Machine.State(binding.State{Path: binding.DeviceFolder(s.Device) + "/driver_override"})
	if err == nil && override != "" && override != s.Before {
		return Foreign{Device: s.Device, What: "driver", Before: s.Before, Override: override}, true
	}
	return Foreign{}, false
}

// leave notes what is left as somebody else made it, once for each file.
func (j *job) leave(f Foreign) {
	if !slices.ContainsFunc(j.left, func(other Foreign) bool { return other.Device == f.Device && other.What == f.What }) {
		f.Found = strings.ToValidUTF8(f.Found, "�")
		j.left = append(j.left, f)
	}
}
