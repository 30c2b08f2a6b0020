package agent

import (
	"fmt"
	"testing"
	"time"

	"github.com/divvy-gpu/divvy/internal/agent/control"
)

// What many shares of one user do pushes out no other user's events, and there is an end
// to all of them.
func TestEventsOfEachUserAreKept(t *testing.T) {
	e := events{now: time.Now}
	e.add(control.Event{Kind: control.EventEnded, Tenant: "train", User: "ada", Text: "it was killed"})
	e.add(control.Event{Kind: control.EventGPU, Text: "GPU 0 takes no new shares"})
	for i := range 10 * mostEvents {
		e.add(control.Event{Kind: control.EventEnded, Tenant: fmt.Sprint(i), User: "bob", Text: "it ended"})
	}
	of := map[string]int{}
	for _, one := range e.list() {
		of[one.User]++
	}
	if of["ada"] != 1 || of[""] != 1 || of["bob"] != mostOfUser {
		t.Errorf("events by user: %v", of)
	}
	if last := e.list()[len(e.list())-1]; last.Tenant != fmt.Sprint(10*mostEvents-1) {
		t.Errorf("the last is %+v", last)
	}
	for i := range 2 * mostEvents {
		e.add(control.Event{Kind: control.EventEnded, User: fmt.Sprint(i), Text: "it ended"})
		if n := len(e.list()); n > mostEvents {
			t.Fatalf("there are %d", n)
		}
	}
}

// The same event again within a minute is counted, and shown once.
func TestRepeatedEventsAreCounted(t *testing.T) {
	now := time.Unix(1000, 0)
	e := events{now: func() time.Time { return now }}
	misuse := control.Event{Kind: control.EventMisuse, Tenant: "thief", User: "bob", UUID: firstID, Text: "its processes were killed"}
	other := misuse
	other.UUID = otherID
	for range 6 {
		e.add(misuse)
		e.add(other)
		now = now.Add(repeats - time.Second)
	}
	l := e.list()
	if len(l) != 2 || l[0].Times != 6 || l[1].Times != 6 || l[1].UUID != otherID || !l[0].Time.Equal(now.Add(time.Second-repeats)) {
		t.Errorf("%+v", l)
	}
	now = now.Add(time.Second)
	if e.add(misuse); len(e.list()) != 3 || e.list()[2].Times != 1 {
		t.Errorf("a minute later: %+v", e.list())
	}
}
