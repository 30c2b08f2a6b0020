// Package bundle collects what whoever mends a machine needs to know, without secrets, in one archive.
package bundle

import (
	"archive/tar"
	"bytes"
	"cmp"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/divvy-gpu/divvy/internal/redaction"
)

// Bounds of a bundle.
const (
	// Most is how many bytes of one item are kept.
	Most = 256 << 10
	// MostItems is how many items are kept.
	MostItems = 200
	// Time is how long one item is waited for. All are collected at once.
	Time = 10 * time.Second
	// redactTime is how long secrets are looked for in all items together. What is not looked through by then is left out.
	redactTime = 20 * time.Second
)

// Folder is what all files of a bundle are in.
const Folder = "divvy-bundle"

// Item is a file of a bundle.
type Item struct {
	// Name is a path with slashes, without dots.
	Name string
	// Read returns what the file has. It may return what it has together with an error. What it does after its context has
	// ended is not waited for.
	Read func(context.Context) ([]byte, error)
}

// Listed is a file as it lies in the bundle.
type Listed struct {
	Name string
	// Bytes is its size, Missing says why it has nothing, or not all.
	Bytes   int
	Missing string
}

// Collect reads all items at once and returns the archive. In each no more is kept than [Most], and no secret of a known form.
func Collect(ctx context.Context, items []Item) (archive []byte, listed []Listed, err error) {
	items = slices.Clone(items[:min(len(items), MostItems)])
	slices.SortFunc(items, func(a, b Item) int { return cmp.Compare(a.Name, b.Name) })
	texts, faults := make([][]byte, len(items)), make([]error, len(items))
	var all sync.WaitGroup
	for i, item := range items {
		all.Go(func() { texts[i], faults[i] = within(ctx, item) })
	}
	all.Wait()
	var buffer bytes.Buffer
	compressed := gzip.NewWriter(&buffer)
	out := tar.NewWriter(compressed)
	redacting, ended := context.WithTimeout(ctx, redactTime)
	defer ended()
	for i, item := range items {
		if redacting.Err() != nil {
			texts[i], faults[i] = nil, fmt.Errorf("secrets were looked for in the other files for %v", redactTime)
		}
		text, missing := finish(texts[i], faults[i])
		header := &tar.Header{Name: path.Join(Folder, item.Name), Mode: 0o600, Size: int64(len(text)), Format: tar.FormatPAX}
		if err := out.WriteHeader(header); err != nil {
			return nil, nil, fmt.Errorf("write %s: %w", item.Name, err)
		}
		if _, err := out.Write(text); err != nil {
			return nil, nil, fmt.Errorf("write %s: %w", item.Name, err)
		}
		listed = append(listed, Listed{Name: header.Name, Bytes: len(text), Missing: missing})
	}
	if err := errors.Join(out.Close(), compressed.Close()); err != nil {
		return nil, nil, fmt.Errorf("end the archive: %w", err)
	}
	return buffer.Bytes(), listed, nil
}

// within reads an item in its time.
func within(ctx context.Context, item Item) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, Time)
	defer cancel()
	type answer struct {
		text []byte
		err  error
	}
	answered := make(chan answer, 1)
	go func() {
		text, err := item.Read(ctx)
		answered <- answer{text, err}
	}()
	select {
	case a := <-answered:
		return a.text, a.err
	case <-ctx.Done():
		return nil, fmt.Errorf("no answer within %v", Time)
	}
}

// finish cuts a text, takes secrets out and says what is missing. It is cut first, at its beginning, because the end of a
// log counts; what of a secret the cut leaves is in its first line, which goes too.
func finish(text []byte, fault error) (clean []byte, missing string) {
	if len(text) > Most {
		text = text[len(text)-Most:]
		if at := bytes.IndexByte(text, '\n'); at >= 0 {
			text = text[at+1:]
		} else {
			text = nil
		}
		missing = "its beginning is left out"
		text = append([]byte("("+missing+")\n"), text...)
	}
	if fault != nil {
		missing = redaction.Text(fault.Error())
		text = append(bytes.Clone(text), []byte("\nnot collected: "+fault.Error()+"\n")...)
	}
	return redaction.Bytes(text), missing
}

// Save writes an archive to a new file that only its owner can read. It never follows a link and never replaces a file, and
// leaves none where it fails.
func Save(name string, archive []byte) error {
	file, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o600)
	switch {
	case errors.Is(err, fs.ErrExist):
		return fmt.Errorf("%s exists: name another file, or remove it", name)
	case err != nil:
		return fmt.Errorf("write the bundle: %w", err)
	}
	_, err = file.Write(archive)
	if err == nil {
		err = file.Sync()
	}
	if err = errors.Join(err, file.Close()); err != nil {
		return errors.Join(fmt.Errorf("write the bundle: %w: nothing is left of it", err), os.Remove(name))
	}
	return nil
}

// Text is an item of what is known already.
func Text(name, text string) Item {
	return Item{name, func(context.Context) ([]byte, error) { return []byte(text), nil }}
}

// File is an item of the end of a plain file. That there is none is told in its place.
func File(name, from string) Item {
	return Item{name, func(context.Context) ([]byte, error) { return tail(from) }}
}

// Files is an item of several files, one after the other.
func Files(name string, from ...string) Item {
	return Item{name, func(context.Context) (all []byte, err error) {
		for _, one := range from {
			text, fault := tail(one)
			if fault != nil {
				text = []byte(fault.Error() + "\n")
			}
			all = append(all, []byte("== "+one+"\n")...)
			all = append(all, text...)
		}
		return all, nil
	}}
}

func tail(from string) ([]byte, error) {
	file, err := os.OpenFile(from, os.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", from, err)
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s is no plain file", from)
	}
	if info.Size() > 2*Most {
		if _, err := file.Seek(-2*Most, io.SeekEnd); err != nil {
			return nil, fmt.Errorf("read %s: %w", from, err)
		}
	}
	return io.ReadAll(io.LimitReader(file, 2*Most))
}

// Program is an item of what a program prints, if it is there.
func Program(name, program string, args ...string) Item {
	return Item{name, func(ctx context.Context) ([]byte, error) {
		found, err := exec.LookPath(program)
		if err != nil {
			return nil, fmt.Errorf("no %s here", filepath.Base(program))
		}
		var out end
		cmd := exec.CommandContext(ctx, found, args...)
		cmd.Stdout, cmd.Stderr, cmd.WaitDelay = &out, &out, time.Second
		err = cmd.Run()
		return out.text, err
	}}
}

// end keeps the end of what is written to it.
type end struct{ text []byte }

// Write implements io.Writer.
func (e *end) Write(text []byte) (int, error) {
	e.text = append(e.text, text...)
	if len(e.text) > 4*Most {
		e.text = slices.Clone(e.text[len(e.text)-2*Most:])
	}
	return len(text), nil
}
