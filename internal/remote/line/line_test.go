package line

import (
	"errors"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// word is a message of the tests.
type word struct {
	Text string `json:"text"`
}

const most = 64 << 10

// pair is a line of which this process has both ends.
func pair(t *testing.T) (ours, theirs *Line) {
	t.Helper()
	ours, end, err := Pair(most)
	if err != nil {
		t.Fatal(err)
	}
	if theirs, err = Of(end, most); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = ours.Close(), theirs.Close() })
	return ours, theirs
}

// descriptors is how many files this process has.
func descriptors(t *testing.T) int {
	t.Helper()
	all, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(all)
}

func TestMessagesAndFiles(t *testing.T) {
	ours, theirs := pair(t)
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer read.Close()
	if err := errors.Join(ours.Say(word{"first"}, nil), ours.Say(word{"second"}, write), write.Close()); err != nil {
		t.Fatal(err)
	}
	var heard word
	if file, err := theirs.HearWith(&heard); err != nil || file != nil || heard.Text != "first" {
		t.Fatalf("%+v with %v, %v", heard, file, err)
	}
	file, err := theirs.HearWith(&heard)
	if err != nil || file == nil || heard.Text != "second" {
		t.Fatalf("%+v with %v, %v", heard, file, err)
	}
	if _, err := file.WriteString("through it"); err != nil {
		t.Fatal(err)
	}
	if err := file.Close(); err != nil {
		t.Fatal(err)
	}
	if text, err := io.ReadAll(read); err != nil || string(text) != "through it" {
		t.Errorf("%q, %v", text, err)
	}
	long := &TooLongError{}
	if err := ours.Say(word{strings.Repeat("x", most)}, nil); !errors.As(err, &long) || long.Most != most {
		t.Errorf("a message that is too long: %v", err)
	}
	if err := ours.Say(word{strings.Repeat("x", most-16)}, nil); err != nil {
		t.Errorf("the longest message: %v", err)
	}
	if err := theirs.Hear(&heard); err != nil || len(heard.Text) != most-16 {
		t.Errorf("the longest message has %d bytes, %v", len(heard.Text), err)
	}
	if err := theirs.SetHearDeadline(time.Now()); err != nil {
		t.Fatal(err)
	}
	if err := theirs.Hear(&heard); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("nothing comes, and it is told: %v", err)
	}
	if err := errors.Join(theirs.SetHearDeadline(time.Time{}), ours.Close()); err != nil {
		t.Fatal(err)
	}
	if err := theirs.Hear(&heard); !errors.Is(err, io.EOF) {
		t.Errorf("the other side ended, and it is told: %v", err)
	}
}

// Whatever the other process sends, no descriptor of it stays.
func TestForeignFilesAreClosed(t *testing.T) {
	ours, theirs := pair(t)
	raw, err := ours.conn.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	send := func(text string, count int) {
		t.Helper()
		fds := make([]int, count)
		for i := range fds {
			fds[i] = 0
		}
		var failed error
		if err := raw.Write(func(fd uintptr) bool {
			failed = unix.Sendmsg(int(fd), []byte(text), unix.UnixRights(fds...), nil, 0)
			return true
		}); err != nil || failed != nil {
			t.Fatal(err, failed)
		}
	}
	before := descriptors(t)
	var heard word
	for name, one := range map[string]struct {
		text  string
		count int
	}{
		"two files": {`{"text":"a"}`, 2}, "more than have room": {`{"text":"a"}`, 100}, "no message": {`{`, 1},
		"an unknown field": {`{"text":"a","more":1}`, 1}, "a message that is too long": {strings.Repeat("x", most+1), 1},
	} {
		send(one.text, one.count)
		if file, err := theirs.HearWith(&heard); err == nil || file != nil {
			t.Errorf("%s: %v, %v", name, file, err)
		}
		if now := descriptors(t); now != before {
			t.Errorf("%s: %d descriptors, and %d before", name, now, before)
		}
	}
	send(`{"text":"alone"}`, 1)
	if err := theirs.Hear(&heard); err != nil || heard.Text != "alone" || descriptors(t) != before {
		t.Errorf("a file that nobody asked for: %+v, %v, %d descriptors", heard, err, descriptors(t))
	}
	send(`{"text":"whole"}`, 1)
	if file, err := theirs.HearWith(&heard); err != nil || file == nil || heard.Text != "whole" || file.Close() != nil {
		t.Errorf("afterwards: %+v, %v", heard, err)
	}
}
