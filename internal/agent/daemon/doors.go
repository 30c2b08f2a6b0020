package daemon

import (
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
)

// doors are the sockets at which an agent is asked. It has another one when the file of
// the last was removed; connections that were made before go on.
type doors struct {
	mu      sync.Mutex
	open    []*net.UnixListener
	path    string
	file    os.FileInfo // the last one's, as it was made
	server  func(*net.UnixListener) error
	running sync.WaitGroup
	faults  []error
}

// add has a listener served whose file has that path.
func (d *doors) add(l *net.UnixListener, path string) error {
	file, err := os.Lstat(path)
	if err != nil {
		return errors.Join(fmt.Errorf("look at socket: %w", err), l.Close())
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.open, d.path, d.file = append(d.open, l), path, file
	if d.server != nil {
		d.start(l)
	}
	return nil
}

// serve has server called with each listener, also with those that are added later.
func (d *doors) serve(server func(*net.UnixListener) error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.server = server
	for _, l := range d.open {
		d.start(l)
	}
}

func (d *doors) start(l *net.UnixListener) {
	d.running.Go(func() {
		err := d.server(l)
		d.mu.Lock()
		defer d.mu.Unlock()
		d.faults = append(d.faults, err)
	})
}

// lost reports whether the last listener's file is not where it was made.
func (d *doors) lost() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return changed(d.path, d.file)
}

// changed reports whether a path has not the file that it had.
func changed(path string, was os.FileInfo) bool {
	is, err := os.Lstat(path)
	return err != nil || was == nil || !os.SameFile(is, was)
}

// close closes all listeners, and with them their files, and waits for those who serve
// them.
func (d *doors) close() error {
	d.mu.Lock()
	for _, l := range d.open {
		d.faults = append(d.faults, l.Close())
	}
	d.mu.Unlock()
	d.running.Wait()
	return errors.Join(d.faults...)
}
