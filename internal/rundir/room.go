package rundir

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/divvy-gpu/divvy/internal/process"
)

// holdersShown bounds the users that are named, and mostFiles the files that are looked
// at for that.
const (
	holdersShown = 3
	mostFiles    = 100_000
)

// Full says what keeps a file system full, and what a reader can do about it.
type Full struct {
	// Dir is its root directory.
	Dir string
	// Holders names the users who have most there, as far as this process may see it.
	Holders string
	// most is who has most, -1 if nobody is seen.
	most int
}

// NoRoom describes the full file system because of which an operation failed; ok is
// false for any other error.
func NoRoom(err error) (f Full, ok bool) {
	if !errors.Is(err, syscall.ENOSPC) {
		return f, false
	}
	dir := filepath.Dir(owns)
	var at *fs.PathError
	if errors.As(err, &at) {
		dir = filepath.Dir(at.Path)
	}
	return LookFull(dir), true
}

// LookFull describes the file system of a directory, which is full.
func LookFull(dir string) Full {
	f := Full{Dir: rootOf(dir), most: -1}
	bytes, files := usage(f.Dir)
	sums, unit, write := bytes, uint64(1<<20), "%s has %d MiB"
	var stat unix.Statfs_t
	if unix.Statfs(f.Dir, &stat) == nil && stat.Ffree == 0 && stat.Files > 0 {
		sums, unit, write = files, 1, "%s has %d files" // there is room, and no file can be made
	}
	users := slices.SortedFunc(maps.Keys(sums), func(x, y int) int { return cmp.Or(cmp.Compare(sums[y], sums[x]), x-y) })
	var texts []string
	for _, uid := range users[:min(len(users), holdersShown)] {
		if n := sums[uid] / unit; n > 0 {
			texts = append(texts, fmt.Sprintf("user "+write, process.UserName(uid), n))
		}
	}
	if len(texts) > 0 {
		f.most = users[0]
	}
	f.Holders = strings.Join(texts, ", ")
	return f
}

// Text is what a reader is told.
func (f Full) Text(reader int) string {
	text := f.Dir + " is full"
	if f.Holders != "" {
		text += "; " + f.Holders + " there"
	}
	return text + ": " + f.Remedy(reader)
}

// Remedy is what a reader can do.
func (f Full) Remedy(reader int) string {
	switch {
	case reader == 0:
		return "delete what is not needed in " + f.Dir + ", or make it larger (`mount -o remount,size=`; of a container, --shm-size)"
	case f.most == reader:
		return "delete what you do not need in " + f.Dir
	}
	return "ask them or an administrator to make room in " + f.Dir
}

// rootOf is the highest directory above one that is on the same file system.
func rootOf(dir string) string {
	device := func(path string) (uint64, bool) {
		info, err := os.Stat(path)
		if err != nil {
			return 0, false
		}
		stat, ok := info.Sys().(*syscall.Stat_t)
		return stat.Dev, ok
	}
	for at, known := device(dir); dir != filepath.Dir(dir); dir = filepath.Dir(dir) {
		above, ok := device(filepath.Dir(dir))
		if known && (!ok || above != at) {
			return dir
		}
		if !known {
			at, known = above, ok
		}
	}
	return dir
}

// usage adds up by user what lies below a directory on one file system. What may not be
// seen is left out.
func usage(root string) (bytes, files map[int]uint64) {
	bytes, files = map[int]uint64{}, map[int]uint64{}
	var device uint64
	n := 0
	_ = filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error { // it returns what the function does
		if n++; n > mostFiles {
			return fs.SkipAll
		}
		if err != nil {
			return nil //nolint:nilerr // a directory that is closed to this user, or gone
		}
		info, err := entry.Info()
		if err != nil {
			return nil //nolint:nilerr // gone
		}
		stat, ok := info.Sys().(*syscall.Stat_t)
		switch {
		case !ok:
			return nil
		case path == root:
			device = stat.Dev
		case stat.Dev != device:
			return fs.SkipDir
		}
		bytes[int(stat.Uid)] += uint64(stat.Blocks) * 512
		files[int(stat.Uid)]++
		return nil
	})
	return bytes, files
}
