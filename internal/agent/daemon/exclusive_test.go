package daemon

import (
	"errors"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/divvy-gpu/divvy/internal/agent/control"
	"github.com/divvy-gpu/divvy/internal/agent/gpulock"
	"github.com/divvy-gpu/divvy/internal/rundir"
)

// An own agent says who else holds a GPU, and what can be done.
func TestElsewhere(t *testing.T) {
	uuid := "GPU-" + t.Name() + "-" + filepath.Base(t.TempDir()) + time.Now().Format("150405.000000000")
	serve := func(l *net.UnixListener) {
		for {
			if _, err := l.Accept(); err != nil {
				return
			}
		}
	}
	one, two := gpulock.Set{Kind: gpulock.Simulated, Serve: serve}, gpulock.Set{Kind: gpulock.Simulated, Serve: serve}
	if err := one.Take(t.Context(), uuid); err != nil {
		t.Fatal(err)
	}
	defer one.Close()
	if got, ways := (ownLocks{Set: &two}).Elsewhere(t.Context(), uuid); !strings.Contains(got, "process ") || !slices.Contains(ways, "use the run directory of that agent") {
		t.Errorf("%q names neither the holder nor the way on", got)
	}
	one.Give(uuid)
	if got, _ := (ownLocks{Set: &two}).Elsewhere(t.Context(), uuid); got != "" {
		t.Errorf("nobody holds it: %q", got)
	}
}

// Once a system agent is configured an own one grants nothing more.
func TestOwnAgentAsksForTheMark(t *testing.T) {
	dir := t.TempDir()
	s := &service{options: Options{Endpoint: control.Endpoint{Rundir: t.TempDir(), Simgpu: dir}, Ephemeral: true}}
	s.options.Endpoint.Rundir = filepath.Dir(dir)
	place := s.options.Endpoint.Dir()
	if err := rundir.Make(place, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := s.permit(); err != nil {
		t.Errorf("nothing is configured: %v", err)
	}
	if err := rundir.WriteMark(place, rundir.Mark{}); err != nil {
		t.Fatal(err)
	}
	if err := s.permit(); control.CodeOf(err) != control.CodeMoved {
		t.Errorf("%v, want one that sends to the system agent", err)
	}
	if err := s.lock(t.Context()); control.CodeOf(err) != control.CodeMoved {
		t.Errorf("an own agent starts beside a system agent: %v", err)
	}
	if err := errors.Join(s.close(), rundir.RemoveMark(place)); err != nil {
		t.Error(err)
	}
}

// An agent that cannot start leaves the mark of the one that served, which tells how that was started.
func TestMarkOfAnAgentThatCannotStart(t *testing.T) {
	for name, before := range map[string]*rundir.Mark{"none": nil, "for virtual machines": {MachinesOnly: true, Seen: time.Now().Add(-time.Hour).Truncate(time.Second)}} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			s := &service{options: Options{Endpoint: control.Endpoint{Rundir: filepath.Dir(dir), Simgpu: dir}}, opened: make(chan struct{})}
			place := s.options.Endpoint.Dir()
			if before != nil {
				if err := errors.Join(rundir.Make(place, 0o700), rundir.WriteMark(place, *before), rundir.RenewMark(place, before.Seen)); err != nil {
					t.Fatal(err)
				}
			}
			if err := s.lock(t.Context()); err != nil {
				t.Fatal(err)
			}
			if during, _ := rundir.ConfiguredSystem(place); during.Mark == nil || during.Mark.MachinesOnly || !during.Mark.Agent.Alive() {
				t.Errorf("while it starts the mark is %+v", during.Mark)
			}
			if err := s.close(); err != nil {
				t.Fatal(err)
			}
			after, _ := rundir.ConfiguredSystem(place)
			if (after.Mark == nil) != (before == nil) || before != nil && (!after.Mark.MachinesOnly || !after.Mark.Seen.Equal(before.Seen)) {
				t.Errorf("afterwards the mark is %+v, want %+v", after.Mark, before)
			}
		})
	}
}
