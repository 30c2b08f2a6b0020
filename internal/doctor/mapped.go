package doctor

import (
	"bytes"
	"context"
	"debug/elf"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/divvy-gpu/divvy/internal/driver"
)

// Library is a file with the name of one of the driver's libraries, or of ours in its place.
type Library struct {
	Path string
	// Ours is true for Divvy's, which asks for the driver's under another name.
	Ours bool
	// Client is true for Divvy's that sends each call to a worker, as the commands of backend remote have it.
	Client bool
	// Build is what the linker wrote to tell builds apart, "" where it did not.
	Build string
	// Runpath is where a library of Divvy's looks for the driver's and for the share's pages.
	Runpath string
	// Gone is true where another file is at the path by now, or none: nothing else is known then.
	Gone bool
}

const (
	// mostMaps bounds what is read of what a process has mapped.
	mostMaps = 8 << 20
	// mostLibraries bounds the libraries of a process that are looked at. A program has one or two.
	mostLibraries = 8
)

// Mapped lists which of the driver's libraries for CUDA, and of ours in their place, a process has mapped: the first ones, where
// it has more than anybody needs. It fails for processes of others, and when ctx is done.
func Mapped(ctx context.Context, pid int) (libraries []Library, err error) {
	proc := fmt.Sprintf("/proc/%d", pid)
	file, err := os.Open(filepath.Join(proc, "maps"))
	if err != nil {
		return nil, err
	}
	defer file.Close()
	table, err := io.ReadAll(io.LimitReader(file, mostMaps))
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", file.Name(), err)
	}
	var seen []string
	for line := range bytes.Lines(table) {
		if err := ctx.Err(); err != nil {
			return nil, fmt.Errorf("read %s: %w", file.Name(), err)
		}
		if len(seen) == mostLibraries {
			break
		}
		path, node, ok := mapping(string(line))
		if !ok || slices.Contains(seen, path) {
			continue
		}
		seen = append(seen, path)
		libraries = append(libraries, inspect(filepath.Join(proc, "root", path), path, node))
	}
	return libraries, nil
}

// mapping is the path and the inode of a line of maps, if it is of a library for CUDA.
func mapping(line string) (path, node string, ok bool) {
	fields := strings.SplitN(strings.TrimRight(line, "\n"), " ", 6)
	const inode, name = 4, 5
	if len(fields) <= name {
		return "", "", false
	}
	path = strings.TrimLeft(fields[name], " ")
	base := filepath.Base(path)
	ok = filepath.IsAbs(path) && (strings.HasPrefix(base, "libcuda.so") || strings.HasPrefix(base, "libcuda-real.so"))
	return path, fields[inode], ok
}

// inspect looks at the file that a process has mapped, if it is still at its path. Node is its inode, "" for any.
func inspect(at, path, node string) Library {
	l := Library{Path: path, Gone: true}
	file, err := os.OpenFile(at, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return l
	}
	defer file.Close()
	var stat unix.Stat_t
	if unix.Fstat(int(file.Fd()), &stat) != nil || stat.Mode&unix.S_IFMT != unix.S_IFREG || node != "" && fmt.Sprint(stat.Ino) != node {
		return l
	}
	object, err := driver.Object(file)
	if err != nil {
		return l
	}
	l.Gone = false
	needed, _ := object.ImportedLibraries() // a damaged one needs nothing
	l.Ours = slices.Contains(needed, driver.CUDA.Real())
	l.Client = slices.Contains(needed, driver.Remote)
	if runpath, err := object.DynString(elf.DT_RUNPATH); err == nil && len(runpath) == 1 {
		l.Runpath = runpath[0]
	}
	l.Build = build(object)
	return l
}

// mostNote bounds a note that tells builds apart.
const mostNote = 4096

func build(object *elf.File) string {
	section := object.Section(".note.gnu.build-id")
	if section == nil || section.Size > mostNote {
		return ""
	}
	note, err := section.Data()
	const header = 16 // sizes of name and text, a type, and the name "GNU"
	if err != nil || len(note) <= header {
		return ""
	}
	return hex.EncodeToString(note[header:])
}

// LibraryAt looks at a library by its path.
func LibraryAt(path string) Library { return inspect(path, path, "") }
