package cli

import (
	"strconv"
	"strings"
	"testing"

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
		printNotes(&w, listing{Listing: control.Listing{Events: test.events}})
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
