package vfio_test

import (
	"errors"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/divvy-gpu/divvy/internal/vm/binding"
	"github.com/divvy-gpu/divvy/internal/vm/facts"
	"github.com/divvy-gpu/divvy/internal/vm/vfio"
)

// hasty are limits by which a write that does not end at once is stuck.
var hasty = vfio.Limits{Look: 1, Write: 1}

// outcome is what is told of a device that was stuck.
type outcome struct {
	entry vfio.Entry
	there bool
	err   error
}

func listener() (late chan outcome, told func(vfio.Entry, bool, []vfio.Foreign, error)) {
	late = make(chan outcome, 1)
	return late, func(e vfio.Entry, there bool, _ []vfio.Foreign, err error) { late <- outcome{e, there, err} }
}

// A write that does not end makes the device stuck: who holds it is told, nobody else waits, and it goes on afterwards.
func TestStuckGoesOn(t *testing.T) {
	m := newMachine()
	late, told := listener()
	began := time.Unix(1_800_000_000, 0)
	b := open(t, vfio.Config{Path: filepath.Join(t.TempDir(), vfio.FileName), Machine: m, Limits: hasty, Late: told, Now: func() time.Time { return began }})
	release := m.Hold(gpu)
	defer release()
	m.hold(facts.Holder{PID: 4242, Name: "python", Node: "nvidia0"})
	for range 2 {
		var stuck *vfio.StuckError
		if err := b.Bind(t.Context(), "ada", planned(t, gpu)); !errors.As(err, &stuck) || len(stuck.Holders) != 1 || stuck.Holders[0].PID != 4242 || !stuck.Since.Equal(began) {
			t.Fatalf("bound: %v, want that it is stuck", err)
		}
	}
	if entries := b.Entries(); len(entries) != 1 || entries[0].Stuck == nil {
		t.Errorf("the book has %+v", entries)
	}
	m.hold()
	release()
	if got := <-late; got.err != nil || !got.there || got.entry.Phase != vfio.Bound {
		t.Errorf("it came to %+v", got)
	}
	must(t, b.Bind(t.Context(), "ada", planned(t, gpu)))
}

// Functions for which the kernel needs long, while nobody is seen in its way, are not said to be held.
func TestSlowFunctions(t *testing.T) {
	plan := planned(t, gpu)
	plan.Form = binding.FormFunctions
	for _, holders := range [][]facts.Holder{nil, {{PID: 4242, Name: "python", Node: "nvidia0"}}} {
		m := newMachine()
		late, told := listener()
		b := open(t, vfio.Config{Path: filepath.Join(t.TempDir(), vfio.FileName), Machine: m, Limits: hasty, Late: told})
		release := m.Hold(gpu)
		defer release()
		m.hold(holders...)
		err := b.Bind(t.Context(), "functions", plan)
		var stuck *vfio.StuckError
		if slow := len(holders) == 0; !errors.As(err, &stuck) || stuck.Slow != slow || strings.Contains(err.Error(), "the kernel is still at work to ") != slow || strings.Contains(err.Error(), "is stuck") == slow {
			t.Errorf("held by %v: %v", holders, err)
		}
		release()
		<-late
	}
}

// What is stuck on its way back is told as that, and that it goes on by itself; on its way there it is not.
func TestStuckTellsTheDirection(t *testing.T) {
	m, path := newMachine(), filepath.Join(t.TempDir(), vfio.FileName)
	first := open(t, vfio.Config{Path: path, Machine: m, Limits: vfio.Usual})
	must(t, first.Bind(t.Context(), "ada", planned(t, gpu)))
	first.Close()
	late, told := listener()
	b := open(t, vfio.Config{Path: path, Machine: m, Limits: hasty, Late: told})
	release := m.Hold(audio) // the plan's last step is about it
	defer release()
	_, err := b.Release(t.Context(), "ada")
	const goesOn = "the change goes on by itself"
	if want := "has not ended to take " + audio.String() + " from driver vfio-pci"; err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), goesOn) {
		t.Errorf("%v, want %s", err, want)
	}
	release()
	if got := <-late; got.err != nil || got.there {
		t.Errorf("it came to %+v", got)
	}
	defer m.Hold(gpu)()
	if err := open(t, vfio.Config{Path: filepath.Join(t.TempDir(), vfio.FileName), Machine: m, Limits: hasty}).Bind(t.Context(), "ada", planned(t, gpu)); err == nil || strings.Contains(err.Error(), goesOn) {
		t.Errorf("on its way there: %v", err)
	}
}
