package agent

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/sys/unix"
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

// noticePause is between two readings: tenants make events as often as they like,
// and the kernel keeps equal ones as one.
const noticePause = time.Millisecond

func newNotices() (*notices, error) {
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		return nil, fmt.Errorf("watch tenants: %w: raise fs.inotify.max_user_instances", err)
	}
	return &notices{
		file: os.NewFile(uintptr(fd), "inotify"), tenants: map[int32]string{}, watches: map[string]int32{},
	}, nil
}

// add watches a tenant's page.
func (n *notices) add(tenant, dir string) error {
	conn, err := n.file.SyscallConn()
	if err != nil {
		return fmt.Errorf("watch a tenant: %w", err)
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	var watch int
	var addErr error
	err = conn.Control(func(fd uintptr) {
		watch, addErr = unix.InotifyAddWatch(int(fd), filepath.Join(dir, "state"), deathEvents|stirEvents|unix.IN_DONT_FOLLOW)
	})
	if err := errors.Join(err, addErr); err != nil {
		return fmt.Errorf("watch a tenant: %w", err)
	}
	n.tenants[int32(watch)] = tenant
	n.watches[tenant] = int32(watch)
	return nil
}

// remove forgets a tenant; the kernel drops the watch with the file.
func (n *notices) remove(tenant string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.tenants, n.watches[tenant])
	delete(n.watches, tenant)
}

// run calls death and stir with the tenants of events until close or ctx is done.
func (n *notices) run(ctx context.Context, death, stir func(tenant string)) {
	events := make([]byte, 64*unix.SizeofInotifyEvent)
	for {
		read, err := n.file.Read(events)
		if err != nil {
			return // closed; what is missed the sweep finds
		}
		for _, e := range pageEventsIn(events[:read]) {
			n.mu.Lock()
			tenant, ok := n.tenants[e.watch]
			n.mu.Unlock()
			if ok && e.mask&deathEvents != 0 {
				death(tenant)
			}
			if ok && e.mask&stirEvents != 0 {
				stir(tenant)
			}
		}
		select {
		case <-time.After(noticePause):
		case <-ctx.Done():
			return
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

func (n *notices) close() {
	n.file.Close()
}
