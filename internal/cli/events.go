package cli

import (
	"slices"

	"github.com/divvy-gpu/divvy/internal/agent/control"
)

// eventsShown bounds the events of a table, and again those about the reader's shares;
// JSON has all that the agent keeps.
const eventsShown = 3

// shown are the last events, and the last that are about shares of the reader's: why a
// share of theirs has ended must not get lost among what others do. What happens every day
// is shown where nothing else is, and what whoever asked was told at once is in JSON and
// in `divvy show` alone.
func shown(events []control.Event, reader string) (chosen []control.Event) {
	events = slices.DeleteFunc(slices.Clone(events), control.Event.Answered)
	mine := func(e control.Event) bool { return e.User == reader && e.Tenant != "" }
	own := latest(events, mine)
	all := latest(events, func(control.Event) bool { return true })
	for i, e := range events {
		if own[i] || all[i] {
			chosen = append(chosen, e)
		}
	}
	return chosen
}

// latest are the numbers of the last events of which is holds. Those come first that tell
// something of their own.
func latest(events []control.Event, is func(control.Event) bool) map[int]bool {
	found := map[int]bool{}
	for _, spare := range []bool{false, true} {
		for i := len(events) - 1; i >= 0 && len(found) < eventsShown; i-- {
			if is(events[i]) && (events[i].Routine() || saidAgain(events, i)) == spare {
				found[i] = true
			}
		}
	}
	return found
}

// saidAgain reports whether a later event about the same share gives the same reason: of a
// share that the agent ends it is the last one.
func saidAgain(events []control.Event, i int) bool {
	e := events[i]
	return e.Kind == control.EventLimit && slices.ContainsFunc(events[i+1:], func(later control.Event) bool {
		return later.Kind == control.EventEnded && later.Tenant == e.Tenant && later.User == e.User && later.Text == e.Text
	})
}
