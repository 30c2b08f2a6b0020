package cli

import (
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
