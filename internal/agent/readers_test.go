package agent

import (
	"context"
	"errors"
	"testing"
)

// A user reads one page at a time. Others and root do not wait for it.
func TestOnePageAtATime(t *testing.T) {
	var r readers
	leave, err := r.enter(t.Context(), 1001)
	if err != nil {
		t.Fatal(err)
	}
	ended, end := context.WithCancel(t.Context())
	end()
	if _, err := r.enter(ended, 1001); !errors.Is(err, context.Canceled) {
		t.Errorf("a second page at once: %v", err)
	}
	for _, uid := range []int{0, 0, 1002} {
		other, err := r.enter(ended, uid)
		if err != nil {
			t.Errorf("user %d: %v", uid, err)
			continue
		}
		defer other()
	}
	leave()
	again, err := r.enter(t.Context(), 1001)
	if err != nil {
		t.Fatal(err)
	}
	again()
}
