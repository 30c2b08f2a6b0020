package wire

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"testing"
)

func TestFrames(t *testing.T) {
	var line bytes.Buffer
	line.WriteString("firmware says \xd1\xd1\x56 and goes on")
	long := bytes.Repeat([]byte("x"), Max+5)
	if _, err := (Stream{To: &line, Kind: Output}).Write(long); err != nil {
		t.Fatal(err)
	}
	line.WriteString("\xd1\x56 a kernel that shouts in between \xd1")
	if err := Write(&line, Result, []byte{3}); err != nil {
		t.Fatal(err)
	}
	in := bufio.NewReader(&line)
	for _, want := range []struct {
		kind Kind
		size int
	}{{Output, Max}, {Output, 5}, {Result, 1}} {
		kind, payload, err := Read(in)
		if err != nil || kind != want.kind || len(payload) != want.size {
			t.Fatalf("read kind %d with %d bytes, %v; want kind %d with %d", kind, len(payload), err, want.kind, want.size)
		}
	}
	if _, _, err := Read(in); !errors.Is(err, io.EOF) {
		t.Errorf("at the end: %v, want io.EOF", err)
	}
}

func TestBrokenFrames(t *testing.T) {
	for name, text := range map[string]string{
		"no size": "\xd1\x56\x4d\x1d\x02\x00\x00", "short": "\xd1\x56\x4d\x1d\x02\x00\x00\x00\x09abc", "huge": "\xd1\x56\x4d\x1d\x02\xff\x00\x00\x00",
	} {
		if _, _, err := Read(bufio.NewReader(bytes.NewBufferString(text))); !errors.Is(err, ErrFrame) {
			t.Errorf("%s: %v, want ErrFrame", name, err)
		}
	}
	if err := Write(io.Discard, Output, make([]byte, Max+1)); !errors.Is(err, ErrFrame) {
		t.Errorf("a payload that is too long: %v, want ErrFrame", err)
	}
}
