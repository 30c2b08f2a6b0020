package gpulock

import (
	"fmt"
	"net"
	"os"
	"strings"
	"testing"
)

// The kernel tells whose a socket is without being let into its process.
func TestOwnerOfASocket(t *testing.T) {
	name := fmt.Sprintf("@divvy-test-owner-%d", os.Getpid())
	l, err := net.Listen("unix", name)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	inode, ok := listening(name)
	if !ok {
		t.Fatalf("no socket %s listens", name)
	}
	if uid, err := ownerOf(inode); err != nil || uid != os.Getuid() {
		t.Errorf("its owner is %d, %v", uid, err)
	}
	l.Close()
	if uid, err := ownerOf(inode); err == nil {
		t.Errorf("a socket that is closed is user %d's", uid)
	}
}

// Bytes that are no answer are refused.
func TestParseOwner(t *testing.T) {
	answer := ownerRequest(7)[:answerSize]
	for name, b := range map[string][]byte{
		"nothing":             nil,
		"no attribute":        answer,
		"a short attribute":   append(append([]byte{}, answer...), 3, 0, attrOwner, 0, 0, 0, 0, 0),
		"a long attribute":    append(append([]byte{}, answer...), 60, 0, attrOwner, 0, 0, 0, 0, 0),
		"another attribute":   append(append([]byte{}, answer...), 8, 0, 1, 0, 0, 0, 0, 0),
		"an owner of 2 bytes": append(append([]byte{}, answer...), 6, 0, attrOwner, 0, 1, 0, 0, 0),
		"zeroes":              make([]byte, 64),
	} {
		if uid, err := parseOwner(b); err == nil || !strings.HasPrefix(err.Error(), "ask for a socket's owner: ") {
			t.Errorf("%s: user %d, %v", name, uid, err)
		}
	}
	if uid, err := parseOwner(append(append([]byte{}, answer...), 8, 0, attrOwner, 0, 5, 0, 0, 0)); uid != 5 || err != nil {
		t.Errorf("user %d, %v", uid, err)
	}
}
