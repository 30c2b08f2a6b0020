package wire

import (
	"bytes"
	"os"
	"regexp"
	"testing"
)

func TestHello(t *testing.T) {
	hello := bytes.Repeat([]byte{0xff}, HelloBytes)
	copy(hello[helloProcess:], []byte{7, 1, 0, 0}) // little-endian, as both sides are
	if got := ProcessOf(hello); got != 0x107 {
		t.Errorf("process %#x", got)
	}
	ToStream(hello)
	want := append(append(bytes.Repeat([]byte{0xff}, 16), 2, 0, 0, 0, 0, 0, 0, 0), bytes.Repeat([]byte{0xff}, 8)...)
	if !bytes.Equal(hello, want) {
		t.Errorf("% x, want % x", hello, want)
	}
}

// The hello is as the C side has it.
func TestHelloAsInC(t *testing.T) {
	text, err := os.ReadFile("../../../lib/remote/link_inside.h")
	if err != nil {
		t.Fatal(err)
	}
	if !regexp.MustCompile(`REMOTE_LINK_STREAM = 2\b`).Match(text) || helloStream != 2 {
		t.Error("a stream has another number")
	}
	text, err = os.ReadFile("../../../lib/remote/link_hello.c")
	if err != nil {
		t.Fatal(err)
	}
	layout := regexp.MustCompile(`struct remote_hello \{\s+char magic\[8\];\s+uint64_t protocol;\s+uint32_t kind;[^\n]*\s+uint32_t process;[^\n]*\s+uint64_t zero;\s+\};`)
	if !layout.Match(text) || helloKind != 16 || helloProcess != 20 || HelloBytes != 32 {
		t.Error("the hello is laid out otherwise")
	}
}
