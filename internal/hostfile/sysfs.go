package hostfile

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"slices"
	"strings"
	"time"
)

// Sysfs is a recorded part of /sys, or of what lies beside it. It follows no links by itself: its readers resolve each link they
// mean to.
type Sysfs struct {
	files, links map[string]string
	lines        map[string]int // of the recording, by path
}

func newSysfs() *Sysfs {
	return &Sysfs{files: map[string]string{}, links: map[string]string{}, lines: map[string]int{}}
}

var (
	_ fs.ReadLinkFS = (*Sysfs)(nil)
	_ fs.ReadDirFS  = (*Sysfs)(nil)
)

func (s *Sysfs) check(name string) error {
	if !fs.ValidPath(name) || name == "." || !isWord(name) {
		return fmt.Errorf("%q is no path that a recording can hold", name)
	}
	if _, file := s.files[name]; file {
		return fmt.Errorf("%s is there twice", name)
	}
	if _, link := s.links[name]; link {
		return fmt.Errorf("%s is there twice", name)
	}
	return nil
}

func (s *Sysfs) addFile(name, content string) error {
	if err := s.check(name); err != nil {
		return err
	}
	s.files[name] = content
	return nil
}

func (s *Sysfs) addLink(name, target string) error {
	if err := s.check(name); err != nil {
		return err
	}
	if !isWord(target) {
		return fmt.Errorf("%s leads to %q, which a recording cannot hold", name, target)
	}
	s.links[name] = target
	return nil
}

// drop takes away files without content that stand for folders of which more is recorded.
func (s *Sysfs) drop() {
	for name, content := range s.files {
		if content == "" && s.isFolder(name) {
			delete(s.files, name)
		}
	}
}

// ReadLink returns the target of a recorded link.
func (s *Sysfs) ReadLink(name string) (string, error) {
	if target, found := s.links[name]; found {
		return target, nil
	}
	return "", &fs.PathError{Op: "readlink", Path: name, Err: fs.ErrNotExist}
}

// Lstat describes a recorded entry without following it.
func (s *Sysfs) Lstat(name string) (fs.FileInfo, error) {
	if content, found := s.files[name]; found {
		return entry{path.Base(name), 0o444, int64(len(content))}, nil
	}
	if _, found := s.links[name]; found {
		return entry{path.Base(name), fs.ModeSymlink | 0o777, 0}, nil
	}
	if s.isFolder(name) {
		return entry{path.Base(name), fs.ModeDir | 0o555, 0}, nil
	}
	return nil, &fs.PathError{Op: "lstat", Path: name, Err: fs.ErrNotExist}
}

func (s *Sysfs) isFolder(name string) bool {
	if name == "." {
		return true
	}
	for _, all := range []map[string]string{s.files, s.links} {
		for other := range all {
			if strings.HasPrefix(other, name+"/") {
				return true
			}
		}
	}
	return false
}

// ReadDir lists a recorded folder, sorted by name.
func (s *Sysfs) ReadDir(name string) ([]fs.DirEntry, error) {
	prefix := name + "/"
	if name == "." {
		prefix = ""
	}
	var names []string
	for _, all := range []map[string]string{s.files, s.links} {
		for other := range all {
			if rest, found := strings.CutPrefix(other, prefix); found {
				first, _, _ := strings.Cut(rest, "/")
				names = append(names, first)
			}
		}
	}
	if len(names) == 0 {
		return nil, &fs.PathError{Op: "readdir", Path: name, Err: fs.ErrNotExist}
	}
	slices.Sort(names)
	var entries []fs.DirEntry
	for _, first := range slices.Compact(names) {
		info, err := s.Lstat(prefix + first)
		if err != nil {
			return nil, err
		}
		entries = append(entries, fs.FileInfoToDirEntry(info))
	}
	return entries, nil
}

// Open opens a recorded file.
func (s *Sysfs) Open(name string) (fs.File, error) {
	content, found := s.files[name]
	if !found {
		return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist}
	}
	return &file{entry{path.Base(name), 0o444, int64(len(content))}, strings.NewReader(content)}, nil
}

type file struct {
	entry
	content *strings.Reader
}

func (f *file) Stat() (fs.FileInfo, error) { return f.entry, nil }
func (f *file) Close() error               { return nil }

func (f *file) Read(into []byte) (int, error) {
	count, err := f.content.Read(into)
	if errors.Is(err, io.EOF) {
		return count, io.EOF
	}
	return count, err
}

type entry struct {
	name string
	mode fs.FileMode
	size int64
}

func (e entry) Name() string       { return e.name }
func (e entry) Mode() fs.FileMode  { return e.mode }
func (e entry) Size() int64        { return e.size }
func (e entry) IsDir() bool        { return e.mode.IsDir() }
func (e entry) ModTime() time.Time { return time.Time{} }
func (e entry) Sys() any           { return nil }
