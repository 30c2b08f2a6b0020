package suspension_test

import (
	"reflect"
	"testing"

	"github.com/divvy-gpu/divvy/internal/suspension"
)

func TestNext(t *testing.T) {
	const (
		unused, running, locked = suspension.Unused, suspension.Running, suspension.Locked
		saved, failed           = suspension.Saved, suspension.Failed
	)
	type states []suspension.State
	for _, c := range []struct {
		about   string
		goal    suspension.Goal
		room    bool
		states  states
		stopped int // the number of a stopped process, from 1
		want    suspension.Plan
	}{
		{about: "nobody is out at once", goal: suspension.Out, want: suspension.Plan{Done: true}},
		{about: "all are locked first", goal: suspension.Out, states: states{running, locked, running}, want: suspension.Plan{Act: suspension.Lock, PIDs: []int{1, 3}}},
		{about: "then all are saved", goal: suspension.Out, states: states{locked, saved, unused}, want: suspension.Plan{Act: suspension.Save, PIDs: []int{1}}},
		{about: "one that joins is locked before others are saved", goal: suspension.Out, states: states{locked, saved, running}, want: suspension.Plan{Act: suspension.Lock, PIDs: []int{3}}},
		{about: "all are out", goal: suspension.Out, states: states{saved, unused, saved}, want: suspension.Plan{Done: true}},
		{about: "a failed one gives up", goal: suspension.Out, states: states{running, failed}, want: suspension.Plan{GiveUp: suspension.BecauseFailed}},
		{about: "a stopped one gives up", goal: suspension.Out, states: states{locked, running}, stopped: 2, want: suspension.Plan{GiveUp: suspension.BecauseStopped}},
		{about: "a stopped one that is out is out", goal: suspension.Out, states: states{saved}, stopped: 1, want: suspension.Plan{Done: true}},
		{about: "room comes first", states: states{locked, saved, running}, want: suspension.Plan{Room: true}},
		{about: "all are restored before any is unlocked", room: true, states: states{locked, saved, running}, want: suspension.Plan{Act: suspension.Restore, PIDs: []int{2}}},
		{about: "then all are unlocked, for which no room is needed", states: states{locked, running, locked, unused}, want: suspension.Plan{Act: suspension.Unlock, PIDs: []int{1, 3}}},
		{about: "a failed one holds up nobody", room: true, states: states{failed, saved}, want: suspension.Plan{Act: suspension.Restore, PIDs: []int{2}}},
		{about: "a stopped one is waited for", room: true, states: states{locked, saved}, stopped: 2, want: suspension.Plan{Wait: true}},
		{about: "those beside it are restored", room: true, states: states{saved, saved}, stopped: 2, want: suspension.Plan{Act: suspension.Restore, PIDs: []int{1}}},
		{about: "all run", states: states{running, failed, unused}, want: suspension.Plan{Done: true}},
	} {
		t.Run(c.about, func(t *testing.T) {
			var processes []suspension.Process
			for i, s := range c.states {
				processes = append(processes, suspension.Process{PID: i + 1, State: s, Stopped: i+1 == c.stopped})
			}
			if got := suspension.Next(c.goal, c.room, processes); !reflect.DeepEqual(got, c.want) {
				t.Errorf("%+v, expected %+v", got, c.want)
			}
		})
	}
}
