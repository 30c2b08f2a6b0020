package daemon

import (
	"errors"
	"testing"
	"testing/synctest"
)

// What a killed agent held is had as soon as the kernel has let go of it; what a
// living one holds is refused, and another failure is told at once.
func TestOutlast(t *testing.T) {
	held, other := errors.New("held"), errors.New("other")
	for _, one := range []struct {
		name    string
		answers []error // the last one from then on
		want    error
		tries   int
	}{
		{"free", []error{nil}, nil, 1},
		{"left by a killed agent", []error{held, held, nil}, nil, 3},
		{"another failure", []error{other}, other, 1},
		{"a living agent", []error{held}, held, 2},
	} {
		t.Run(one.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				tries := 0
				err := outlast(t.Context(), held, func() error {
					tries++
					return one.answers[min(tries, len(one.answers))-1]
				})
				if !errors.Is(err, one.want) || tries < one.tries {
					t.Errorf("%v after %d tries, want %v after %d", err, tries, one.want, one.tries)
				}
			})
		})
	}
}
