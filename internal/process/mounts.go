package process

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// What is read of /proc/PID/mountinfo. Mounts upon each other take the kernel a square time.
const (
	// mostMounts is in bytes, some ten thousand mounts.
	mostMounts = 2 << 20
	// mountsAtOnce is in bytes too: what nearly every process has. After as much as that
	// reading ends when it has taken mountsTime.
	mountsAtOnce = 64 << 10
	mountsTime   = 250 * time.Millisecond
)

// readMounts reads a process's mounts, whole lines of them, and reports whether these are
// all. dir is the process's directory in /proc.
func readMounts(dir string) (table []byte, whole bool) {
	key, told := mountsOf(dir)
	if table, whole, known := slow.recall(key); told && known {
		return table, whole
	}
	file, err := os.Open(filepath.Join(dir, "mountinfo"))
	if err != nil {
		return []byte{}, true
	}
	defer file.Close()
	begun := time.Now()
	table, whole = readWithin(file, begun)
	if took := time.Since(begun); told && took >= slowMounts {
		slow.remember(key, slowTable{table, whole, time.Now().Add(min(slowFactor*took, slowKept))})
	}
	return table, whole
}

func readWithin(file io.Reader, begun time.Time) (table []byte, whole bool) {
	var read bytes.Buffer
	for read.Len() < mostMounts && (read.Len() < mountsAtOnce || time.Since(begun) < mountsTime) {
		_, err := io.CopyN(&read, file, mountsAtOnce)
		if errors.Is(err, io.EOF) {
			return read.Bytes(), true
		}
		if err != nil {
			break
		}
	}
	return read.Bytes()[:bytes.LastIndexByte(read.Bytes(), '\n')+1], false
}

// slowTables remember the mounts that took long to read: whoever asks about a process asks
// about its ancestors and relatives too, which mostly see the same.
type slowTables struct {
	mu    sync.Mutex // held for a moment, alone
	known map[mountsKey]slowTable
}

// slow is for all who ask in this program.
var slow slowTables

// mountsKey decides what a process sees mounted: its mount namespace, and where in it the
// process's root directory is.
type mountsKey struct {
	namespace uint64
	root      string
}

type slowTable struct {
	table []byte
	whole bool
	until time.Time
}

const (
	// slowMounts is from when on reading took long. What was read counts for slowFactor times
	// as long, slowKept at most.
	slowMounts = 5 * time.Millisecond
	slowFactor = 50
	slowKept   = 10 * time.Second
	// mostSlow are remembered at once.
	mostSlow = 16
)

func (s *slowTables) recall(key mountsKey) (table []byte, whole, known bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	t, known := s.known[key]
	return t.table, t.whole, known && time.Now().Before(t.until)
}

func (s *slowTables) remember(key mountsKey, t slowTable) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.known == nil || len(s.known) >= mostSlow {
		s.known = map[mountsKey]slowTable{}
	}
	s.known[key] = t
}

// mountsOf is by what a process's mounts are told; ok is false where that is not ours to see.
// It asks nothing of the file system of the root directory, which may be its user's.
func mountsOf(dir string) (key mountsKey, ok bool) {
	var namespace unix.Stat_t
	err := unix.Stat(dir+"/ns/mnt", &namespace)
	root, rootErr := os.Readlink(dir + "/root")
	return mountsKey{namespace.Ino, root}, err == nil && rootErr == nil
}
