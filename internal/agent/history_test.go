package agent

import (
	"errors"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/divvy-gpu/divvy/internal/agent/agenttest"
	"github.com/divvy-gpu/divvy/internal/agent/control"
	"github.com/divvy-gpu/divvy/internal/agentconfig"
	"github.com/divvy-gpu/divvy/internal/history"
	"github.com/divvy-gpu/divvy/internal/history/store"
)

// kept is a history in memory.
type keptHistory struct {
	mu      sync.Mutex
	writes  int
	records []history.Record
	fault   error // of Last
	told    func(string, bool)
}

func (k *keptHistory) Add(records ...history.Record) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.writes++
	k.records = append(k.records, records...)
}

func (k *keptHistory) Last(keys map[history.Key]bool, _ time.Time) (map[history.Key]history.Record, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	last := map[history.Key]history.Record{}
	for _, r := range k.records {
		if keys[r.Key()] {
			last[r.Key()] = r
		}
	}
	return last, k.fault
}

func (k *keptHistory) Read(store.Cursor) (store.Page, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return store.Page{Records: append([]history.Record{}, k.records...)}, nil
}

func (k *keptHistory) Start(told func(string, bool)) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.told = told
}

func (k *keptHistory) Close() {}

// shares are the records that are no node's.
func (k *keptHistory) shares() (found []history.Record, writes int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, r := range k.records {
		if r.Kind != history.KindNode {
			found = append(found, r)
		}
	}
	return found, k.writes
}

// clock is a time that a test moves.
type clock struct {
	mu  sync.Mutex
	now time.Time
}

func (c *clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *clock) move(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}

func newClock() *clock { return &clock{now: time.Date(2026, 11, 24, 12, 10, 0, 0, time.UTC)} }

func (n *node) withHistory(k *keptHistory, c *clock) Config {
	settings := n.settings(n.backend)
	settings.History, settings.Now = k, c.Now
	return settings
}

// end has a share end whose process is gone.
func (n *node) end(r *running, a *asker) {
	n.t.Helper()
	a.hangUp()
	a.kill()
	agenttest.Eventually(n.t, "the share ends", func() bool {
		r.sweep(n.t.Context())
		return len(r.all()) == 0
	})
}

// A living share is written at most once an hour, and once when it ends: the history costs nothing.
func TestHistoryIsWrittenOnceAnHour(t *testing.T) {
	n, k, c := newNode(t), &keptHistory{}, newClock()
	r := n.startAs(n.withHistory(k, c))
	owner := n.asker(os.Getuid())
	n.grant(r, owner, ask(8*gib))
	for range 130 { // two hours and ten minutes, in looks of a minute
		c.move(time.Minute)
		r.patrol(t.Context())
		r.recordHour()
	}
	records, writes := k.shares()
	if len(records) != 2 || writes != 2 || records[0].Kind != history.KindHour {
		t.Fatalf("%d writes: %+v", writes, records)
	}
	if records[0].Wall() != uint64(50*time.Minute) || records[1].Wall() != uint64(time.Hour) {
		t.Errorf("of %s and %s", time.Duration(records[0].Wall()), time.Duration(records[1].Wall()))
	}
	n.end(r, owner)
	records, writes = k.shares()
	last := records[len(records)-1]
	if len(records) != 3 || writes != 3 || last.Kind != history.KindEnd || last.Ended != control.LastGone || last.Wall() != uint64(20*time.Minute) {
		t.Errorf("%d writes: %+v", writes, records)
	}
	if last.Granted != 8*gib || last.Name == "" || last.UID != os.Getuid() || len(last.Command) != 2 || last.UUID != firstID && last.UUID != otherID {
		t.Errorf("%+v", last)
	}
	if machine := k.records[0]; machine.Kind != history.KindNode || len(machine.GPUs) != 2 || machine.GPUs[0].Capacity != 80*gib {
		t.Errorf("%+v", machine)
	}
}

// A clock that is set back does not stop the history.
func TestHistoryAfterTheClockWasSetBack(t *testing.T) {
	n, k, c := newNode(t), &keptHistory{}, newClock()
	r := n.startAs(n.withHistory(k, c))
	n.grant(r, n.asker(os.Getuid()), ask(8*gib))
	for _, step := range []time.Duration{time.Hour, -48 * time.Hour, time.Minute, time.Hour} {
		c.move(step)
		r.recordHour()
	}
	if records, writes := k.shares(); writes != 3 {
		t.Errorf("%d writes: %+v", writes, records)
	}
}

// The next agent goes on where the last one ended, and counts nothing twice.
func TestHistoryGoesOnWithTheNextAgent(t *testing.T) {
	n, k, c := newNode(t), &keptHistory{}, newClock()
	r := n.startAs(n.withHistory(k, c))
	owner := n.asker(os.Getuid())
	n.grant(r, owner, ask(8*gib))
	c.move(10 * time.Minute)
	r.stopAgent()
	if records, _ := k.shares(); len(records) != 1 || records[0].Wall() != uint64(10*time.Minute) {
		t.Fatalf("%+v", records)
	}
	c.move(5 * time.Minute)
	next := n.startAs(n.withHistory(k, c))
	c.move(time.Minute)
	n.end(next, owner)
	sum := time.Duration(0)
	records, _ := k.shares()
	for _, one := range records {
		sum += time.Duration(one.Wall())
	}
	if len(records) != 2 || sum != 16*time.Minute || records[1].Kind != history.KindEnd {
		t.Errorf("%s: %+v", sum, records)
	}
}

// An agent that lost its checkpoint meets shares that have ended, and writes nothing of them that another may have written.
func TestHistoryOfWhatEndedWithoutAnAgent(t *testing.T) {
	n, k, c := newNode(t), &keptHistory{}, newClock()
	settings := n.withHistory(k, c)
	r := n.startAs(settings)
	owner := n.asker(os.Getuid())
	n.grant(r, owner, ask(8*gib))
	c.move(10 * time.Minute)
	r.stopAgent()
	if err := os.Remove(settings.Checkpoint); err != nil {
		t.Fatal(err)
	}
	owner.kill()
	c.move(5 * time.Minute)
	next := n.startAs(settings)
	agenttest.Eventually(t, "the share ends", func() bool {
		next.sweep(t.Context())
		return len(next.all()) == 0
	})
	sum := time.Duration(0)
	records, _ := k.shares()
	for _, one := range records {
		sum += time.Duration(one.Wall())
	}
	if sum > 15*time.Minute {
		t.Errorf("%s: %+v", sum, records)
	}
}

// What cannot be read of the past counts as recorded, and stops nothing.
func TestHistoryThatCannotBeRead(t *testing.T) {
	n, k, c := newNode(t), &keptHistory{fault: errors.New("no disk")}, newClock()
	r := n.startAs(n.withHistory(k, c))
	owner := n.asker(os.Getuid())
	n.grant(r, owner, ask(8*gib))
	r.stopAgent()
	c.move(time.Hour)
	next := n.startAs(n.withHistory(k, c))
	c.move(time.Minute)
	n.end(next, owner)
	records, _ := k.shares()
	if last := records[len(records)-1]; last.Kind != history.KindEnd || last.Wall() != uint64(time.Minute) {
		t.Errorf("%+v", records)
	}
}

// Who ends shares in a loop has no more records than others have room for, and its sums are still true.
func TestHistoryOfManyShares(t *testing.T) {
	n, k, c := newNode(t), &keptHistory{}, newClock()
	r := n.startAs(n.withHistory(k, c))
	const ended = mostEnds + 30
	for i := range ended {
		r.recordEnd(&control.Tenant{
			ID: string(rune('a' + i)), UID: 1001, User: "ada", Created: c.Now().Add(-time.Second), Shares: []control.Share{{UUID: firstID, Time: &control.Time{Used: 1e6}}},
		}, "it ended")
	}
	r.recordEnd(&control.Tenant{ID: "z", UID: 1002, User: "bob", Created: c.Now().Add(-time.Second), Shares: []control.Share{{UUID: firstID}}}, "it ended")
	c.move(time.Hour)
	r.recordHour()
	records, _ := k.shares()
	if len(records) != mostEnds+2 {
		t.Errorf("%d records", len(records))
	}
	rows := history.Sum(records, []history.Column{history.ByUser}, time.UTC)
	if len(rows) != 2 || rows[0].Shares != ended || rows[0].Used != ended*1e6 || rows[0].Wall != ended*uint64(time.Second) || rows[1].Shares != 1 {
		t.Errorf("%+v", rows)
	}
}

// Who has the agent end and start gets no new day: neither of ended shares nor of bytes.
func TestHistoryOfADayGoesOnWithTheNextAgent(t *testing.T) {
	n, k, c := newNode(t), &keptHistory{}, newClock()
	end := func(r *running, id string, uid int) {
		r.recordEnd(&control.Tenant{
			ID: id, UID: uid, User: strconv.Itoa(uid), Created: c.Now().Add(-time.Second), Shares: []control.Share{{UUID: firstID}},
		}, "it ended")
	}
	r := n.startAs(n.withHistory(k, c))
	for i := range mostEnds {
		end(r, "a"+strconv.Itoa(i), 1001)
	}
	r.stopAgent()
	next := n.startAs(n.withHistory(k, c))
	before, _ := k.shares()
	end(next, "b", 1001)
	end(next, "c", 1002)
	if records, _ := k.shares(); len(records) != len(before)+1 || records[len(before)].ID != "c" {
		t.Errorf("of %d records before, %+v", len(before), records[len(before):])
	}
	next.recorder.mu.Lock()
	used := next.recorder.bytes["1001"]
	next.recorder.mu.Unlock()
	if used == 0 {
		t.Error("no byte of the day is counted")
	}
	next.stopAgent()
	c.move(24 * time.Hour)
	tomorrow := n.startAs(n.withHistory(k, c))
	before, _ = k.shares()
	end(tomorrow, "d", 1001)
	if records, _ := k.shares(); len(records) != len(before)+1 || records[len(before)].ID != "d" {
		t.Errorf("on the next day %+v", records[len(before):])
	}
}

// Of other users' commands one sees the program alone, and the configuration says what is kept of all.
func TestCommandsInTheHistory(t *testing.T) {
	for kept, want := range map[agentconfig.Commands]string{"": "/usr/bin/Train_it x", agentconfig.CommandsProgram: "Train_it", agentconfig.CommandsNone: ""} {
		n, k, c := newNode(t), &keptHistory{}, newClock()
		settings := n.withHistory(k, c)
		settings.Commands = kept
		r := n.startAs(settings)
		owner := n.asker(os.Getuid())
		n.grant(r, owner, ask(8*gib))
		n.end(r, owner)
		seen := func(uid int) string {
			page, err := r.history(t.Context(), control.NewPeer(owner.peer.Process, uid, nil, nil), control.HistoryParams{})
			if err != nil || len(page.Records) != 2 {
				t.Fatalf("%v: %+v", err, page)
			}
			return strings.Join(page.Records[1].Command, " ")
		}
		if got := seen(os.Getuid()); got != want {
			t.Errorf("%q: own command %q", kept, got)
		}
		if got := seen(4711); got != "Train_it" && kept != agentconfig.CommandsNone || got != "" && kept == agentconfig.CommandsNone {
			t.Errorf("%q: another's command %q", kept, got)
		}
	}
}

// A history that is not written is told in the log, as an event and to who reads it, and so is that it goes on.
func TestHistoryFaultIsTold(t *testing.T) {
	n, k, c := newNode(t), &keptHistory{}, newClock()
	r := n.startAs(n.withHistory(k, c))
	agenttest.Eventually(t, "the history is started", func() bool {
		k.mu.Lock()
		defer k.mu.Unlock()
		return k.told != nil
	})
	faults := func() string {
		t.Helper()
		page, err := r.history(t.Context(), &control.Peer{}, control.HistoryParams{})
		if err != nil {
			t.Fatal(err)
		}
		return strings.Join(page.Faults, "|")
	}
	k.told("the history is not written: no space\x1b[2J", true)
	if got := faults(); got != `the history is not written: no space\x1b[2J` {
		t.Errorf("who reads it meanwhile is told %q", got)
	}
	if got := n.list(r).History; got != `the history is not written: no space\x1b[2J` {
		t.Errorf("who lists shares meanwhile is told %q", got)
	}
	k.told("the history is written again", false)
	if got := n.list(r).History; got != "" {
		t.Errorf("who lists shares then is told %q", got)
	}
	if got := faults(); got != "" {
		t.Errorf("who reads it then is told %q", got)
	}
	var told []string
	for _, e := range n.list(r).Events {
		if e.Kind == control.EventHistory {
			told = append(told, e.Text)
		}
	}
	if strings.Join(told, "|") != `the history is not written: no space\x1b[2J|the history is written again` {
		t.Errorf("%q", told)
	}
}
