package vfio

import (
	"io/fs"
	"os"
	"path"
	"strings"
	"sync"
	"time"
)

// readLimit is how long one file may take to be read. The kernel answers at once, unless the device's lock is held.
const readLimit = 250 * time.Millisecond

// Files are a machine's files from its root. Some of a PCI function's files cannot be read while its driver changes, and that
// may last as long as anybody holds the function: reading one of those ends in time with [os.ErrDeadlineExceeded].
func Files(root string) fs.FS { return filesFor(root, readLimit) }

func filesFor(root string, limit time.Duration) bounded { return bounded{os.DirFS(root), root, limit} }

type bounded struct {
	fs.FS
	root  string
	limit time.Duration
}

var (
	_ fs.ReadLinkFS = bounded{}
	_ fs.ReadDirFS  = bounded{}
	_ fs.ReadFileFS = bounded{}
)

func (b bounded) ReadLink(name string) (string, error)       { return fs.ReadLink(b.FS, name) }
func (b bounded) Lstat(name string) (fs.FileInfo, error)     { return fs.Lstat(b.FS, name) }
func (b bounded) ReadDir(name string) ([]fs.DirEntry, error) { return fs.ReadDir(b.FS, name) }

// reader reads a file of a folder. Nobody else does meanwhile: where one sleeps, no other begins to.
type reader struct {
	over    chan struct{} // closed afterwards
	late    bool          // guarded by reading: it took too long once, so nobody waits for it
	content []byte
	err     error
}

// reading has the readers, by folder.
var reading = struct {
	sync.Mutex
	folders map[string]*reader
}{folders: map[string]*reader{}}

// begin enters a reader once nobody else reads in a folder. It is false if that takes too long.
func (r *reader) begin(folder string, limit <-chan time.Time) bool {
	for {
		reading.Lock()
		other := reading.folders[folder]
		late := other != nil && other.late
		if other == nil {
			reading.folders[folder] = r
		}
		reading.Unlock()
		switch {
		case other == nil:
			return true
		case late:
			return false
		}
		select {
		case <-other.over:
		case <-limit:
			return false
		}
	}
}

func (r *reader) end(folder string) {
	reading.Lock()
	defer reading.Unlock()
	delete(reading.folders, folder)
	close(r.over)
}

func (b bounded) ReadFile(name string) ([]byte, error) {
	if !locked(name) {
		return fs.ReadFile(b.FS, name)
	}
	timer := time.NewTimer(b.limit)
	defer timer.Stop()
	late := &fs.PathError{Op: "read", Path: name, Err: os.ErrDeadlineExceeded}
	folder, r := b.root+" "+path.Dir(name), &reader{over: make(chan struct{})}
	if !r.begin(folder, timer.C) {
		return nil, late
	}
	go func() {
		defer r.end(folder)
		r.content, r.err = fs.ReadFile(b.FS, name)
	}()
	select {
	case <-r.over:
		return r.content, r.err
	case <-timer.C:
		reading.Lock()
		defer reading.Unlock()
		r.late = true
		return nil, late
	}
}

// locked tells whether reading a file may wait for a device's lock, or for its driver.
func locked(name string) bool {
	switch path.Base(name) {
	case "driver_override", "sriov_numvfs":
		return true
	}
	return strings.HasPrefix(name, "proc/driver/nvidia/") || strings.Contains(name, "/mdev_supported_types/") || strings.Contains(name, "/nvidia/")
}
