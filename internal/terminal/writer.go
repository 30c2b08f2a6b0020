package terminal

import (
	"fmt"
	"os/exec"
	"strconv"
	"sync"
	"time"

	"github.com/divvy-gpu/divvy/internal/plaintext"
	"github.com/divvy-gpu/divvy/internal/process"
)

const (
	// writeTime is how long a process that writes may take, which is some milliseconds.
	writeTime = 5 * time.Second
	// mostWriters is how many of them there are at once, whatever their users do.
	mostWriters = 8
	// longestLine bounds what is written, in characters: an argument of a process has 128 KiB at most.
	longestLine = 4096
)

// Writer starts the processes that write.
type Writer struct {
	program   string
	writeTime time.Duration

	mu sync.Mutex
	// busy has a channel for each user for whom a process writes, closed when it has ended. One that was killed in vain
	// is among them until then.
	busy map[int]chan struct{}
}

// NewWriter makes a Writer; the program with the argument [Command] must call [Main].
func NewWriter(program string) *Writer {
	return &Writer{program: program, writeTime: writeTime, busy: map[int]chan struct{}{}}
}

// Tell writes a line to where a user's process writes its errors. It returns soon, whether the line was written or not:
// the user of a process that holds up the line does not get it.
func (w *Writer) Tell(id process.ID, uid int, line string) error {
	if !w.take(uid) {
		return fmt.Errorf("tell process %d: earlier lines have not been written yet", id.PID)
	}
	cmd := exec.Command(w.program, Command, strconv.Itoa(id.PID), strconv.FormatUint(id.Start, 10), strconv.Itoa(uid), plaintext.Line(line, longestLine))
	cmd.Env = []string{}
	if err := cmd.Start(); err != nil {
		w.give(uid)
		return fmt.Errorf("tell process %d: %w", id.PID, err)
	}
	ended := make(chan error, 1)
	go func() {
		err := cmd.Wait()
		w.give(uid)
		ended <- err
	}()
	select {
	case err := <-ended:
		if err != nil {
			return fmt.Errorf("tell process %d: %w", id.PID, err)
		}
		return nil
	case <-time.After(w.writeTime):
		_ = cmd.Process.Kill() // it may have ended just now
		return fmt.Errorf("tell process %d: what it writes its errors to takes nothing", id.PID)
	}
}

// take waits until a process may write for a user, and reports whether that was soon.
func (w *Writer) take(uid int) bool {
	over := time.After(w.writeTime)
	for {
		ended := w.tryTake(uid)
		if ended == nil {
			return true
		}
		select {
		case <-ended:
		case <-over:
			return false
		}
	}
}

// tryTake returns nil if a process may write for a user now, and otherwise what is closed when to try again.
func (w *Writer) tryTake(uid int) <-chan struct{} {
	w.mu.Lock()
	defer w.mu.Unlock()
	if ended := w.busy[uid]; ended != nil {
		return ended
	}
	if len(w.busy) >= mostWriters {
		for _, ended := range w.busy {
			return ended
		}
	}
	w.busy[uid] = make(chan struct{})
	return nil
}

func (w *Writer) give(uid int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	close(w.busy[uid])
	delete(w.busy, uid)
}
