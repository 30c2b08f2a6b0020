package agent

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"

	"golang.org/x/sys/unix"

	"context"
)

// deaths tells of processes that died. A living process maps its tenant's state
// page and holds a lock through it; when it dies, the kernel closes that file,
// which inotify(7) reports just before the lock is gone.
type deaths struct {
	file *os.File

	mu      sync.Mutex
	tenants map[int32]string // by watch descriptor
	watches map[string]int32
}

func newDeaths() (*deaths, error) {
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		return nil, fmt.Errorf("watch for deaths: %w: raise fs.inotify.max_user_instances", err)
	}
	return &deaths{
		file: os.NewFile(uintptr(fd), "inotify"), tenants: map[int32]string{}, watches: map[string]int32{},
	}, nil
}

// add watches a tenant's page.
func (d *deaths) add(tenant, dir string) error {
	conn, err := d.file.SyscallConn()
	if err != nil {
		return fmt.Errorf("watch for deaths: %w", err)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	var watch int
	var addErr error
	err = conn.Control(func(fd uintptr) {
		watch, addErr = unix.InotifyAddWatch(int(fd), filepath.Join(dir, "state"), unix.IN_CLOSE_WRITE|unix.IN_DONT_FOLLOW)
	})
	if err := errors.Join(err, addErr); err != nil {
		return fmt.Errorf("watch for deaths: %w", err)
	}
	d.tenants[int32(watch)] = tenant
	d.watches[tenant] = int32(watch)
	return nil
}

// remove forgets a tenant; the kernel drops the watch with the file.
func (d *deaths) remove(tenant string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.tenants, d.watches[tenant])
	delete(d.watches, tenant)
}

// run calls notice with the tenant of every event until close.
func (d *deaths) run(_ context.Context, notice func(tenant string)) {
	events := make([]byte, 64*unix.SizeofInotifyEvent)
	for {
		n, err := d.file.Read(events)
		if err != nil {
			return // closed; what is missed the sweep finds
		}
		for _, watch := range watchesOf(events[:n]) {
			d.mu.Lock()
			tenant, ok := d.tenants[watch]
			d.mu.Unlock()
			if ok {
				notice(tenant)
			}
		}
	}
}

// watchesOf returns the watch descriptors of the events that tell of a close.
func watchesOf(events []byte) []int32 {
	var watches []int32
	for len(events) >= unix.SizeofInotifyEvent {
		watch := int32(binary.NativeEndian.Uint32(events))
		mask := binary.NativeEndian.Uint32(events[4:])
		size := unix.SizeofInotifyEvent + uint64(binary.NativeEndian.Uint32(events[12:]))
		if mask&unix.IN_CLOSE_WRITE != 0 {
			watches = append(watches, watch)
		}
		if size > uint64(len(events)) {
			break
		}
		events = events[size:]
	}
	return watches
}

func (d *deaths) close() {
	d.file.Close()
}
