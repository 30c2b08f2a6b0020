package checkpointer_test

import (
	"bufio"
	"context"
	"errors"
	"log/slog"
	"net"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/divvy-gpu/divvy/internal/checkpointer"
	"github.com/divvy-gpu/divvy/internal/nvml/helper"
	"github.com/divvy-gpu/divvy/internal/suspension"
)

// double stands for divvy-checkpoint: it greets, and answers each question as the test says. An answer of "" never comes,
// and "end" ends it.
type double struct {
	net.Conn
	theirs net.Conn
	once   sync.Once
	ended  chan struct{}
}

func (d *double) Kill()                  { d.once.Do(func() { close(d.ended) }) }
func (d *double) Ended() <-chan struct{} { return d.ended }

type doubles struct {
	mu      sync.Mutex
	started []*double
	asked   []string
}

func (s *doubles) start(greeting string, answer func(question string) string) func() (helper.Process, error) {
	return func() (helper.Process, error) {
		ours, theirs := net.Pipe()
		d := &double{Conn: ours, theirs: theirs, ended: make(chan struct{})}
		s.mu.Lock()
		s.started = append(s.started, d)
		s.mu.Unlock()
		go func() {
			defer d.Kill()
			defer theirs.Close()
			if _, err := theirs.Write([]byte(greeting)); err != nil {
				return
			}
			in := bufio.NewScanner(theirs)
			for in.Scan() {
				s.mu.Lock()
				s.asked = append(s.asked, in.Text())
				s.mu.Unlock()
				switch text := answer(in.Text()); text {
				case "":
				case "end":
					return
				default:
					if _, err := theirs.Write([]byte(text)); err != nil {
						return
					}
				}
			}
		}()
		return d, nil
	}
}

// greet has a process say something that it did not say when it began.
func (s *doubles) greet(number int, greeting string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, _ = s.started[number].theirs.Write([]byte(greeting)) // who has ended hears nothing
}

// open returns a Checkpointer over doubles, closed at the end of the test.
func (s *doubles) open(t *testing.T, greeting string, answer func(question string) string) *checkpointer.Checkpointer {
	t.Helper()
	c := checkpointer.New(checkpointer.Usual(s.start(greeting, answer), slog.New(slog.DiscardHandler)))
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	return c
}

func TestAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		answers := map[string]string{"state 7": "0 2\n", "state 8": "1 -1\n", "state 9": "999 -1\n", "lock 7 1500": "600 0\n", "save 7": "0 2\n"}
		var s doubles
		c := s.open(t, "ready 12080\n", func(question string) string { return answers[question] })
		ctx := t.Context()
		if version, err := c.Version(ctx); version != 12080 || err != nil {
			t.Errorf("version %d, %v", version, err)
		}
		if state, err := c.State(ctx, 7); state != suspension.Saved || err != nil {
			t.Errorf("state %d, %v", state, err)
		}
		if state, err := c.State(ctx, 8); state != suspension.Unused || err != nil {
			t.Errorf("of a process that the driver does not know: state %d, %v", state, err)
		}
		if _, err := c.State(ctx, 9); !errors.Is(err, checkpointer.ErrRefused) {
			t.Errorf("a state that the driver does not tell: %v", err)
		}
		if state, err := c.Do(ctx, suspension.Save, 7, time.Minute); state != suspension.Saved || err != nil {
			t.Errorf("save: state %d, %v", state, err)
		}
		var refusal *checkpointer.Refusal
		if _, err := c.Do(ctx, suspension.Lock, 7, 1500*time.Millisecond); !errors.As(err, &refusal) || refusal.Result != 600 || refusal.PID != 7 {
			t.Errorf("a lock in vain: %v", err)
		}
		if len(s.started) != 1 {
			t.Errorf("%d processes for questions one after the other", len(s.started))
		}
	})
}

// TestReplaced has a process end in an answer, and one fall silent: the next question is put to another.
func TestReplaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s doubles
		c := s.open(t, "ready 12080\n", func(question string) string {
			switch {
			case strings.HasPrefix(question, "save"):
				return "end"
			case strings.HasPrefix(question, "restore"):
				return ""
			}
			return "0 1\n"
		})
		if _, err := c.Do(t.Context(), suspension.Save, 7, time.Minute); !errors.Is(err, checkpointer.ErrEnded) {
			t.Errorf("one that ended: %v", err)
		}
		if _, err := c.Do(t.Context(), suspension.Restore, 7, time.Minute); !errors.Is(err, checkpointer.ErrSilent) {
			t.Errorf("one that is silent: %v", err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := c.Do(ctx, suspension.Restore, 7, time.Minute); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("one that is waited for no more: %v", err)
		}
		if state, err := c.State(t.Context(), 7); state != suspension.Locked || err != nil {
			t.Errorf("the next: state %d, %v", state, err)
		}
		if len(s.started) != 4 {
			t.Errorf("%d processes were started", len(s.started))
		}
		for i, d := range s.started[:3] {
			select {
			case <-d.ended:
			default:
				t.Errorf("process %d is left", i)
			}
		}
	})
}

// TestBeside asks about one process while another's question is not answered.
func TestBeside(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s doubles
		c := s.open(t, "ready 12080\n", func(question string) string {
			if question == "save 7" {
				return ""
			}
			return "0 0\n"
		})
		done := make(chan error, 1)
		go func() {
			_, err := c.Do(t.Context(), suspension.Save, 7, time.Hour)
			done <- err
		}()
		synctest.Wait()
		begun := time.Now()
		for range 3 {
			if _, err := c.State(t.Context(), 8); err != nil {
				t.Error(err)
			}
		}
		if waited := time.Since(begun); waited != 0 || len(s.started) != 2 {
			t.Errorf("others waited %s, %d processes were started", waited, len(s.started))
		}
		if err := <-done; !errors.Is(err, checkpointer.ErrSilent) {
			t.Error(err)
		}
	})
}

// TestHold asks while nobody may be asked, and begins that while nobody, somebody who is idle and somebody who is busy has the
// driver open.
func TestHold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s doubles
		saved := make(chan struct{})
		c := s.open(t, "ready 12080\n", func(question string) string {
			if question == "save 7" {
				<-saved
			}
			return "0 2\n"
		})
		held := func(started int) (release func()) {
			t.Helper()
			release, err := c.Hold()
			if err != nil {
				t.Fatal(err)
			}
			if _, err := c.State(t.Context(), 8); !errors.Is(err, checkpointer.ErrHeld) || len(s.started) != started {
				t.Errorf("asked meanwhile: %v, %d processes were started, want %d", err, len(s.started), started)
			}
			for i, d := range s.started {
				select {
				case <-d.ended:
				default:
					t.Errorf("process %d has the driver open", i)
				}
			}
			return release
		}
		mustAnswer := func() {
			t.Helper()
			if _, err := c.State(t.Context(), 8); err != nil {
				t.Error(err)
			}
		}
		first, second := held(0), held(0)
		first()
		first() // which does not end the second
		if _, err := c.Version(t.Context()); !errors.Is(err, checkpointer.ErrHeld) {
			t.Errorf("while one of two holds: %v", err)
		}
		second()
		mustAnswer()
		held(1)()
		done := make(chan error, 1)
		go func() {
			_, err := c.Do(t.Context(), suspension.Save, 7, time.Hour)
			done <- err
		}()
		synctest.Wait()
		begun := time.Now()
		time.AfterFunc(15*time.Second, func() { close(saved) })
		release := held(2)
		if waited := time.Since(begun); waited != 15*time.Second {
			t.Errorf("it waited %s for what was asked before", waited)
		}
		if err := <-done; err != nil {
			t.Errorf("asked before: %v", err)
		}
		release()
		mustAnswer()
	})
}

// TestHoldInVain waits no longer for a process that is busy than it may, and one that comes to have the driver open meanwhile ends.
func TestHoldInVain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s doubles
		c := s.open(t, "", func(string) string { return "" })
		opened := make(chan error, 1)
		go func() {
			_, err := c.Do(t.Context(), suspension.Save, 7, time.Hour)
			opened <- err
		}()
		synctest.Wait()
		if _, err := c.Hold(); !errors.Is(err, checkpointer.ErrBusy) {
			t.Errorf("while one is busy: %v", err)
		}
		if err := <-opened; !errors.Is(err, checkpointer.ErrSilent) {
			t.Errorf("after one held in vain: %v", err)
		}
		go func() {
			_, err := c.Do(t.Context(), suspension.Save, 7, time.Hour)
			opened <- err
		}()
		synctest.Wait()
		time.AfterFunc(time.Second, func() { s.greet(1, "ready 12080\n") })
		release, err := c.Hold()
		if err != nil {
			t.Fatal(err)
		}
		release()
		if err := <-opened; !errors.Is(err, checkpointer.ErrHeld) || len(s.asked) > 0 {
			t.Errorf("one that came to have the driver open: %v, asked %q", err, s.asked)
		}
	})
}

func TestNone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for greeting, want := range map[string]error{"none 12020\n": checkpointer.ErrUnsupported, "fault cuInit: result 100\n": nil, "": checkpointer.ErrSilent} {
			var s doubles
			c := s.open(t, greeting, func(string) string { return "" })
			_, err := c.Version(t.Context())
			if err == nil || want != nil && !errors.Is(err, want) {
				t.Errorf("after %q: %v", greeting, err)
			}
			if want == nil && !strings.Contains(err.Error(), "result 100") {
				t.Errorf("after %q: %v", greeting, err)
			}
		}
	})
}

func TestClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s doubles
		c := s.open(t, "ready 12080\n", func(string) string { return "" })
		done := make(chan error, 1)
		go func() {
			_, err := c.Do(t.Context(), suspension.Save, 7, time.Hour)
			done <- err
		}()
		synctest.Wait()
		if err := c.Close(); err != nil {
			t.Error(err)
		}
		if err := <-done; !errors.Is(err, checkpointer.ErrEnded) {
			t.Errorf("asked before: %v", err)
		}
		if _, err := c.State(t.Context(), 7); !errors.Is(err, checkpointer.ErrClosed) {
			t.Errorf("asked afterwards: %v", err)
		}
	})
}
