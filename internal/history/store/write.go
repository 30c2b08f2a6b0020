package store

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/divvy-gpu/divvy/internal/history"
	"github.com/divvy-gpu/divvy/internal/rundir"
)

// suffix ends the names of files, after the day.
const suffix = ".jsonl"

// mostFiles bounds the files that are looked at.
const mostFiles = 5000

// nameOf is the file of a record.
func nameOf(r *history.Record) string { return r.From.UTC().Format(time.DateOnly) + suffix }

// write adds records to their files, and returns how many of them it has written.
func (s *Store) write(records []history.Record) (written int, err error) {
	if s.config.Inside != "" {
		if _, err := os.Stat(s.config.Inside); errors.Is(err, fs.ErrNotExist) {
			return len(records), nil
		}
	}
	if err := rundir.Make(s.config.Dir, 0o700); err != nil {
		return 0, fmt.Errorf("make its folder: %w", err)
	}
	root, err := openDir(s.config.Dir)
	if err != nil {
		return 0, err
	}
	defer func() { _ = root.Close() }() // files have been closed
	if err := s.keepWithin(root); err != nil {
		return 0, err
	}
	for written < len(records) {
		name, lines, n := nameOf(&records[written]), []byte(nil), 0
		for _, r := range records[written:] {
			if nameOf(&r) != name {
				break
			}
			line, err := r.Encode()
			if err != nil {
				return written, err
			}
			lines = append(lines, line...)
			n++
		}
		if err := appendTo(root, name, lines); err != nil {
			return written, err
		}
		written, s.grown = written+n, s.grown+int64(len(lines))
	}
	return written, nil
}

const (
	// pruneTime is how often what is too old is looked for, and pruneBytes after how many written bytes.
	pruneTime  = time.Hour
	pruneBytes = 1 << 20
)

// keepWithin removes what is beyond the limits, now and then: shares may end many times a second.
func (s *Store) keepWithin(root *os.Root) error {
	now := s.config.Now()
	if since := now.Sub(s.pruned); s.within == nil && since >= 0 && since < pruneTime && s.grown < pruneBytes {
		return nil
	}
	s.pruned, s.grown = now, 0
	s.within = s.prune(root)
	return s.within
}

// openDir opens the folder, which must be this user's and closed to all others: command lines may hold secrets.
func openDir(dir string) (*os.Root, error) {
	info, err := os.Lstat(dir)
	if err != nil {
		return nil, fmt.Errorf("look at the history: %w", err)
	}
	if fault := rundir.FolderFault(dir, info); fault != nil {
		return nil, fmt.Errorf("look at the history: its folder is not safe: %w", fault)
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, fmt.Errorf("open the history: %w", err)
	}
	opened, err := root.Stat(".")
	if err != nil || !os.SameFile(info, opened) {
		return nil, errors.Join(fmt.Errorf("open the history: %s was replaced meanwhile", dir), err, root.Close())
	}
	if info.Mode().Perm()&0o077 != 0 {
		if err := root.Chmod(".", 0o700); err != nil {
			return nil, errors.Join(fmt.Errorf("close the history to others: %w", err), root.Close())
		}
	}
	return root, nil
}

// appendTo adds whole lines to a file. After a line without an end, as a machine leaves it that lost power, they begin anew.
// Lines that could be written in part alone are taken back.
func appendTo(root *os.Root, name string, lines []byte) (err error) {
	file, err := root.OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_APPEND|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0o600)
	if err != nil {
		return fmt.Errorf("open a file: %w", err)
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	size, err := checked(file)
	if err != nil {
		return err
	}
	if last := make([]byte, 1); size > 0 {
		if _, err := file.ReadAt(last, size-1); err != nil {
			return fmt.Errorf("read a file's end: %w", err)
		}
		if last[0] != '\n' {
			lines = append([]byte("\n"), lines...)
		}
	}
	if _, err := file.Write(lines); err != nil {
		return errors.Join(fmt.Errorf("write: %w", err), file.Truncate(size))
	}
	return nil
}

// checked is the size of a file of this user's that nobody else can read.
func checked(file *os.File) (size int64, err error) {
	info, err := file.Stat()
	if err != nil {
		return 0, fmt.Errorf("look at a file: %w", err)
	}
	stat, told := info.Sys().(*syscall.Stat_t)
	switch {
	case !info.Mode().IsRegular():
		return 0, fmt.Errorf("%s is no file: remove it", file.Name())
	case !told || int(stat.Uid) != os.Geteuid() || stat.Nlink > 1:
		return 0, fmt.Errorf("%s belongs to somebody else too: remove it", file.Name())
	case info.Mode().Perm()&0o077 != 0:
		if err := file.Chmod(0o600); err != nil {
			return 0, fmt.Errorf("close a file to others: %w", err)
		}
	}
	return info.Size(), nil
}

// day is one file.
type day struct {
	name string
	size int64
}

// days are the files, the oldest first.
func days(root *os.Root) ([]day, error) {
	dir, err := root.Open(".")
	if err != nil {
		return nil, fmt.Errorf("list the history: %w", err)
	}
	defer dir.Close()
	names, err := dir.Readdirnames(mostFiles)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("list the history: %w", err)
	}
	slices.Sort(names)
	var found []day
	for _, name := range names {
		date, ok := strings.CutSuffix(name, suffix)
		if _, err := time.Parse(time.DateOnly, date); !ok || err != nil {
			continue
		}
		info, err := root.Lstat(name)
		if err != nil || !info.Mode().IsRegular() {
			continue
		}
		found = append(found, day{name, info.Size()})
	}
	return found, nil
}

// mostAged bounds the files that go at once because of their age: a clock that was wrong for a
// moment must not cost the history of years.
const mostAged = 2

// prune removes the oldest files beyond the limits, and those of days after tomorrow, which a clock that was wrong has left: they
// would count for years. That of today stays; if it alone is beyond them nothing more is written today.
func (s *Store) prune(root *os.Root) error {
	found, err := days(root)
	if err != nil {
		return err
	}
	now := s.config.Now().UTC()
	first, today := now.AddDate(0, 0, -s.config.Limits.Days).Format(time.DateOnly), now.Format(time.DateOnly)
	tomorrow := now.AddDate(0, 0, 1).Format(time.DateOnly) + suffix
	sum, aged := int64(0), 0
	for _, d := range found {
		sum += d.size
	}
	for _, d := range found {
		old := (d.name < first || d.name > tomorrow) && aged < mostAged
		if d.name >= today && d.name <= tomorrow || !old && (d.name > tomorrow || sum <= s.config.Limits.Bytes) {
			continue
		}
		if err := root.Remove(d.name); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("remove what is too old: %w", err)
		}
		sum -= d.size
		if old {
			aged++
		}
	}
	if sum > s.config.Limits.Bytes {
		return fmt.Errorf("%s has %d MiB of today alone, and may have %d", filepath.Base(s.config.Dir), sum>>20, s.config.Limits.Bytes>>20)
	}
	return nil
}
