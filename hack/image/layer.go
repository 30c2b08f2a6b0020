package main

import (
	"archive/tar"
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"os/exec"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/divvy-gpu/divvy/hack/files"
)

// epoch is the time of every file, so that an image does not say when it was made.
var epoch = time.Unix(0, 0).UTC()

// layer is the files of an image by their paths, without a leading slash.
type layer map[string]entry

type entry struct {
	header  tar.Header
	content []byte
}

// merged are the directories that are links into /usr.
var merged = []string{"bin", "lib", "lib64", "sbin"}

// newLayer has the directories that every container expects.
func newLayer() layer {
	l := make(layer)
	for _, name := range merged {
		l.addDir("usr/" + name)
		l.addLink(name, "usr/"+name)
	}
	for _, dir := range []string{"dev", "etc", "proc", "root", "run", "sys", "var", "usr/local"} {
		l.addDir(dir)
	}
	l.addDir("tmp")
	tmp := l["tmp"]
	tmp.header.Mode = 0o1777
	l["tmp"] = tmp
	l.addLink("var/run", "/run")
	l.addFile("etc/passwd", 0o644, []byte("root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/nonexistent:/bin/false\n"))
	l.addFile("etc/group", 0o644, []byte("root:x:0:\nnogroup:x:65534:\n"))
	return l
}

func (l layer) put(name string, kind byte, mode int64, link string, content []byte) {
	l[name] = entry{tar.Header{
		Name: name, Typeflag: kind, Mode: mode, Linkname: link, Size: int64(len(content)), ModTime: epoch, Format: tar.FormatUSTAR,
	}, content}
}

// addDir adds a directory and those above it.
func (l layer) addDir(name string) {
	for dir := name; dir != "."; dir = path.Dir(dir) {
		if _, ok := l[dir]; !ok {
			l.put(dir, tar.TypeDir, 0o755, "", nil)
		}
	}
}

func (l layer) addLink(name, target string) {
	l.addDir(path.Dir(name))
	l.put(name, tar.TypeSymlink, 0o777, target, nil)
}

func (l layer) addFile(name string, mode int64, content []byte) {
	l.addDir(path.Dir(name))
	l.put(name, tar.TypeReg, mode, "", content)
}

// addTree adds a file or a folder of the build. Only whether a file can be run
// is kept of its mode.
func (l layer) addTree(from, to string) error {
	return files.Each(from, func(inside string, content []byte, program bool) error {
		mode := int64(0o644)
		if program {
			mode = 0o755
		}
		l.addFile(path.Join(to, inside), mode, content)
		return nil
	})
}

// unwanted are folders of packages that nothing in a container reads.
var unwanted = []string{"usr/share/doc", "usr/share/man", "usr/share/locale", "usr/share/lintian", "usr/share/initramfs-tools", "usr/lib/x86_64-linux-gnu/gconv"}

// addPackage adds the files of a Debian package.
func (l layer) addPackage(archive string) error {
	cmd := exec.Command("dpkg-deb", "--fsys-tarfile", archive)
	var said bytes.Buffer
	cmd.Stderr = &said
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	err = l.addTar(tar.NewReader(out))
	if err != nil {
		_ = cmd.Process.Kill()
	}
	_, drained := io.Copy(io.Discard, out)
	if waited := cmd.Wait(); waited != nil {
		return errors.Join(err, fmt.Errorf("dpkg-deb: %w: %s", waited, said.String()))
	}
	return errors.Join(err, drained)
}

func (l layer) addTar(r *tar.Reader) error {
	for {
		header, err := r.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		name := inUsr(header.Name)
		if name == "." || slices.ContainsFunc(unwanted, func(dir string) bool { return name == dir || strings.HasPrefix(name, dir+"/") }) {
			continue
		}
		switch header.Typeflag {
		case tar.TypeDir:
			l.addDir(name)
		case tar.TypeSymlink:
			l.addLink(name, header.Linkname)
		case tar.TypeReg:
			content, err := io.ReadAll(r)
			if err != nil {
				return err
			}
			l.addFile(name, header.Mode, content)
		case tar.TypeLink:
			target, ok := l[inUsr(header.Linkname)]
			if !ok {
				return fmt.Errorf("%s links to %s, which was not there before", name, header.Linkname)
			}
			l.addFile(name, target.header.Mode, target.content)
		default:
			return fmt.Errorf("%s is of a kind that images here do not have", name)
		}
	}
}

// inUsr is the path of a package's file where /bin and the like are links.
func inUsr(name string) string {
	name = strings.TrimPrefix(path.Clean("/"+name), "/")
	if name == "" {
		return "."
	}
	first, rest, deeper := strings.Cut(name, "/")
	if !slices.Contains(merged, first) {
		return name
	}
	if !deeper {
		return "usr/" + first
	}
	return "usr/" + first + "/" + rest
}

// bytes is the layer as an archive, directories before what is in them.
func (l layer) bytes() ([]byte, error) {
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, name := range slices.Sorted(maps.Keys(l)) {
		e := l[name]
		if e.header.Typeflag == tar.TypeDir {
			e.header.Name += "/"
		}
		if err := w.WriteHeader(&e.header); err != nil {
			return nil, fmt.Errorf("add %s: %w", name, err)
		}
		if _, err := w.Write(e.content); err != nil {
			return nil, fmt.Errorf("add %s: %w", name, err)
		}
	}
	return b.Bytes(), w.Close()
}
