package kit

import (
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// Archive writes a memory disk in the kernel's format (newc). The kernel takes several of them, one behind the other.
type Archive struct {
	to   io.Writer
	made map[string]bool
	next int
	err  error
}

// NewArchive starts a disk. Its folders are made as files need them.
func NewArchive(to io.Writer) *Archive {
	return &Archive{to: to, made: map[string]bool{".": true, "/": true}}
}

// Close ends the disk, and returns the first error of everything that was added.
func (a *Archive) Close() error {
	a.entry("TRAILER!!!", 0, nil)
	return a.err
}

// Folder adds a folder and those above it.
func (a *Archive) Folder(name string) {
	name = strings.TrimPrefix(path.Clean(name), "/")
	if a.made[name] {
		return
	}
	a.Folder(path.Dir(name))
	a.made[name] = true
	a.entry(name, 0o040755, nil)
}

// File adds a file with its permission bits.
func (a *Archive) File(name string, mode fs.FileMode, content []byte) {
	a.put(name, 0o100000|uint32(mode.Perm()), content)
}

// Link adds a symbolic link.
func (a *Archive) Link(name, target string) {
	a.put(name, 0o120777, []byte(target))
}

func (a *Archive) put(name string, mode uint32, content []byte) {
	name = strings.TrimPrefix(path.Clean(name), "/")
	if a.made[name] {
		return
	}
	a.Folder(path.Dir(name))
	a.made[name] = true
	a.entry(name, mode, content)
}

// Copy adds a file of the host, following links.
func (a *Archive) Copy(name, from string) {
	content, err := os.ReadFile(from) //nolint:gosec // what the caller names goes into its own guest
	if err != nil {
		a.fail(err)
		return
	}
	info, err := os.Stat(from)
	if err != nil {
		a.fail(err)
		return
	}
	a.File(name, info.Mode(), content)
}

// Tree adds a file of the host, or a folder with all below it. Links stay links.
func (a *Archive) Tree(name, from string) {
	a.fail(filepath.WalkDir(from, func(at string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		relative, err := filepath.Rel(from, at)
		if err != nil {
			return err
		}
		into := path.Join(name, filepath.ToSlash(relative))
		switch {
		case entry.IsDir():
			a.Folder(into)
		case entry.Type()&fs.ModeSymlink != 0:
			target, err := os.Readlink(at)
			if err != nil {
				return err
			}
			a.Link(into, target)
		case entry.Type().IsRegular():
			a.Copy(into, at)
		}
		return nil
	}))
}

func (a *Archive) fail(err error) {
	if a.err == nil && err != nil {
		a.err = fmt.Errorf("write a memory disk: %w", err)
	}
}

// entry writes one entry: thirteen numbers of eight hexadecimal digits, name and content padded to four bytes.
func (a *Archive) entry(name string, mode uint32, content []byte) {
	if a.err != nil {
		return
	}
	a.next++
	numbers := []int{a.next, int(mode), 0, 0, 1, 0, len(content), 0, 0, 0, 0, len(name) + 1, 0}
	head := "070701"
	for _, number := range numbers {
		head += fmt.Sprintf("%08X", number)
	}
	for _, part := range [][]byte{padded([]byte(head + name + "\x00")), padded(content)} {
		if _, err := a.to.Write(part); err != nil {
			a.fail(err)
			return
		}
	}
}

func padded(b []byte) []byte {
	if rest := len(b) % 4; rest != 0 {
		return slices.Concat(b, make([]byte, 4-rest))
	}
	return b
}
