package main

import (
	"archive/tar"
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"
)

// packed is an archive as packages have them.
func packed(t *testing.T, entries ...tar.Header) *tar.Reader {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, e := range entries {
		e.ModTime = time.Now()
		if e.Typeflag == tar.TypeReg {
			e.Size = int64(len(e.Name))
		}
		if err := w.WriteHeader(&e); err != nil {
			t.Fatal(err)
		}
		if e.Typeflag == tar.TypeReg {
			if _, err := w.Write([]byte(e.Name)); err != nil {
				t.Fatal(err)
			}
		}
	}
	return tar.NewReader(&b)
}

func TestPackagesFilesGoIntoUsr(t *testing.T) {
	l := newLayer()
	err := l.addTar(packed(t,
		tar.Header{Name: "./", Typeflag: tar.TypeDir},
		tar.Header{Name: "./lib/", Typeflag: tar.TypeDir},
		tar.Header{Name: "./lib/x/libc.so.6", Typeflag: tar.TypeReg, Mode: 0o755},
		tar.Header{Name: "./lib64/ld.so", Typeflag: tar.TypeSymlink, Linkname: "/lib/x/ld.so.2"},
		tar.Header{Name: "./bin/again", Typeflag: tar.TypeLink, Linkname: "./lib/x/libc.so.6"},
		tar.Header{Name: "./usr/share/doc/x/copyright", Typeflag: tar.TypeReg, Mode: 0o644},
		tar.Header{Name: "./usr/share/docs", Typeflag: tar.TypeReg, Mode: 0o644},
	))
	if err != nil {
		t.Fatal(err)
	}
	for name, kind := range map[string]byte{
		"lib": tar.TypeSymlink, "usr/lib/x": tar.TypeDir, "usr/lib/x/libc.so.6": tar.TypeReg,
		"usr/lib64/ld.so": tar.TypeSymlink, "usr/bin/again": tar.TypeReg, "usr/share/docs": tar.TypeReg,
	} {
		if got := l[name].header.Typeflag; got != kind {
			t.Errorf("%s is of kind %q, want %q", name, got, kind)
		}
	}
	if !bytes.Equal(l["usr/bin/again"].content, l["usr/lib/x/libc.so.6"].content) {
		t.Error("a hard link has not what it links to")
	}
	for name := range l {
		if name == "usr/share/doc/x/copyright" || name == "lib/x" || name == "." {
			t.Errorf("the layer has %s", name)
		}
	}
}

func TestDevicesOfPackagesAreRefused(t *testing.T) {
	if err := newLayer().addTar(packed(t, tar.Header{Name: "./dev/null", Typeflag: tar.TypeChar})); err == nil {
		t.Error("no error")
	}
	if err := newLayer().addTar(packed(t, tar.Header{Name: "./a", Typeflag: tar.TypeLink, Linkname: "./b"})); err == nil {
		t.Error("no error about a hard link to nothing")
	}
}

func TestSameFilesMakeTheSameImage(t *testing.T) {
	dir := t.TempDir()
	var images [][]byte
	for _, name := range []string{"one", "two"} {
		tree := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Join(tree, "lib"), 0o700); err != nil {
			t.Fatal(err)
		}
		for _, file := range []string{"b", "a", "lib/c"} {
			if err := os.WriteFile(filepath.Join(tree, file), []byte(file), 0o700); err != nil {
				t.Fatal(err)
			}
		}
		if err := os.Chtimes(filepath.Join(tree, "a"), time.Now(), time.Unix(int64(len(images)), 0)); err != nil {
			t.Fatal(err)
		}
		l := newLayer()
		if err := l.addTree(tree, "usr/local"); err != nil {
			t.Fatal(err)
		}
		files, err := l.bytes()
		if err != nil {
			t.Fatal(err)
		}
		out := filepath.Join(dir, name+".tar")
		if err := writeArchive(out, "example.test/x:1", files, nil, []string{"a"}); err != nil {
			t.Fatal(err)
		}
		image, err := os.ReadFile(out)
		if err != nil {
			t.Fatal(err)
		}
		images = append(images, image)
	}
	if !bytes.Equal(images[0], images[1]) {
		t.Error("they differ")
	}
	r := tar.NewReader(bytes.NewReader(images[0]))
	var names []string
	for {
		header, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		names = append(names, header.Name)
		if header.Name == "index.json" {
			text, _ := io.ReadAll(r)
			if !bytes.Contains(text, []byte(`"io.containerd.image.name":"example.test/x:1"`)) {
				t.Errorf("index = %s", text)
			}
		}
	}
	if len(names) != 5 || !slices.Contains(names, "oci-layout") {
		t.Errorf("the archive has %v", names)
	}
}

func TestDirectoriesComeBeforeTheirFiles(t *testing.T) {
	l := newLayer()
	l.addFile("usr/local/lib/divvy/libcuda.so.1", 0o644, []byte("x"))
	files, err := l.bytes()
	if err != nil {
		t.Fatal(err)
	}
	r := tar.NewReader(bytes.NewReader(files))
	seen := map[string]bool{".": true}
	for {
		header, err := r.Next()
		if errors.Is(err, io.EOF) {
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		name := filepath.Clean(header.Name)
		if !seen[filepath.Dir(name)] {
			t.Errorf("%s comes before its directory", name)
		}
		seen[name] = true
	}
}
