package vfio

import (
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/divvy-gpu/divvy/internal/process"
	"github.com/divvy-gpu/divvy/internal/vm/facts"
)

// readLimit is how long one file may take to be read. The kernel answers at once, unless the device's lock is held.
const readLimit = 250 * time.Millisecond

// Files are a machine's files from its root. Some of a PCI function's files cannot be read while its driver changes, and that
// may last as long as anybody holds the function: reading one of those ends in time with [os.ErrDeadlineExceeded].
//
// Of the running machine they also tell who has device nodes open, as [facts.Holders] asks it.
func Files(root string) fs.FS {
	if filepath.Clean(root) == "/" {
		return live{filesFor(root, readLimit)}
	}
	return filesFor(root, readLimit)
}

// live are the files of the running machine.
type live struct{ bounded }

// Openers tells who has device nodes open, which are named from /dev, and why there may be others.
func (l live) Openers(nodes []string) (found []facts.Opener, unseen []string, err error) {
	paths := make([]string, len(nodes))
	for i, node := range nodes {
		paths[i] = filepath.Join("/dev", node)
	}
	told := process.Look(paths...)
	for i, ids := range told.By {
		for _, id := range ids {
			found = append(found, facts.Opener{PID: id.PID, Node: nodes[i]})
		}
	}
	for _, id := range told.Cut {
		found = append(found, facts.Opener{PID: id.PID})
	}
	return found, unseenIn(told), nil
}

// unseenIn says of which processes a look did not tell what they have open.
func unseenIn(told process.Opened) (why []string) {
	if told.Closed > 0 {
		why = append(why, "the open files of "+facts.Counted(told.Closed, "process", "processes")+" may not be read")
	}
	if len(told.Cut) > 0 {
		why = append(why, facts.Counted(len(told.Cut), "process", "processes")+" could not be looked through in time: "+named(told.Cut))
	}
	if told.NamesOnly {
		why = append(why, "too many looks at processes have not ended, so who has it open by another name, or mapped, is not seen")
	}
	if len(told.Nameless) > 0 {
		why = append(why, "a device of VFIO is open, and the kernel does not tell which, in "+named(told.Nameless))
	}
	return why
}

// named names the first of some processes.
func named(ids []process.ID) string {
	const most = 5
	var parts []string
	for _, id := range ids[:min(len(ids), most)] {
		parts = append(parts, fmt.Sprintf("process %d (%s)", id.PID, process.Command(id.PID)))
	}
	if more := len(ids) - most; more > 0 {
		parts = append(parts, fmt.Sprintf("%d more", more))
	}
	return strings.Join(parts, ", ")
}

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
	folder, r := b.root+" "+path.Dir(name), &reader{over: make(chan struct{})}
	if !r.within(b.limit, folder, func() { r.content, r.err = fs.ReadFile(b.FS, name) }) {
		return nil, &fs.PathError{Op: "read", Path: name, Err: os.ErrDeadlineExceeded}
	}
	return r.content, r.err
}

// within does what may sleep, and reports whether it ended in time.
func (r *reader) within(limit time.Duration, folder string, do func()) bool {
	timer := time.NewTimer(limit)
	defer timer.Stop()
	if !r.begin(folder, timer.C) {
		return false
	}
	go func() {
		defer r.end(folder)
		do()
	}()
	select {
	case <-r.over:
		return true
	case <-timer.C:
		reading.Lock()
		defer reading.Unlock()
		r.late = true
		return false
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
