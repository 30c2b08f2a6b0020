package store

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/divvy-gpu/divvy/internal/history"
)

// Cursor is a place in a history. The zero value is its beginning.
type Cursor struct {
	// Day is a date of UTC, as in 2006-01-02, and Offset a place in its file.
	Day    string `json:"day"`
	Offset int64  `json:"offset,omitempty"`
}

// Page is a part of a history.
type Page struct {
	Records []history.Record `json:"records"`
	// Next is where the next page begins, nil after the last.
	Next *Cursor `json:"next,omitempty"`
	// Faults say what could not be read, a few words for each file.
	Faults []string `json:"faults,omitempty"`
}

const (
	// pageBytes is about how many bytes of files are read for a page.
	pageBytes = 2 << 20
	// mostOfFile bounds what is read of one file.
	mostOfFile = 1 << 30
)

// Read reads a page. Files that nobody else may have written are read alone; what is no record is left out and told.
func (s *Store) Read(from Cursor) (Page, error) { return ReadDir(s.config.Dir, from) }

// ReadDir is [Store.Read] of the history in a folder. One that does not exist is empty.
func ReadDir(dir string, from Cursor) (Page, error) {
	page := Page{Records: []history.Record{}}
	root, err := openDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return page, nil
	}
	if err != nil {
		return page, err
	}
	defer func() { _ = root.Close() }() // nothing was written
	found, err := days(root)
	if err != nil {
		return page, err
	}
	left := int64(pageBytes)
	for _, d := range found {
		date := strings.TrimSuffix(d.name, suffix)
		if date < from.Day {
			continue
		}
		if left <= 0 {
			page.Next = &Cursor{Day: date}
			return page, nil
		}
		offset := int64(0)
		if date == from.Day {
			offset = max(0, from.Offset)
		}
		end, err := page.readFile(root, d.name, offset, left)
		switch {
		case err != nil:
			page.Faults = append(page.Faults, fmt.Sprintf("%s cannot be read: %v", d.name, err))
		case end < min(d.size, mostOfFile):
			page.Next = &Cursor{date, end}
			return page, nil
		}
		left -= end - offset
	}
	return page, nil
}

// readFile reads about so many bytes of a file's lines from a place on, and returns where the next line begins.
func (p *Page) readFile(root *os.Root, name string, offset, most int64) (end int64, err error) {
	file, err := root.OpenFile(name, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return 0, err
	}
	defer file.Close()
	size, err := checked(file)
	if err != nil {
		return 0, err
	}
	if size > mostOfFile && offset == 0 {
		p.Faults = append(p.Faults, fmt.Sprintf("%s has %d MiB, of which %d are read", name, size>>20, mostOfFile>>20))
	}
	size = min(size, mostOfFile)
	if offset >= size {
		return size, nil
	}
	in := bufio.NewReaderSize(io.NewSectionReader(file, offset, size-offset), history.MostLine+1)
	return p.readLines(in, name, offset, size, most)
}

// readLines reads about so many bytes of lines from a place on, up to another one.
func (p *Page) readLines(in *bufio.Reader, name string, offset, size, most int64) (end int64, err error) {
	bad, torn := 0, false
	for end = offset; end-offset < most && end < size; {
		line, n, whole, err := nextLine(in)
		end += n
		if err != nil && !errors.Is(err, io.EOF) {
			return end, err
		}
		record, wrong := history.Decode(line)
		switch {
		case wrong == nil:
			p.Records = append(p.Records, record)
		case !whole:
			torn = true
		case len(bytes.TrimSpace(line)) > 0 || n > history.MostLine:
			bad++
		}
		if err != nil {
			break
		}
	}
	if bad > 0 {
		p.Faults = append(p.Faults, fmt.Sprintf("%s has %d lines that are no records", name, bad))
	}
	if torn {
		p.Faults = append(p.Faults, fmt.Sprintf("the last line of %s is not complete", name))
	}
	return end, nil
}

// nextLine reads a line with its end. Of one that is too long it returns nothing but how many bytes it has.
func nextLine(in *bufio.Reader) (line []byte, n int64, whole bool, err error) {
	line, err = in.ReadSlice('\n')
	n = int64(len(line))
	if !errors.Is(err, bufio.ErrBufferFull) {
		return line, n, err == nil, err
	}
	for errors.Is(err, bufio.ErrBufferFull) {
		var more []byte
		more, err = in.ReadSlice('\n')
		n += int64(len(more))
	}
	return nil, n, err == nil, err
}

// Last finds the last records of some shares, which live, back to a time: what was recorded of them already.
func (s *Store) Last(keys map[history.Key]bool, since time.Time) (map[history.Key]history.Record, error) {
	last := map[history.Key]history.Record{}
	for at := (&Cursor{Day: since.UTC().Format(time.DateOnly)}); at != nil && len(keys) > 0; {
		page, err := s.Read(*at)
		if err != nil {
			return last, err
		}
		for i := range page.Records {
			if r := &page.Records[i]; keys[r.Key()] {
				last[r.Key()] = *r
			}
		}
		at = page.Next
	}
	return last, nil
}
