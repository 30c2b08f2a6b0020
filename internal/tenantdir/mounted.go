package tenantdir

import (
	"os"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/divvy-gpu/divvy/internal/edits"
	"github.com/divvy-gpu/divvy/internal/process"
)

// mounted remembers for a moment what is mounted at edits.ShareDir in mount namespaces:
// whoever asks about a process asks about its ancestors too, which mostly share one, and a
// user may have very many mounts there. The zero value is ready.
type mounted struct {
	mu    sync.Mutex // held for a moment, alone
	known map[mountsOf]mountsThen
}

// mountsOf is what decides what a process sees mounted: its mount namespace, and where in it
// the process's root directory is.
type mountsOf struct {
	namespace uint64
	root      string
}

type mountsThen struct {
	mounts []process.Mount
	read   time.Time
}

const (
	// mountsKept is for how long what was read is believed.
	mountsKept = 500 * time.Millisecond
	// mostKnown are remembered at once.
	mostKnown = 256
)

// at is what is mounted at edits.ShareDir for a process.
func (m *mounted) at(pid int) []process.Mount {
	key, ok := seenBy(pid)
	if !ok {
		return process.MountsAt(pid, edits.ShareDir)
	}
	m.mu.Lock()
	then, known := m.known[key]
	m.mu.Unlock()
	if known && time.Since(then.read) < mountsKept {
		return then.mounts
	}
	begun := time.Now()
	mounts := process.MountsAt(pid, edits.ShareDir)
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.known == nil || len(m.known) >= mostKnown {
		m.known = map[mountsOf]mountsThen{}
	}
	m.known[key] = mountsThen{mounts, begun}
	return mounts
}

// seenBy is what a process's mounts are told by; ok is false where that is not ours to see.
// It asks nothing of the file system of the root directory, which may be its user's.
func seenBy(pid int) (key mountsOf, ok bool) {
	dir := "/proc/" + strconv.Itoa(pid)
	var namespace unix.Stat_t
	err := unix.Stat(dir+"/ns/mnt", &namespace)
	root, rootErr := os.Readlink(dir + "/root")
	return mountsOf{namespace.Ino, root}, err == nil && rootErr == nil
}
