package claims

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"strings"

	"github.com/divvy-gpu/divvy/internal/vm/binding"
	"github.com/divvy-gpu/divvy/internal/vm/vfio"
)

// Released is what a book's Release returned, as a [Maker] tells it.
func Released(foreign []vfio.Foreign, err error) (left []string, as error) {
	for _, f := range foreign {
		left = append(left, f.String())
	}
	if errors.Is(err, vfio.ErrOpen) {
		err = openError{err}
	}
	return left, err
}

// openError is the book's error as the ledger knows it.
type openError struct{ error }

func (e openError) Unwrap() error { return e.error }

// Is makes it an [ErrOpen].
func (openError) Is(target error) bool { return target == ErrOpen }

// StandingIn is what an owner has in a book, as a [Maker] tells it, and what the machine from its root, which may be nil, shows of it.
func StandingIn(book interface{ Entries() []vfio.Entry }, root fs.FS, owner string) (s Standing) {
	for _, e := range book.Entries() {
		if e.Owner != owner {
			continue
		}
		s.There, s.What = true, fmt.Sprintf("%s (%s)", e.Plan.Device, e.Plan.Form)
		switch {
		case e.Stuck != nil:
			s.Stuck = e.Stuck.Error()
		case e.Phase == vfio.Bound && root != nil:
			s.Lost = lost(root, e)
		}
	}
	return s
}

// Booked returns an error if the file of a book is gone by which claims have devices. An empty book is a file too.
func Booked(file string, all []Claim) error {
	if _, err := os.Lstat(file); !errors.Is(err, fs.ErrNotExist) {
		return nil // who reads it tells
	}
	var have []string
	for _, c := range all {
		if c.Phase != Taking { // before that there may be no book yet
			have = append(have, c.Name)
		}
	}
	if len(have) == 0 {
		return nil
	}
	return fmt.Errorf("%s is gone, by which claims have devices: %s", file, strings.Join(have, ", "))
}

// lost tells what is not any more as it was given: a function that is gone, or whose driver, type or mediated device somebody else
// changed. What cannot be read now is taken to stand.
func lost(root fs.FS, e vfio.Entry) string {
	for _, s := range e.Plan.Steps {
		if _, err := fs.Stat(root, "sys/"+binding.DeviceFolder(s.Device)); errors.Is(err, fs.ErrNotExist) {
			return fmt.Sprintf("device %s is gone", s.Device)
		}
		what := map[binding.Kind]string{binding.Probe: "driver", binding.Mediate: "mediated device", binding.Type: "type"}[s.Kind]
		if what == "" || s.State.Mark {
			continue
		}
		switch now, err := found(root, s.State); {
		case err != nil || now == s.After:
		case now == "" || now == s.Before:
			return fmt.Sprintf("the %s of %s was taken away by somebody else", what, s.Device)
		default:
			return fmt.Sprintf("the %s of %s is %q now: somebody else changed it", what, s.Device, now)
		}
	}
	return ""
}

// found is what a file or a link below sys tells now.
func found(root fs.FS, s binding.State) (string, error) {
	name := "sys/" + s.Path
	if s.Link {
		target, err := fs.ReadLink(root, name)
		if errors.Is(err, fs.ErrNotExist) {
			return "", nil
		}
		return path.Base(target), err
	}
	text, err := fs.ReadFile(root, name)
	return strings.TrimSpace(string(text)), err
}
