package cli

import (
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/divvy-gpu/divvy/internal/agent/control"
)

// Events name the owner of a share where names alone do not tell whose it is.
func TestEventsNameTheOwner(t *testing.T) {
	event := func(user string) control.Event {
		return control.Event{Kind: control.EventEnded, Tenant: "train", User: user, Text: "its last process is gone"}
	}
	for name, test := range map[string]struct {
		events []control.Event
		want   string
	}{
		"one user":  {[]control.Event{event("ada")}, "ended train: its"},
		"two users": {[]control.Event{event("ada"), event("kim")}, "ended kim/train: its"},
		"unknown":   {[]control.Event{event("ada"), event("")}, "ended train: its"},
	} {
		var w strings.Builder
		printNotes(&w, listing{Listing: control.Listing{Events: test.events}}, look{})
		if !strings.Contains(w.String(), test.want) {
			t.Errorf("%s: %q is not in\n%s", name, test.want, w.String())
		}
	}
}

// Of many events the last are shown, and the last about the reader's own shares.
func TestOwnEventsAreNotLost(t *testing.T) {
	var events []control.Event
	for _, user := range []string{"u1", "u1", "u1", "u1", "u2", "", "u3", "u1", "u3", "u3"} {
		events = append(events, control.Event{User: user, Tenant: "train", Text: strconv.Itoa(len(events))})
	}
	events[5].Tenant = "" // about no share
	for reader, want := range map[string]string{"u1": "23789", "u2": "4789", "u3": "6789", "": "789"} {
		got := ""
		for _, e := range shown(events, reader) {
			got += e.Text
		}
		if got != want {
			t.Errorf("%q is shown %s, want %s", reader, got, want)
		}
	}
}

// What whoever asked was told at once is no news.
func TestAnswersAreNoNews(t *testing.T) {
	var events []control.Event
	for _, kind := range []control.EventKind{control.EventGranted, control.EventChanged, control.EventRefused, control.EventMemory} {
		events = append(events, control.Event{Kind: kind, Tenant: "train", User: "u1"})
	}
	if got := shown(events, "u1"); len(got) != 1 || got[0].Kind != control.EventMemory {
		t.Errorf("shown are %+v", got)
	}
}

// Why shares were ended comes before what happens every day, and is told once for each.
func TestReasonsComeBeforeRoutine(t *testing.T) {
	var events []control.Event
	add := func(kind control.EventKind, tenant, text string) {
		events = append(events, control.Event{Kind: kind, User: "u1", Tenant: tenant, Text: text})
	}
	for _, name := range []string{"a", "b", "c"} {
		add(control.EventLimit, name, "its time is over")
		add(control.EventReaped, name, "1024 MiB of a process that has ended are free again")
		add(control.EventEnded, name, "its time is over")
		add(control.EventEnded, name+"1", control.LastGone)
	}
	said := func(reader string) (got string) {
		for _, e := range shown(events, reader) {
			got += string(e.Kind) + " " + e.Tenant + ": " + e.Text + "\n"
		}
		return got
	}
	want := "ended a: its time is over\nended b: its time is over\nended c: its time is over\n"
	for _, reader := range []string{"u1", "u2"} {
		if got := said(reader); got != want {
			t.Errorf("%s is shown\n%swant\n%s", reader, got, want)
		}
	}
	events = events[8:] // one reason alone leaves room
	if got := said("u1"); got != "reaped c: 1024 MiB of a process that has ended are free again\nended c: its time is over\nended c1: "+control.LastGone+"\n" {
		t.Errorf("shown\n%s", got)
	}
}

// A share whose time is over is not said to end in the past.
func TestTimeThatIsOver(t *testing.T) {
	until := time.Date(2026, 3, 1, 12, 0, 0, 0, time.Local)
	tenant := control.Tenant{Name: "train", User: "u1", Until: &until}
	for after, want := range map[time.Duration]string{-time.Second: "train of u1 ends at 12:00:00", 0: "train of u1 is ending", 5 * time.Second: "train of u1 is ending: its time was over at 12:00:00"} {
		if got := faultsOf(tenant, until.Add(after)); len(got) != 1 || !strings.Contains(got[0], want) {
			t.Errorf("after %s: %q, want %q", after, got, want)
		}
	}
}

// A share that is over its limit is still said to be co-operative.
func TestOverAndCooperative(t *testing.T) {
	for cooperative, want := range map[bool]string{false: "over", true: "over, co-operative"} {
		if got := state(control.Tenant{Held: true, Cooperative: cooperative}, control.Share{Used: 2, Limit: 1}); got != want {
			t.Errorf("co-operative %v: %q", cooperative, got)
		}
	}
}
