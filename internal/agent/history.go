package agent

import (
	"context"
	"path/filepath"
	"sync"
	"time"

	"github.com/divvy-gpu/divvy/internal/agent/control"
	"github.com/divvy-gpu/divvy/internal/agentconfig"
	"github.com/divvy-gpu/divvy/internal/history"
	"github.com/divvy-gpu/divvy/internal/history/store"
)

// History keeps records of what shares did, [store.Store]. Add may be called under Agent.mu: it waits for nothing.
type History interface {
	Add(records ...history.Record)
	Last(keys map[history.Key]bool, since time.Time) (map[history.Key]history.Record, error)
	Read(from store.Cursor) (store.Page, error)
	// Start has it written until Close.
	Start(told func(text string, fault bool))
	Close()
}

// mostEnds is how many shares of one owner have a record of their own when they end, each day, whichever agent wrote it. The others
// are summed up until the hour ends: who starts shares in a loop pushes out nobody else's history.
const mostEnds = 500

// mostOfOwner is how many bytes of records one owner has written each day; the others are summed up too.
const mostOfOwner = 1 << 20

// recorder makes records. Its lock is taken last.
type recorder struct {
	mu   sync.Mutex
	hour time.Time // of the last records of living shares
	day  string    // of the last record of the machine
	// last is what was recorded of living shares.
	last map[history.Key]recorded
	// ends counts the records of ended shares of each owner on the day counted, and many are the sums of the others.
	ends    map[string]int
	bytes   map[string]int // as written, of all records of each owner on that day
	counted string
	many    map[manyKey]*history.Record
	// resumed is whether it is known what the agent before recorded of living shares.
	resumed bool
	// fault says why nothing can be written now, "" while it can.
	fault string
}

// broken says why nothing can be written now, "" while it can.
func (r *recorder) broken() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.fault
}

// recorded is what of a share was recorded, and until when.
type recorded struct {
	at    time.Time
	total history.Figures
	known bool // false for one of an earlier agent's of which no record was found: then total is what it had when it was met
}

// manyKey is for what shares are summed up together.
type manyKey struct{ owner, uuid string }

// recordsOf are the records of a tenant's shares as they are now, with totals alone.
func (a *Agent) recordsOf(t *control.Tenant, now time.Time) []history.Record {
	records := make([]history.Record, 0, len(t.Shares))
	command := t.Command
	switch {
	case a.config.Commands == agentconfig.CommandsNone, len(command) == 0:
		command = nil
	case a.config.Commands == agentconfig.CommandsProgram:
		command = []string{filepath.Base(command[0])}
	}
	for i := range t.Shares {
		s := &t.Shares[i]
		r := history.Record{
			Version: history.Version, Kind: history.KindHour, Node: store.Node(), From: t.Created.UTC().Truncate(time.Millisecond), At: now.UTC(),
			ID: t.ID, Name: t.Name, UID: t.UID, User: t.User, Namespace: t.Namespace, Command: command, Began: t.Created.UTC().Truncate(time.Millisecond),
			GPU: s.Index, UUID: s.UUID, Backend: string(s.Backend), Policy: string(s.Policy), Whole: s.Whole,
			Granted: s.Limit, Cores: s.Cores, Peak: s.Peak,
		}
		if t.Remote != nil {
			r.Client = t.Remote.Client
		}
		if s.Time != nil {
			r.Total = history.Figures{Used: s.Time.Used, Entitled: s.Time.Entitled, Held: s.Time.HeldBackTotal}
		}
		if s.Refusals != nil {
			r.Total.Refused = s.Refusals.Count
		}
		records = append(records, r)
	}
	return records
}

// since sets what a record has beyond the one before it, and remembers it. r.mu is held.
func (r *recorder) since(one *history.Record) (before bool) {
	last, before := r.last[one.Key()]
	if !before && !r.resumed { // it may have been recorded, by another
		last, before = recorded{at: one.At}, true
	}
	switch {
	case before && !last.known: // what it did before this agent met it is another's
		last.total = one.Total
		if one.From.Before(last.at) {
			one.From = last.at
		}
	case before:
		one.From = last.at
	}
	one.Figures = one.Total.Since(last.total)
	r.last[one.Key()] = recorded{one.At, one.Total, true}
	return before
}

// recordHour records what living shares did, at the end of each hour.
func (a *Agent) recordHour() {
	if a.config.History == nil {
		return
	}
	hour := a.config.Now().Truncate(time.Hour)
	a.recorder.mu.Lock()
	// A clock that was set back must not stop the history until it has caught up.
	due := hour.After(a.recorder.hour) || a.recorder.hour.Sub(hour) > time.Hour
	if due {
		a.recorder.hour = hour
	}
	a.recorder.mu.Unlock()
	if due {
		a.recordLiving()
	}
}

// recordLast records what living shares did when the agent ends.
func (a *Agent) recordLast() {
	if a.config.History == nil {
		return
	}
	a.recordLiving()
	a.config.History.Close()
}

func (a *Agent) recordLiving() {
	now := a.config.Now()
	var all []history.Record
	for _, t := range a.all() {
		a.mu.Lock()
		lives := t.ready && !t.ended
		a.mu.Unlock()
		if !lives {
			continue
		}
		v := a.describe(t)
		all = append(all, a.recordsOf(&v, now)...)
	}
	r := &a.recorder
	r.mu.Lock()
	defer r.mu.Unlock()
	r.count(now)
	kept := all[:0]
	for i := range all {
		if before := r.since(&all[i]); r.fits(&all[i]) {
			kept = append(kept, all[i])
		} else {
			r.sum(&all[i], before)
		}
	}
	all = kept
	for key, one := range r.many {
		all = append(all, *one)
		delete(r.many, key)
	}
	a.record(all)
}

// recordEnd records the end of a tenant, with what it was last. It waits for nothing.
func (a *Agent) recordEnd(t *control.Tenant, how string) {
	if a.config.History == nil {
		return
	}
	all := a.recordsOf(t, a.config.Now())
	r := &a.recorder
	r.mu.Lock()
	defer r.mu.Unlock()
	r.count(a.config.Now())
	kept := all[:0]
	for i := range all {
		one := &all[i]
		one.Kind, one.Ended = history.KindEnd, repeated(how)
		before := r.since(one)
		delete(r.last, one.Key())
		r.ends[one.Owner()]++
		if (before || r.ends[one.Owner()] <= mostEnds) && r.fits(one) {
			kept = append(kept, *one)
			continue
		}
		r.sum(one, before)
	}
	a.record(kept)
}

// count begins to count anew on each day. r.mu is held.
func (r *recorder) count(now time.Time) {
	if day := now.UTC().Format(time.DateOnly); day != r.counted {
		r.counted = day
		clear(r.ends)
		clear(r.bytes)
	}
}

// fits reports whether one more record of an owner is written today, and counts it. r.mu is held.
func (r *recorder) fits(one *history.Record) bool {
	line, err := one.Encode()
	if err != nil || r.bytes[one.Owner()]+len(line) > mostOfOwner {
		return false
	}
	r.bytes[one.Owner()] += len(line)
	return true
}

// sum adds a record to that of many. A share is counted once: known are those that have a record, or are in a sum. r.mu is held.
func (r *recorder) sum(one *history.Record, known bool) {
	key := manyKey{one.Owner(), one.UUID}
	all := r.many[key]
	if all == nil {
		all = &history.Record{
			Version: history.Version, Kind: history.KindMany, Node: one.Node, From: one.From, At: one.At, UID: one.UID, User: one.User,
			Namespace: one.Namespace, Began: one.From, GPU: one.GPU, UUID: one.UUID, Backend: one.Backend, Policy: one.Policy,
		}
		r.many[key] = all
	}
	all.At = one.At
	if one.From.Before(all.From) {
		all.From, all.Began = one.From, one.From
	}
	if !known {
		all.Shares++
	}
	all.Together += one.Wall()
	all.Add(one.Figures)
	all.Granted, all.Peak, all.Cores = max(all.Granted, one.Granted), max(all.Peak, one.Peak), max(all.Cores, one.Cores)
}

// record hands records to the history, with one of the machine before the first of each day. recorder.mu is held.
func (a *Agent) record(all []history.Record) {
	if len(all) == 0 {
		return
	}
	r, now := &a.recorder, a.config.Now().UTC()
	if day := now.Format(time.DateOnly); day != r.day {
		r.day = day
		machine := history.Record{Version: history.Version, Kind: history.KindNode, Node: store.Node(), From: now, At: now, Began: now}
		for _, g := range a.gpus {
			machine.GPUs = append(machine.GPUs, history.GPU{Index: g.Index, UUID: g.UUID, Model: g.Name, Capacity: g.Capacity()})
		}
		all = append([]history.Record{machine}, all...)
	}
	a.config.History.Add(all...)
}

// tellHistory tells of a history that cannot be written, and that it can be again.
func (a *Agent) tellHistory(ctx context.Context, text string, fault bool) {
	a.events.add(control.Event{Kind: control.EventHistory, Text: repeated(text)})
	a.recorder.mu.Lock()
	a.recorder.fault = ""
	if fault {
		a.recorder.fault = repeated(text)
	}
	a.recorder.mu.Unlock()
	if fault {
		a.config.Log.WarnContext(ctx, text)
		return
	}
	a.config.Log.InfoContext(ctx, text)
}

// history is a page of the history for a peer. Command lines may hold secrets: see list.
func (a *Agent) history(ctx context.Context, peer *control.Peer, p control.HistoryParams) (*control.History, error) {
	if a.config.History == nil {
		return &control.History{Page: store.Page{Records: []history.Record{}}, Off: true}, nil
	}
	leave, err := a.readers.enter(ctx, peer.UID)
	if err != nil {
		return nil, err
	}
	defer leave()
	page, err := a.config.History.Read(p.From)
	if err != nil {
		return nil, err
	}
	for i := range page.Records {
		if r := &page.Records[i]; peer.UID != 0 && peer.UID != r.UID && len(r.Command) > 0 {
			r.Command = []string{filepath.Base(r.Command[0])}
		}
	}
	fault := a.recorder.broken()
	if fault != "" && page.Next == nil { // once for each reader
		page.Faults = append(page.Faults, fault)
	}
	return &control.History{Page: page}, nil
}
