// Package history is what shares did: records of them, how these are written as lines, and
// their sums. It is pure. A record is of one share, for an hour or a part of one, so that sums
// over any span of whole hours are exact. What is read is foreign: whatever a line holds, a
// decoded record is bounded.
package history

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"
	"unicode/utf8"
)

// Version is that of a record's form.
const Version = 1

// Kind says why a record was written.
type Kind string

// The kinds.
const (
	// KindHour is of a share that lives, for the time since its last record.
	KindHour Kind = "hour"
	// KindEnd is the last one of a share.
	KindEnd Kind = "end"
	// KindMany sums up shares of one user on one GPU, of which there were too many to keep one by one.
	KindMany Kind = "many"
	// KindNode tells which GPUs a machine has.
	KindNode Kind = "node"
)

// Figures are sums of one share over some time.
type Figures struct {
	// Used is the GPU time that it had, Entitled the GPU time that it had a right to, and Held the real time in which it
	// was held back, all in ns.
	Used     uint64 `json:"usedNanoseconds"`
	Entitled uint64 `json:"entitledNanoseconds"`
	Held     uint64 `json:"heldBackNanoseconds"`
	// Refused counts allocations that were refused.
	Refused uint64 `json:"refused"`
}

// Record is what one share did on one GPU from From to At.
type Record struct {
	Version int       `json:"v"`
	Kind    Kind      `json:"kind"`
	Node    string    `json:"node"`
	From    time.Time `json:"from"`
	At      time.Time `json:"at"`
	// ID, UUID and Began together name a share on one machine, also after that started again.
	ID        string `json:"id,omitempty"`
	Name      string `json:"name,omitempty"`
	UID       int    `json:"uid"`
	User      string `json:"user,omitempty"`
	Namespace string `json:"namespace,omitempty"`
	// Client is the name of who used the share from another host, empty for a command of this one.
	Client  string    `json:"client,omitempty"`
	Command []string  `json:"command,omitempty"`
	Began   time.Time `json:"began"`
	GPU     int       `json:"gpu"`
	UUID    string    `json:"uuid,omitempty"`
	Backend string    `json:"backend,omitempty"`
	Policy  string    `json:"policy,omitempty"`
	Whole   bool      `json:"whole,omitempty"`
	// Granted is the limit of memory in bytes at the end of the time, Cores what was guaranteed, in percent, and Peak the
	// most memory that the share has used since it began.
	Granted uint64 `json:"granted"`
	Cores   int    `json:"cores"`
	Peak    uint64 `json:"peak"`
	// Figures are those of the time of the record, and Total those since the share began, as
	// its agent knows them: the next record goes on from there.
	Figures
	Total Figures `json:"total"`
	// Shares is how many shares a record of [KindMany] sums up, and Together their time, in ns.
	Shares   uint64 `json:"shares,omitempty"`
	Together uint64 `json:"togetherNanoseconds,omitempty"`
	// Ended says how the share ended, for a record of [KindEnd].
	Ended string `json:"ended,omitempty"`
	// GPUs are those of the machine, for a record of [KindNode].
	GPUs []GPU `json:"gpus,omitempty"`
}

// GPU is one GPU of a machine. Capacity is the memory that shares can have, in bytes.
type GPU struct {
	Index    int    `json:"index"`
	UUID     string `json:"uuid"`
	Model    string `json:"model"`
	Capacity uint64 `json:"capacity"`
}

// Key names a share of a node.
type Key struct {
	Node, ID, UUID string
	Began          int64 // ns since 1970
}

// Key is that of the record's share.
func (r *Record) Key() Key { return Key{r.Node, r.ID, r.UUID, r.Began.UnixNano()} }

// Wall is for how long the shares of a record were there, in ns.
func (r *Record) Wall() uint64 {
	if r.Kind == KindMany {
		return r.Together
	}
	return uint64(max(0, r.At.Sub(r.From)))
}

// Bounds of what is kept of a record, in bytes, and of lists.
const (
	mostText    = 300
	mostCommand = 256
	mostArgs    = 64
	mostGPUs    = 64
	// MostLine bounds a line. What is longer is no record.
	MostLine = 64 << 10
	// mostTime bounds sums of times, a hundred years, so that sums of records stay numbers.
	mostTime = 100 * 365 * 24 * time.Hour
	// mostCount bounds counts.
	mostCount = 1 << 40
)

// The errors of Decode.
var (
	ErrLine    = errors.New("no record")
	ErrVersion = errors.New("a record of another version")
)

// Encode is the record as a line, with its end.
func (r *Record) Encode() ([]byte, error) {
	r.bound()
	var line bytes.Buffer
	e := json.NewEncoder(&line)
	e.SetEscapeHTML(false)
	if err := e.Encode(r); err != nil {
		return nil, fmt.Errorf("encode a record: %w", err)
	}
	return line.Bytes(), nil
}

// Decode reads a line, with or without its end. Its errors are [ErrLine] and [ErrVersion].
func Decode(line []byte) (Record, error) {
	var r Record
	if len(line) > MostLine {
		return r, fmt.Errorf("%w: it has %d bytes", ErrLine, len(line))
	}
	err := json.Unmarshal(line, &r)
	if err != nil { // one of another version may have other fields
		var told struct {
			Version int `json:"v"`
		}
		if json.Unmarshal(line, &told) != nil || told.Version == Version {
			return Record{}, fmt.Errorf("%w: %w", ErrLine, err)
		}
		r.Version = told.Version
	}
	if r.Version != Version {
		return Record{}, fmt.Errorf("%w: %d", ErrVersion, r.Version)
	}
	if !slices.Contains([]Kind{KindHour, KindEnd, KindMany, KindNode}, r.Kind) {
		return Record{}, fmt.Errorf("%w: of kind %.20q", ErrLine, r.Kind)
	}
	r.bound()
	return r, nil
}

// bound cuts a record to what can be.
func (r *Record) bound() {
	r.Version = Version
	for _, text := range []*string{&r.Node, &r.ID, &r.Name, &r.User, &r.Namespace, &r.Client, &r.UUID, &r.Backend, &r.Policy, &r.Ended} {
		*text = cut(*text, mostText)
	}
	r.Command = shortCommand(r.Command)
	r.GPUs = slices.Clone(r.GPUs[:min(len(r.GPUs), mostGPUs)])
	for i := range r.GPUs {
		g := &r.GPUs[i]
		g.UUID, g.Model, g.Capacity, g.Index = cut(g.UUID, mostText), cut(g.Model, mostText), min(g.Capacity, mostBytes), within(g.Index)
	}
	r.At, r.From, r.Began = sane(r.At), sane(r.From), sane(r.Began)
	if r.From.After(r.At) {
		r.From = r.At
	}
	if r.Began.After(r.From) {
		r.Began = r.From
	}
	r.GPU, r.UID = within(r.GPU), max(r.UID, 0)
	r.Cores = min(max(r.Cores, 0), 100)
	r.Granted, r.Peak = min(r.Granted, mostBytes), min(r.Peak, mostBytes)
	r.Shares = min(r.Shares, mostCount)
	r.Together = min(r.Together, uint64(mostTime))
	r.Figures.bound(r.Wall())
	r.Total.bound(uint64(mostTime))
}

// mostBytes bounds amounts of memory, a PiB.
const mostBytes = 1 << 50

func within(index int) int { return min(max(index, 0), math.MaxUint16) }

func (f *Figures) bound(wall uint64) {
	wall = min(wall, uint64(mostTime))
	f.Used, f.Entitled, f.Held = min(f.Used, wall), min(f.Entitled, wall), min(f.Held, wall)
	f.Refused = min(f.Refused, mostCount)
}

// sane is a time that can be written, in whole milliseconds.
func sane(t time.Time) time.Time {
	t = t.UTC().Truncate(time.Millisecond)
	if year := t.Year(); year < 1970 || year > 9000 {
		return time.Unix(0, 0).UTC()
	}
	return t
}

func cut(text string, most int) string {
	text = strings.ToValidUTF8(text, "\uFFFD")
	if len(text) <= most {
		return text
	}
	end := most - len("…")
	for end > 0 && !utf8.RuneStart(text[end]) {
		end--
	}
	return text[:end] + "…"
}

// encoded is how many bytes a text has in a line: what is escaped there has up to six for one.
func encoded(text string) (n int) {
	for _, r := range text {
		switch {
		case r == '"' || r == '\\':
			n += 2
		case r < ' ' || r == 0x7f || r == '\u2028' || r == '\u2029':
			n += len(`\u0000`)
		default:
			n += utf8.RuneLen(r)
		}
	}
	return n
}

// cutEncoded is cut by the bytes that a text has in a line.
func cutEncoded(text string, most int) string {
	text = cut(text, most)
	if encoded(text) <= most {
		return text
	}
	room := most - len("…")
	for i, r := range text {
		if room -= encoded(string(r)); room < 0 {
			return text[:i] + "…"
		}
	}
	return text
}

// shortCommand is the beginning of a command line, measured as it is written.
func shortCommand(command []string) []string {
	room, kept := mostCommand, []string{}
	for _, arg := range command {
		if room <= len("…") || len(kept) == mostArgs {
			break
		}
		arg = cutEncoded(arg, room)
		kept = append(kept, arg)
		room -= encoded(arg) + 1
	}
	if len(kept) == 0 {
		return nil
	}
	return kept
}

// Since is what was added to sums since they were before. Sums that are less began anew.
func (f Figures) Since(before Figures) Figures {
	grown := func(now, before uint64) uint64 {
		if now < before {
			return now
		}
		return now - before
	}
	return Figures{
		Used: grown(f.Used, before.Used), Entitled: grown(f.Entitled, before.Entitled),
		Held: grown(f.Held, before.Held), Refused: grown(f.Refused, before.Refused),
	}
}

// Add adds up.
func (f *Figures) Add(o Figures) {
	f.Used, f.Entitled, f.Held, f.Refused = f.Used+o.Used, f.Entitled+o.Entitled, f.Held+o.Held, f.Refused+o.Refused
}
