package mps

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/divvy-gpu/divvy/internal/mps"
	"github.com/divvy-gpu/divvy/internal/process"
)

// A daemon that runs and whose directory somebody removed is told of with what helps; one that is gone starts again by itself.
func TestAdviceOfARemovedDirectory(t *testing.T) {
	self, err := process.Find(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	absent := fmt.Errorf("ask: %w at /pipe", mps.ErrAbsent)
	advice := fmt.Sprintf("end process %d", self.PID)
	for name, c := range map[string]struct {
		err    error
		daemon process.ID
		want   bool
	}{
		"removed": {absent, self, true},
		"gone":    {absent, process.ID{PID: self.PID, Start: 1}, false},
		"hangs":   {errors.New("no answer"), self, false},
	} {
		text := failure(c.err, c.daemon)
		if !strings.Contains(text, c.err.Error()) || strings.Contains(text, advice) != c.want {
			t.Errorf("%s: %q", name, text)
		}
	}
}
