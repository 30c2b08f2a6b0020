package agent

import (
	"bytes"
	"fmt"
	"log/slog"
	"math"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/agent/control"
	"github.com/divvy-gpu/divvy/internal/backend"
	"github.com/divvy-gpu/divvy/internal/process"
)

// What becomes of a share is one event with its user, and one line of the log.
func TestWhatBecomesOfAShareIsTold(t *testing.T) {
	n := newNode(t)
	b := newInstances(t)
	var log bytes.Buffer
	c := n.settings(b)
	c.Log = slog.New(slog.NewTextHandler(&log, nil))
	r := n.startAs(c)
	owner := n.asker(os.Getuid())
	created, err := r.createTold(t.Context(), owner.peer, ask(8*gib))
	if err != nil {
		t.Fatal(err)
	}
	id, name := created.Tenant.ID, created.Tenant.Name
	b.use(id, owner.cmd.Process.Pid, 2*gib)
	large := ask(1 << 50)
	large.Request.Name = "x\x1b[2J"
	if _, err := r.createTold(t.Context(), owner.peer, large); err == nil {
		t.Fatal("a PiB was granted")
	}
	if _, err := r.set(t.Context(), owner.peer, control.SetParams{Tenant: id, Memory: new(v1alpha1.Bytes(9 * gib))}); err != nil {
		t.Fatal(err)
	}
	if _, err := r.set(t.Context(), owner.peer, control.SetParams{Tenant: id, Memory: new(v1alpha1.Bytes(9 * gib))}); err != nil {
		t.Fatal(err) // changes nothing
	}
	refuse := func(count uint64) {
		b.find(func(f *backend.Figures) { f.Usage[0].Refusals = &backend.Refusals{ByLimit: count, Last: 3 * gib} })
		n.list(r)
	}
	refuse(1)
	refuse(5) // within a minute: told at the end
	b.use(id, 0, 0)
	owner.leave()
	eventually(t, "the share has ended", func() bool { return len(n.list(r).Tenants) == 0 })
	user := process.UserName(os.Getuid())
	r.stopAgent()
	var got []string
	for _, e := range r.events.list() {
		if e.User != user {
			t.Errorf("%+v is of no user", e)
		}
		got = append(got, string(e.Kind)+" "+e.Tenant+": "+e.Text)
	}
	want := []string{
		"granted " + name + ": GPU 0: memory 8Gi, ", `refused x\x1b[2J: `, "changed " + name + ": by " + user + ": now GPU 0: memory 9Gi, ",
		"out-of-memory " + name + ": GPU 0: an allocation of 3Gi was refused by its limit",
		"out-of-memory " + name + ": GPU 0: 4 allocations were refused, the last of 3Gi by its limit", "ended " + name + ": ",
	}
	if len(got) != len(want) {
		t.Fatalf("events\n%s", strings.Join(got, "\n"))
	}
	lines := strings.Split(strings.TrimSpace(log.String()), "\n")
	for i := range want {
		if !strings.HasPrefix(got[i], want[i]) {
			t.Errorf("%q, want %q", got[i], want[i])
		}
	}
	for _, line := range []string{"a share is granted", "a request is refused", "a share is changed", "a share has ended"} {
		if n := strings.Count(log.String(), `"`+line+`"`); n != 1 {
			t.Errorf("%q is logged %d times in\n%s", line, n, strings.Join(lines, "\n"))
		}
	}
}

// However a page counts, refused allocations are told once a minute, and what is left at the end.
func TestRefusedAllocationsAreToldNowAndThen(t *testing.T) {
	now := time.Unix(1000, 0)
	e := events{now: func() time.Time { return now }}
	for i, c := range []struct {
		pass  time.Duration
		share int
		count uint64
		ends  bool
		want  uint64
	}{
		{0, 0, 2, false, 2}, {0, 0, 3, false, 0}, {0, 1, 1, false, 1}, {time.Minute, 0, 5, false, 3}, {time.Minute, 0, 4, false, 0},
		{time.Minute, 0, math.MaxUint64, false, math.MaxUint64 - 5}, {0, 0, 0, true, 0}, {0, 1, 9, true, 8},
	} {
		now = now.Add(c.pass)
		if got := e.fresh("t", c.share, c.count, c.ends); got != c.want {
			t.Errorf("%d: %d, want %d", i, got, c.want)
		}
	}
	if e.over("t"); len(e.memory) != 0 {
		t.Errorf("%+v", e.memory)
	}
	for want, r := range map[string]*backend.Refusals{
		"GPU 1: an allocation of 1Mi was refused by its limit":                                 {Last: 1 << 20},
		"GPU 1: an allocation of more than any GPU has was refused by the GPU, which was full": {Last: math.MaxUint64, LastByGPU: true},
	} {
		if got := memoryText(1, 1, r); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

// Who asks in a loop fills neither the log nor the list.
func TestRefusedRequestsAreBounded(t *testing.T) {
	now := time.Unix(1000, 0)
	e := events{now: func() time.Time { return now }}
	told := 0
	for range 10 * mostRefused {
		if e.mayRefuse("bob") {
			told++
		}
	}
	if told != mostRefused || !e.mayRefuse("ada") {
		t.Errorf("%d were told", told)
	}
	now = now.Add(repeats)
	if !e.mayRefuse("bob") || len(e.refused) != 1 {
		t.Errorf("a minute later: %+v", e.refused)
	}
	if got := repeated(strings.Repeat("x\n", longestRepeated)); len([]rune(got)) != longestRepeated+1 || strings.Contains(got, "\n") {
		t.Errorf("%q", got)
	}
}

// Who follows tenancies hears of their grants, refused allocations and ends, and nothing of commands.
func TestTenanciesAreFollowed(t *testing.T) {
	n := newNode(t)
	b := newInstances(t)
	r := n.startAs(n.settings(b))
	var heard []string
	r.Follow(func(of Tenancy, e control.Event) { heard = append(heard, of.Key+" "+string(e.Kind)) })
	owner := n.asker(os.Getuid())
	if _, err := r.createTold(t.Context(), owner.peer, ask(1*gib)); err != nil {
		t.Fatal(err)
	}
	n.prepared(r, claimed("k", 4*gib, 0))
	n.prepared(r, claimed("k", 4*gib, 0)) // is there already
	b.find(func(f *backend.Figures) { f.Usage[0].Refusals = &backend.Refusals{ByLimit: 1, Last: 3 * gib} })
	n.list(r)
	if err := r.Release(t.Context(), "k"); err != nil {
		t.Fatal(err)
	}
	r.stopAgent()
	if got, want := strings.Join(heard, ", "), "k granted, k out-of-memory, k ended"; got != want {
		t.Errorf("heard %s, want %s", got, want)
	}
}

// A refusal is told to whom it was refused and to root alone.
func TestRefusalsAreTheAskersOwn(t *testing.T) {
	n := newNode(t)
	r := n.start()
	r.happened(t.Context(), control.Event{Kind: control.EventRefused, Tenant: "train", User: process.UserName(1001), Text: "no room"})
	for uid, want := range map[int]int{0: 1, 1001: 1, 1002: 0} {
		l, err := r.list(t.Context(), &control.Peer{UID: uid}, struct{}{})
		if err != nil {
			t.Fatal(err)
		}
		if len(l.Events) != want {
			t.Errorf("user %d is told %+v", uid, l.Events)
		}
	}
}

// Whoever lists shares learns that another program has the agent's address, as long as that is so, and each change once.
func TestTakenAddressIsTold(t *testing.T) {
	n := newNode(t)
	r := n.start()
	taken := func(want string, events int) {
		t.Helper()
		l := n.list(r)
		var told []string
		for _, e := range l.Events {
			if e.Kind == control.EventFault {
				told = append(told, e.Text)
			}
		}
		if l.MetricsTaken != want || len(told) != events || events > 0 && !strings.Contains(told[events-1], "127.0.0.1:9410") {
			t.Errorf("taken is %q, told was %q", l.MetricsTaken, told)
		}
	}
	r.NoteTaken("")
	taken("", 0)
	r.NoteTaken("127.0.0.1:9410")
	taken("127.0.0.1:9410", 1)
	r.NoteTaken("")
	taken("", 2)
}

// A share that comes after another of its name has events of its own, and what else is said again is counted.
func TestSharesOfOneNameHaveTheirOwnEvents(t *testing.T) {
	e := events{now: time.Now}
	for range 2 {
		for _, kind := range []control.EventKind{control.EventGranted, control.EventChanged, control.EventReaped, control.EventEnded} {
			e.add(control.Event{Kind: kind, Tenant: "train", User: "ada", Text: "alike"})
		}
	}
	var told []string
	for _, one := range e.list() {
		told = append(told, fmt.Sprintf("%s %d", one.Kind, one.Times))
	}
	if got, want := strings.Join(told, ", "), "granted 1, changed 1, ended 1, granted 1, changed 1, reaped 2, ended 1"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}
