package tenantdir

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/divvy-gpu/divvy/internal/backend"
)

// notices tells what inotify(7) reports of tenants' state pages. A living process
// maps its tenant's page and holds a lock through it: when it dies, the kernel
// closes that file just before the lock is gone. A process that ends a silence
// touches the page.
type notices struct {
	file *os.File

	mu      sync.Mutex
	tenants map[int32]string // by watch descriptor
	watches map[string]int32
}

// The events that tell of a death and of the end of a silence.
const (
	deathEvents = unix.IN_CLOSE_WRITE
	stirEvents  = unix.IN_ATTRIB
)

const (
	// noticePause is between two readings, in which each tenant counts once:
	// tenants make events as often as they like.
	noticePause = time.Millisecond
	// mostEvents are read at once: more than a processor can make in the pause.
	mostEvents = 4096
)

// Notices implements [backend.Notifier].
func (*Tenants) Notices() (backend.Notices, error) {
	n, err := newNotices()
	if err != nil {
		return nil, err
	}
	return n, nil
}

func newNotices() (*notices, error) {
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		return nil, fmt.Errorf("watch tenants: %w: raise fs.inotify.max_user_instances", err)
	}
	return &notices{
		file: os.NewFile(uintptr(fd), "inotify"), tenants: map[int32]string{}, watches: map[string]int32{},
	}, nil
}

// Add implements [backend.Notices].
func (n *notices) Add(t backend.Tenant) error {
	conn, err := n.file.SyscallConn()
	if err != nil {
		return fmt.Errorf("watch a tenant: %w", err)
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	var watch int
	var addErr error
	err = conn.Control(func(fd uintptr) {
		watch, addErr = unix.InotifyAddWatch(int(fd), Dir(t.Dir).State(), deathEvents|stirEvents|unix.IN_DONT_FOLLOW)
	})
	if err := errors.Join(err, addErr); err != nil {
		return fmt.Errorf("watch a tenant: %w", err)
	}
	n.tenants[int32(watch)] = t.ID
	n.watches[t.ID] = int32(watch)
	return nil
}

// Remove implements [backend.Notices]. The kernel drops the watch with the file.
func (n *notices) Remove(tenant string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.tenants, n.watches[tenant])
	delete(n.watches, tenant)
}

// Run implements [backend.Notices]. It tells of each tenant at most once per reading.
func (n *notices) Run(ctx context.Context, to backend.Listener) {
	data := make([]byte, mostEvents*unix.SizeofInotifyEvent)
	for {
		read, err := n.file.Read(data)
		if err != nil {
			return // closed; what is missed the sweep finds
		}
		masks := map[int32]uint32{}
		for _, e := range pageEventsIn(data[:read]) {
			masks[e.watch] |= e.mask
		}
		n.tell(masks, to)
		select {
		case <-time.After(noticePause):
		case <-ctx.Done():
			return
		}
	}
}

// tell passes on what happened by watch descriptor.
func (n *notices) tell(masks map[int32]uint32, to backend.Listener) {
	for watch, mask := range masks {
		n.mu.Lock()
		tenant, ok := n.tenants[watch]
		n.mu.Unlock()
		switch {
		case mask&unix.IN_Q_OVERFLOW != 0:
			to.Lost()
		case ok && mask&deathEvents != 0:
			to.Death(tenant)
		}
		if ok && mask&stirEvents != 0 {
			to.Stir(tenant)
		}
	}
}

// pageEvent is an event of inotify(7).
type pageEvent struct {
	watch int32
	mask  uint32
}

// pageEventsIn decodes what was read of an inotify descriptor.
func pageEventsIn(data []byte) []pageEvent {
	var events []pageEvent
	for len(data) >= unix.SizeofInotifyEvent {
		events = append(events, pageEvent{
			watch: int32(binary.NativeEndian.Uint32(data)), mask: binary.NativeEndian.Uint32(data[4:]),
		})
		size := unix.SizeofInotifyEvent + uint64(binary.NativeEndian.Uint32(data[12:]))
		if size > uint64(len(data)) {
			break
		}
		data = data[size:]
	}
	return events
}

// Close implements [backend.Notices].
func (n *notices) Close() {
	n.file.Close()
}
