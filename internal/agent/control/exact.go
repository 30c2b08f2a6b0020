package control

import (
	"encoding/json"
	"strings"
	"unicode/utf8"

	"github.com/divvy-gpu/divvy/internal/edits"
)

// Paths are bytes, and JSON has only text. So each byte of a path that is no part of a
// character travels as a character of its own, from firstByte on, which Unicode leaves to
// private use. A path that has such characters itself has them as bytes, so that every path
// comes back as it was.
const (
	firstByte = 0x10FF00
	lastByte  = firstByte + 0xFF
)

// written is a path as text.
func written(path string) string {
	if utf8.ValidString(path) && strings.IndexFunc(path, isByte) < 0 {
		return path
	}
	var text strings.Builder
	for len(path) > 0 {
		r, size := utf8.DecodeRuneInString(path)
		if r == utf8.RuneError && size == 1 || isByte(r) {
			for _, b := range []byte(path[:size]) {
				text.WriteRune(firstByte + rune(b))
			}
		} else {
			text.WriteString(path[:size])
		}
		path = path[size:]
	}
	return text.String()
}

// read is the path that was written.
func read(text string) string {
	if strings.IndexFunc(text, isByte) < 0 {
		return text
	}
	var path strings.Builder
	for _, r := range text {
		if isByte(r) {
			path.WriteByte(byte(r - firstByte))
		} else {
			path.WriteRune(r)
		}
	}
	return path.String()
}

func isByte(r rune) bool { return r >= firstByte && r <= lastByte }

// each is a list of paths, written or read.
func each(paths []string, how func(string) string) []string {
	if paths == nil {
		return nil
	}
	changed := make([]string, len(paths))
	for i, path := range paths {
		changed[i] = how(path)
	}
	return changed
}

// MarshalJSON implements json.Marshaler.
func (p CreateParams) MarshalJSON() ([]byte, error) {
	type plain CreateParams
	p.LibraryPath = each(p.LibraryPath, written)
	return encode(plain(p))
}

// UnmarshalJSON implements json.Unmarshaler. It is as strict as agents are.
func (p *CreateParams) UnmarshalJSON(data []byte) error {
	type plain CreateParams
	if err := decodeStrict(data, (*plain)(p)); err != nil {
		return err
	}
	p.LibraryPath = each(p.LibraryPath, read)
	return nil
}

// MarshalJSON implements json.Marshaler.
func (c Created) MarshalJSON() ([]byte, error) {
	type plain Created
	c.Edits, c.Worker = changed(c.Edits, written), changedWorker(c.Worker, written)
	return encode(plain(c))
}

// UnmarshalJSON implements json.Unmarshaler.
func (c *Created) UnmarshalJSON(data []byte) error {
	type plain Created
	if err := json.Unmarshal(data, (*plain)(c)); err != nil {
		return err
	}
	c.Edits, c.Worker = changed(c.Edits, read), changedWorker(c.Worker, read)
	return nil
}

// changedWorker is a worker with its paths written or read.
func changedWorker(w *edits.Worker, how func(string) string) *edits.Worker {
	if w == nil {
		return nil
	}
	return &edits.Worker{Program: how(w.Program), Socket: how(w.Socket), Edits: changed(w.Edits, how)}
}

// changed are the edits of a process with their paths written or read.
func changed(e edits.Edits, how func(string) string) edits.Edits {
	binds, env := e.Binds, e.Env
	e.Binds, e.Env = nil, nil
	for _, b := range binds {
		b.Source, b.Target = how(b.Source), how(b.Target)
		e.Binds = append(e.Binds, b)
	}
	for _, v := range env {
		v.Value = how(v.Value)
		e.Env = append(e.Env, v)
	}
	return e
}
