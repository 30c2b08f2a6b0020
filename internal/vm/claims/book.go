package claims

import (
	"errors"
	"fmt"

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

// StandingIn is what an owner has in a book, as a [Maker] tells it.
func StandingIn(book interface{ Entries() []vfio.Entry }, owner string) (s Standing) {
	for _, e := range book.Entries() {
		if e.Owner != owner {
			continue
		}
		s.There, s.What = true, fmt.Sprintf("%s (%s)", e.Plan.Device, e.Plan.Form)
		if e.Stuck != nil {
			s.Stuck = e.Stuck.Error()
		}
	}
	return s
}
