package cli

import (
	"strings"
	"testing"
	"time"

	"github.com/divvy-gpu/divvy/internal/agent/control"
	"github.com/divvy-gpu/divvy/internal/cli/top"
)

// taking is a listing of shares that take turns: one is there, two wait, one moves, and one has more than a turn holds.
func taking() listing {
	const gib = 1 << 30
	l := example()[1]
	l.Outside, l.Waiting, l.Events = nil, nil, nil
	model := l.Tenants[0]
	l.Tenants = nil
	for i, turns := range []*control.Turns{
		{State: control.TurnIn, Until: new(l.Time.Add(35 * time.Second)), Swapped: 40 * gib, OnGPU: 40 * gib, Room: 60 * gib, Turns: 12, MovedIn: 480 * gib, MovedOut: 440 * gib, Moving: 80_000_000_000, Held: 600_000_000_000},
		{State: control.TurnOut, Waits: true, Until: new(l.Time.Add(35 * time.Second)), Swapped: 50 * gib, OnGPU: 20 * gib, Room: 60 * gib, Held: 12_000_000_000},
		{State: control.TurnOut, Swapped: 4 * gib, Room: 60 * gib, Late: true},
		{State: control.TurnOut, Waits: true, Swapped: 6 * gib, Room: 60 * gib},
		{State: control.TurnEntering, Swapped: 70 * gib, OnGPU: 3 * gib, Room: 60 * gib, Thrashing: "of the last minute its memory moved for 31s and was on the GPU for 12s"},
	} {
		one := model
		one.ID, one.Name = string(rune('a'+i)), []string{"batch", "train", "stuck", "next", "large"}[i]
		share := model.Shares[0]
		share.Turns, share.Time = turns, nil
		one.Shares = []control.Share{share}
		l.Tenants = append(l.Tenants, one)
	}
	l.GPUs[0].Thrashing = "memory of shares that take turns moved for 40s of the last minute"
	return l
}

func TestTurnsAreShown(t *testing.T) {
	time.Local = time.UTC
	l := taking()
	var w strings.Builder
	printSurvey(&w, survey{agents: []listing{l}}, look{width: 200})
	golden(t, "ls-turns.table", w.String())
	w.Reset()
	for _, width := range []int{0, 80} { // as top --once has it elsewhere than on a terminal, and on a usual one
		model, _ := top.New(width, 0, time.Second).Plain().Update(snapshotOf(survey{agents: []listing{l}}, l.Time))
		w.WriteString(model.View() + "\n\n")
	}
	golden(t, "top-turns-once.text", w.String())
	w.Reset()
	for _, s := range snapshotOf(survey{agents: []listing{l}}, l.Time).Shares {
		w.WriteString(strings.Join(s.Details(), "\n") + "\n\n")
	}
	golden(t, "top-turns.text", w.String())
	w.Reset()
	for i := range l.Tenants {
		w.WriteString(strings.Join(why(&l.Listing, &l.Tenants[i], l.Tenants[i].UID), "\n") + "\n\n")
	}
	golden(t, "show-turns.text", w.String())
}
