package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"time"

	"github.com/divvy-gpu/divvy/hack/files"
)

// tree is files by their paths, without a leading slash.
type tree map[string]file

// file is a file's content or, with a target, a link.
type file struct {
	content []byte
	program bool
	target  string
}

func (f file) mode() fs.FileMode {
	if f.program {
		return 0o755
	}
	return 0o644
}

// add adds what lies at a path of this machine: a file, or a folder's files.
func (t tree) add(from, to string) error {
	return files.Each(from, func(inside string, content []byte, program bool) error {
		t[path.Join(to, inside)] = file{content: content, program: program}
		return nil
	})
}

// pack writes the tree as a compressed archive, below a folder.
func (t tree) pack(out, folder string, made time.Time) error {
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	if err := errors.Join(t.tar(z, folder, made), z.Close()); err != nil {
		return fmt.Errorf("pack %s: %w", out, err)
	}
	return replace(out, b.Bytes())
}

func (t tree) tar(to io.Writer, folder string, made time.Time) error {
	w := tar.NewWriter(to)
	folders := map[string]bool{".": true}
	for _, name := range slices.Sorted(maps.Keys(t)) {
		f, full := t[name], path.Join(folder, name)
		var above []string
		for dir := path.Dir(full); !folders[dir]; dir = path.Dir(dir) {
			folders[dir] = true
			above = append(above, dir)
		}
		for _, dir := range slices.Backward(above) {
			header := &tar.Header{Name: dir + "/", Typeflag: tar.TypeDir, Mode: 0o755, ModTime: made, Uname: "root", Gname: "root"}
			if err := w.WriteHeader(header); err != nil {
				return err
			}
		}
		header := &tar.Header{Name: full, Typeflag: tar.TypeReg, Mode: int64(f.mode()), Size: int64(len(f.content)), ModTime: made, Uname: "root", Gname: "root"}
		if f.target != "" {
			header.Typeflag, header.Linkname, header.Mode = tar.TypeSymlink, f.target, 0o777
		}
		if err := w.WriteHeader(header); err != nil {
			return err
		}
		if _, err := w.Write(f.content); err != nil {
			return err
		}
	}
	return w.Close()
}

// lay writes the tree below a folder, which it makes anew.
func (t tree) lay(folder string) error {
	if err := os.RemoveAll(folder); err != nil {
		return err
	}
	for name, f := range t {
		full := filepath.Join(folder, name)
		err := os.MkdirAll(filepath.Dir(full), 0o755)
		if f.target != "" {
			err = errors.Join(err, os.Symlink(f.target, full))
		} else {
			err = errors.Join(err, os.WriteFile(full, f.content, f.mode()))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// compressed is a text as documentation has it.
func compressed(text []byte) ([]byte, error) {
	var b bytes.Buffer
	z, err := gzip.NewWriterLevel(&b, gzip.BestCompression)
	if err != nil {
		return nil, err
	}
	_, err = z.Write(text)
	if err := errors.Join(err, z.Close()); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}

// replace writes a file of which a reader sees all or the one before.
func replace(name string, content []byte) error {
	if err := os.WriteFile(name+".new", content, 0o644); err != nil {
		return err
	}
	return os.Rename(name+".new", name)
}
