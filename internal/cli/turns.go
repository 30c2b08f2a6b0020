package cli

import (
	"fmt"
	"time"

	"github.com/divvy-gpu/divvy/internal/agent/control"
)

// turnLines are lines about the turns of a swap share, none for any other.
func turnLines(s control.Share, now time.Time) []string {
	t := s.Turns
	if t == nil {
		return nil
	}
	return []string{
		fmt.Sprintf("turn      %s; %s", turnOf(s, now), turnText(t, now)),
		fmt.Sprintf("swapped   %s of %s on the GPU; %s were brought there and %s moved to the host, in %s", size(t.OnGPU), size(t.Swapped), size(t.MovedIn), size(t.MovedOut), nanoseconds(t.Moving)),
		fmt.Sprintf("waited    %s for its turn; %d turns since the agent started", nanoseconds(t.Held), t.Turns),
	}
}

// turnText says what is the matter with a share's turn.
func turnText(t *control.Turns, now time.Time) string {
	soon := t.Until != nil && t.Until.After(now)
	switch {
	case t.State == control.TurnEntering:
		return "its memory comes to the GPU"
	case t.State == control.TurnLeaving:
		return "its work is waited for, then memory that another needs room for goes to the host"
	case t.State == control.TurnIn && soon:
		return fmt.Sprintf("others wait for its room, and have it in %s at the soonest", age(t.Until.Sub(now)))
	case t.State == control.TurnIn:
		return "nobody waits for its room"
	case t.Waits && soon:
		return fmt.Sprintf("it waits for the room of others, whose turn ends in %s", age(t.Until.Sub(now)))
	case t.Waits:
		return "it waits for the room of others"
	}
	return "it asks for nothing"
}

// turns says what the turns of a swap share cost it.
func (a *account) turns(s *control.Share) {
	t := s.Turns
	if t == nil {
		return
	}
	a.say("Turns: %s of the %s that can leave the GPU are there; %s.", size(t.OnGPU), size(t.Swapped), turnText(t, a.l.Time))
	a.say("  It waited for its turn for %s in all. %s were brought to the GPU and %s moved to the host, which took %s.",
		partOf(t.Held, a.l.Time.Sub(a.t.Created)), size(t.MovedIn), size(t.MovedOut), nanoseconds(t.Moving))
	if t.Thrashing != "" || t.Swapped > t.Room && t.Room > 0 {
		a.help("less memory in the program, or fewer shares on this GPU that work at the same time; a larger weight does not help")
	}
}

// turnFaults are lines about what is wrong with the turns of a swap share.
func turnFaults(share string, s control.Share) (faults []string) {
	t := s.Turns
	if t == nil {
		return nil
	}
	for _, text := range []string{t.Thrashing, t.Fault} {
		if text != "" {
			faults = append(faults, fmt.Sprintf("! %s on GPU %d: %s", share, s.Index, text))
		}
	}
	if t.Late {
		faults = append(faults, fmt.Sprintf("! %s on GPU %d: it has not said that its work has ended with its turn, and others have its room", share, s.Index))
	}
	if t.Swapped > t.Room && t.Room > 0 {
		faults = append(faults, fmt.Sprintf("%s on GPU %d: a turn holds %s of its %s, so the driver moves memory while it works, which nobody counts",
			share, s.Index, size(t.Room), size(t.Swapped)))
	}
	return faults
}
