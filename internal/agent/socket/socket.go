// Package socket follows daemons that create their sockets again when they restart, as
// the kubelet and the container runtime do, and connects to them again.
package socket

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"github.com/fsnotify/fsnotify"
)

// Watcher tells of changes in the directory of one socket.
type Watcher struct {
	path    string
	notify  *fsnotify.Watcher
	changed chan struct{}
}

// Watch watches the directory of a socket, which need not be there yet; the
// directory is made if it is not.
func Watch(path string) (*Watcher, error) {
	dir := filepath.Dir(path)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("make the directory of socket %s: %w", path, err)
	}
	notify, err := fsnotify.NewWatcher()
	if err != nil {
		return nil, fmt.Errorf("watch %s: %w", dir, err)
	}
	if err := notify.Add(dir); err != nil {
		return nil, errors.Join(fmt.Errorf("watch %s: %w", dir, err), notify.Close())
	}
	w := &Watcher{path: path, notify: notify, changed: make(chan struct{}, 1)}
	go w.run()
	return w, nil
}

// Changed receives a value after files were created, removed or renamed in the
// directory. It is closed with the watcher.
func (w *Watcher) Changed() <-chan struct{} { return w.changed }

// Close ends the watch.
func (w *Watcher) Close() { _ = w.notify.Close() }

// run merges many events into one notice, whose receiver looks for itself. An error of
// the queue may have hidden an event, so it counts as one.
func (w *Watcher) run() {
	defer close(w.changed)
	for {
		select {
		case event, ok := <-w.notify.Events:
			if !ok {
				return
			}
			if !event.Has(fsnotify.Create | fsnotify.Remove | fsnotify.Rename) {
				continue
			}
		case _, ok := <-w.notify.Errors:
			if !ok {
				return
			}
		}
		select {
		case w.changed <- struct{}{}:
		default:
		}
	}
}

// ID distinguishes sockets that had the same path one after the other; the zero ID
// means that there is none.
type ID struct {
	device, inode uint64
	changed       syscall.Timespec
}

// Identify returns the ID of the socket at the path; the zero ID if there is none or
// the file there is not a socket.
func Identify(path string) ID {
	info, err := os.Stat(path)
	if err != nil || info.Mode()&fs.ModeSocket == 0 {
		return ID{}
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return ID{}
	}
	return ID{device: stat.Dev, inode: stat.Ino, changed: stat.Ctim}
}
