package mig

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"

	"github.com/divvy-gpu/divvy/internal/nvml"
)

// Whatever step an agent ends after, the next one has whole instances and nothing else, and what others made is as it was.
func TestEveryStepIsFinished(t *testing.T) {
	for last := 0; ; last++ {
		g, file := newGPU(), path(t)
		other := g.foreign(t, seven[1], slicesAt(2, 2))
		b, steps := open(t, file, g), 0
		b.step = func(string) error {
			if steps++; steps > last {
				return errStopped
			}
			return nil
		}
		err := live(t.Context(), b)
		if err != nil && !errors.Is(err, errStopped) {
			t.Fatal(err)
		}
		next := open(t, file, g)
		if gone, err := next.Recover(t.Context()); err != nil || len(gone) != 0 {
			t.Fatalf("after step %d: gone %v, %v", last, gone, err)
		}
		check(t, g, next, []nvml.MIGInstance{other})
		if t.Failed() {
			t.Fatalf("after step %d", last)
		}
		if err == nil {
			break
		}
	}
}

// live makes three instances and takes one away.
func live(ctx context.Context, b *Book) error {
	var uuid string
	for i, at := range []nvml.MIGPlacement{slicesAt(0, 1), slicesAt(1, 1), slicesAt(4, 4)} {
		profile := seven[0]
		if i == 2 {
			profile = seven[2]
		}
		e, err := b.Create(ctx, "a", profile, at, "share")
		if err != nil {
			return err
		}
		uuid = e.UUID
	}
	return b.Destroy(ctx, uuid)
}

// check compares book and GPU: each has what the other has, whole, beside what others made.
func check(t *testing.T, g *gpu, b *Book, others []nvml.MIGInstance) {
	t.Helper()
	for _, other := range others {
		if !slices.ContainsFunc(g.instances, func(i nvml.MIGInstance) bool { return reflect.DeepEqual(i, other) }) {
			t.Errorf("another's instance %v is not there any more: %v", other, g.instances)
		}
	}
	if len(g.instances) != len(others)+len(b.Entries()) {
		t.Errorf("the GPU has %v, the book %v, and others have %v", g.instances, b.Entries(), others)
	}
	for _, e := range b.Entries() {
		if e.State != Whole || !slices.ContainsFunc(g.instances, func(i nvml.MIGInstance) bool {
			return e.is(i) && len(i.Compute) == 1 && i.Compute[0].UUID == e.UUID
		}) {
			t.Errorf("entry %+v is not whole: %v", e, g.instances)
		}
	}
}

// Makings and endings, with faults between the halves, ends of the agent, and another tool at work.
func TestChurn(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	g, file := newGPU(), path(t)
	var others []nvml.MIGInstance
	g.fail = func(string) error {
		if random.IntN(20) == 0 {
			return errFault
		}
		return nil
	}
	crash := func(string) error {
		if random.IntN(40) == 0 {
			return errStopped
		}
		return nil
	}
	b := open(t, file, g)
	b.step = crash
	for range 500 {
		err := act(t, random, g, b, &others)
		if err != nil && !slices.ContainsFunc([]error{errStopped, errFault, ErrOccupied, nvml.ErrInUse, ErrForeign}, func(e error) bool { return errors.Is(err, e) }) {
			t.Fatal(err)
		}
		if errors.Is(err, errStopped) || errors.Is(err, errFault) {
			b = recovered(t, file, g)
			check(t, g, b, others)
			b.step = crash
		}
		if t.Failed() {
			t.FailNow()
		}
	}
}

// recovered is the book of an agent that starts and has no faults.
func recovered(t *testing.T, file string, g *gpu) *Book {
	t.Helper()
	fail := g.fail
	defer func() { g.fail = fail }()
	g.fail, g.busy = func(string) error { return nil }, map[string]bool{}
	b := open(t, file, g)
	if gone, err := b.Recover(t.Context()); err != nil || len(gone) != 0 {
		t.Fatalf("recover: gone %v, %v", gone, err)
	}
	return b
}

// act makes or ends one instance, Divvy's or another tool's.
func act(t *testing.T, random *rand.Rand, g *gpu, b *Book, others *[]nvml.MIGInstance) error {
	t.Helper()
	profile := seven[random.IntN(len(seven))]
	at := profile.Placements[random.IntN(len(profile.Placements))]
	entries := b.Entries()
	switch kind := random.IntN(10); {
	case kind < 5:
		_, err := b.Create(t.Context(), "a", profile, at, "share")
		return err
	case kind < 8 && len(entries) > 0:
		e := entries[random.IntN(len(entries))]
		g.busy = map[string]bool{e.UUID: random.IntN(3) == 0}
		return b.Destroy(t.Context(), e.UUID)
	case kind == 8 && !slices.ContainsFunc(g.instances, func(i nvml.MIGInstance) bool { return overlap(i.Placement, at) }):
		fail := g.fail
		defer func() { g.fail = fail }()
		g.fail = func(string) error { return nil }
		*others = append(*others, g.foreign(t, profile, at))
	case len(*others) > 0:
		i := random.IntN(len(*others))
		g.instances = slices.DeleteFunc(g.instances, func(o nvml.MIGInstance) bool { return o.ID == (*others)[i].ID })
		*others = slices.Delete(*others, i, i+1)
	}
	return nil
}

func TestASecondHalfThatFailsUndoesTheFirst(t *testing.T) {
	g := newGPU()
	b := open(t, path(t), g)
	g.fail = func(call string) error {
		if call == "create-compute" {
			return errFault
		}
		return nil
	}
	if _, err := b.Create(t.Context(), "a", seven[0], slicesAt(3, 1), "share"); !errors.Is(err, errFault) {
		t.Fatalf("%v, want %v", err, errFault)
	}
	check(t, g, b, nil)
}

func TestWhatIsUsedStays(t *testing.T) {
	g := newGPU()
	b := open(t, path(t), g)
	e, err := b.Create(t.Context(), "a", seven[0], slicesAt(3, 1), "share")
	if err != nil {
		t.Fatal(err)
	}
	g.busy[e.UUID] = true
	if err := b.Destroy(t.Context(), e.UUID); !errors.Is(err, nvml.ErrInUse) {
		t.Fatalf("%v, want %v", err, nvml.ErrInUse)
	}
	check(t, g, b, nil)
	g.busy = nil
	if err := b.Destroy(t.Context(), e.UUID); err != nil {
		t.Fatal(err)
	}
	check(t, g, b, nil)
}

func TestRefusals(t *testing.T) {
	g := newGPU()
	g.foreign(t, seven[1], slicesAt(2, 2))
	b := open(t, path(t), g)
	if _, err := b.Create(t.Context(), "a", seven[0], slicesAt(0, 1), "share"); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		profile nvml.MIGProfile
		at      nvml.MIGPlacement
		want    error
	}{
		"a placement that the profile has not": {seven[2], slicesAt(2, 4), ErrOccupied},
		"another's slices":                     {seven[0], slicesAt(3, 1), ErrOccupied},
		"our own slices":                       {seven[1], slicesAt(0, 2), ErrOccupied},
	} {
		if _, err := b.Create(t.Context(), "a", c.profile, c.at, "share"); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
	}
	if err := b.Destroy(t.Context(), "MIG-14-2"); !errors.Is(err, ErrForeign) {
		t.Errorf("another's instance: %v, want %v", err, ErrForeign)
	}
	g.off = true
	if _, err := b.Create(t.Context(), "a", seven[0], slicesAt(5, 1), "share"); !errors.Is(err, ErrMode) {
		t.Errorf("mode off: %v, want %v", err, ErrMode)
	}
}

// Somebody takes an instance away and makes another instead, which the next agent must not take for its own.
func TestWhatBecameAnothers(t *testing.T) {
	g, file := newGPU(), path(t)
	b := open(t, file, g)
	e, err := b.Create(t.Context(), "a", seven[2], slicesAt(4, 4), "share")
	if err != nil {
		t.Fatal(err)
	}
	g.instances = nil
	other := g.foreign(t, seven[1], slicesAt(4, 2))
	next := open(t, file, g)
	if gone, err := next.Recover(t.Context()); err != nil || !reflect.DeepEqual(gone, []Entry{e}) {
		t.Errorf("recovered: gone %v, %v; want %v", gone, err, e)
	}
	check(t, g, next, []nvml.MIGInstance{other})
}

// Somebody takes an instance away while the agent runs: its place is free again, and the others stay.
func TestForget(t *testing.T) {
	g := newGPU()
	b := open(t, path(t), g)
	var made []Entry
	for i := range 2 {
		e, err := b.Create(t.Context(), "a", seven[0], slicesAt(i, 1), "layout")
		if err != nil {
			t.Fatal(err)
		}
		made = append(made, e)
	}
	g.instances = g.instances[1:]
	if gone, err := b.Forget(t.Context(), "a"); err != nil || !reflect.DeepEqual(gone, made[:1]) {
		t.Errorf("forgotten: %v, %v; want %v", gone, err, made[:1])
	}
	if left := b.Entries(); !reflect.DeepEqual(left, made[1:]) {
		t.Errorf("left: %v, want %v", left, made[1:])
	}
	if _, err := b.Create(t.Context(), "a", seven[0], slicesAt(0, 1), "layout"); err != nil {
		t.Errorf("make it again: %v", err)
	}
}

func TestList(t *testing.T) {
	g := newGPU()
	b := open(t, path(t), g)
	if _, err := b.Create(t.Context(), "a", seven[2], slicesAt(4, 4), "share"); err != nil {
		t.Fatal(err)
	}
	g.foreign(t, seven[0], slicesAt(1, 1))
	if _, err := g.CreateMIGInstance(t.Context(), "a", seven[1].ID, slicesAt(2, 2)); err != nil {
		t.Fatal(err)
	}
	listed, err := b.List(t.Context(), "a")
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, l := range listed {
		got = append(got, fmt.Sprintf("%s at %d, ours %v, half %v", l.Name, l.Placement.Start, l.Ours, l.Half))
	}
	want := []string{"1g.10gb at 1, ours false, half false", "2g.20gb at 2, ours false, half true", "3g.40gb at 4, ours true, half false"}
	if !slices.Equal(got, want) {
		t.Errorf("listed %q, want %q", got, want)
	}
}

// The agent ends before it makes anything, and somebody else makes the same instance.
func TestAnothersInTheRecordedPlace(t *testing.T) {
	g, file := newGPU(), path(t)
	b := open(t, file, g)
	b.step = func(string) error { return errStopped }
	if _, err := b.Create(t.Context(), "a", seven[0], slicesAt(3, 1), "share"); !errors.Is(err, errStopped) {
		t.Fatal(err)
	}
	other := g.foreign(t, seven[0], slicesAt(3, 1))
	next := open(t, file, g)
	if gone, err := next.Recover(t.Context()); err != nil || len(gone) != 0 {
		t.Errorf("recovered: gone %v, %v", gone, err)
	}
	check(t, g, next, []nvml.MIGInstance{other})
}
