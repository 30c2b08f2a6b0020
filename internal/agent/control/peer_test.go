package control

import (
	"errors"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/divvy-gpu/divvy/internal/process"
)

// Nothing is tied to a process that has ended, or that cannot be told from another one.
func TestHolder(t *testing.T) {
	self, err := process.Find(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("sleep", "1000")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended, err := process.Find(cmd.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	for name, c := range map[string]struct {
		peer Peer
		code Code
		says string
	}{
		"one that lives":                {peer: Peer{Process: self}},
		"one of another pid namespace":  {},
		"one that has ended since":      {Peer{Process: ended}, CodeInvalid, "has ended"},
		"one that had ended before":     {Peer{unfound: process.ErrGone}, CodeInvalid, "has ended"},
		"another one with its number":   {Peer{Process: process.ID{PID: self.PID, Start: self.Start + 1}}, CodeInvalid, "has ended"},
		"one that another has followed": {Peer{Process: self, again: func() (process.ID, error) { return ended, nil }}, CodeInvalid, "has ended"},
		"one that is not told again":    {Peer{Process: self, again: func() (process.ID, error) { return self, process.ErrGone }}, CodeInvalid, "has ended"},
		"one of which nothing is known": {Peer{unfound: errors.New("too many open files")}, CodeInternal, "too many open files; connect again"},
	} {
		id, err := c.peer.Holder()
		if c.code == "" && (err != nil || id != c.peer.Process) {
			t.Errorf("%s: %+v, %v", name, id, err)
		}
		if c.code != "" && (CodeOf(err) != c.code || !strings.Contains(err.Error(), c.says) || id != process.ID{}) {
			t.Errorf("%s: %+v, %v", name, id, err)
		}
	}
}
