package modes

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"reflect"
	"testing"
)

// gpus are GPUs that keep what they are given.
type gpus struct {
	values map[string]string
	// silent does not tell modes; stubborn keeps what it has.
	silent, stubborn bool
	users            []User
}

func (g *gpus) Users(context.Context, string) ([]User, error) { return g.users, nil }

func key(gpu string, mode Mode) string { return gpu + " " + string(mode) }

func (g *gpus) Mode(_ context.Context, gpu string, mode Mode) (string, error) {
	if g.silent {
		return "", ErrUnknown
	}
	return g.values[key(gpu, mode)], nil
}

func (g *gpus) SetMode(_ context.Context, gpu string, mode Mode, value string) error {
	if !g.stubborn {
		g.values[key(gpu, mode)] = value
	}
	return nil
}

func machine() *gpus {
	g := &gpus{values: map[string]string{}}
	for _, gpu := range []string{"a", "b"} {
		g.values[key(gpu, ComputeMode)], g.values[key(gpu, TimeSlice)] = "default", "default"
	}
	g.values[key("b", ComputeMode)] = "prohibited" // by its administrator
	return g
}

func open(t *testing.T, path string, g *gpus) *Book {
	t.Helper()
	b, err := Open(path, g, nil)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// errEnd ends a step as the end of the agent would.
var errEnd = errors.New("the agent ends here")

// Whatever step an agent ends after, the next one puts back what was there first, and leaves other GPUs alone.
func TestEveryStepIsPutBack(t *testing.T) {
	for _, silent := range []bool{false, true} {
		for last := 0; ; last++ {
			g, path := machine(), filepath.Join(t.TempDir(), "modes.json")
			before := fmt.Sprint(g.values)
			if silent {
				g.values[key("b", ComputeMode)] = "default" // what is usual is all that can be put back
				before = fmt.Sprint(g.values)
			}
			g.silent = silent
			b, steps := open(t, path, g), 0
			b.step = func(string) error {
				if steps++; steps > last {
					return errEnd
				}
				return nil
			}
			err := play(t.Context(), b)
			if err != nil && !errors.Is(err, errEnd) {
				t.Fatal(err)
			}
			next := open(t, path, g)
			for _, gpu := range []string{"a", "b"} {
				foreign, err := next.PutBack(t.Context(), gpu)
				if err != nil || len(foreign) != 0 {
					t.Fatalf("after step %d: %v, %v", last, foreign, err)
				}
			}
			if got := fmt.Sprint(g.values); got != before {
				t.Errorf("silent %v, after step %d: %s, want %s", silent, last, got, before)
			}
			if left := open(t, path, g).Changes(); len(left) != 0 {
				t.Errorf("silent %v, after step %d the book has %v", silent, last, left)
			}
			if err == nil {
				break
			}
		}
	}
}

// play is a life of changes.
func play(ctx context.Context, b *Book) error {
	for _, do := range []func() error{
		func() error { return b.Set(ctx, "a", ComputeMode, "exclusive-process") },
		func() error { return b.Set(ctx, "a", TimeSlice, "long") },
		func() error { return b.Set(ctx, "b", ComputeMode, "exclusive-process") },
		func() error { return b.Set(ctx, "a", TimeSlice, "short") },
		func() error { _, err := b.PutBack(ctx, "a"); return err },
		func() error { return b.Set(ctx, "a", TimeSlice, "medium") },
	} {
		if err := do(); err != nil {
			return err
		}
	}
	return nil
}

func TestNothingToChangeIsNotRecorded(t *testing.T) {
	g := machine()
	b := open(t, filepath.Join(t.TempDir(), "modes.json"), g)
	must(t, b.Set(t.Context(), "a", ComputeMode, "default"))
	if changes := b.Changes(); len(changes) != 0 {
		t.Errorf("the book has %v", changes)
	}
}

func TestOthersChangesAreLeft(t *testing.T) {
	g := machine()
	b := open(t, filepath.Join(t.TempDir(), "modes.json"), g)
	must(t, b.Set(t.Context(), "a", ComputeMode, "exclusive-process"))
	g.values[key("a", ComputeMode)] = "prohibited"
	want := []Foreign{{Change{"a", ComputeMode, "default", []string{"exclusive-process"}, true}, "prohibited"}}
	if foreign, err := b.Check(t.Context(), "a"); err != nil || !reflect.DeepEqual(foreign, want) {
		t.Errorf("checked: %v, %v; want %v", foreign, err, want)
	}
	if foreign, err := b.PutBack(t.Context(), "a"); err != nil || !reflect.DeepEqual(foreign, want) {
		t.Errorf("put back: %v, %v; want %v", foreign, err, want)
	}
	if got := g.values[key("a", ComputeMode)]; got != "prohibited" || len(b.Changes()) != 0 {
		t.Errorf("it is %s, and the book has %v", got, b.Changes())
	}
}

func TestGPUThatKeepsItsMode(t *testing.T) {
	g := machine()
	g.stubborn = true
	b := open(t, filepath.Join(t.TempDir(), "modes.json"), g)
	if err := b.Set(t.Context(), "a", ComputeMode, "exclusive-process"); !errors.Is(err, ErrKept) {
		t.Errorf("%v, want %v", err, ErrKept)
	}
	if foreign, err := b.PutBack(t.Context(), "a"); err != nil || len(foreign) != 0 || len(b.Changes()) != 0 {
		t.Errorf("put back: %v, %v; the book has %v", foreign, err, b.Changes())
	}
}

// A GPU that somebody uses keeps its modes, and the error says who that is. What it has already is no change.
func TestGPUInUse(t *testing.T) {
	for _, silent := range []bool{false, true} {
		g := machine()
		g.silent = silent
		b := open(t, filepath.Join(t.TempDir(), FileName), g)
		must(t, b.Set(t.Context(), "a", TimeSlice, "long"))
		for i := range 7 {
			g.users = append(g.users, User{PID: 41 + i, Name: "monitor", Owner: "ada"})
		}
		must(t, b.Set(t.Context(), "a", TimeSlice, "long"))
		err := b.Set(t.Context(), "a", TimeSlice, "short")
		want := "change the time-slice of a: the GPU is in use by process 41 (monitor) of ada, process 42 (monitor) of ada, process 43 (monitor) of ada, " +
			"process 44 (monitor) of ada, process 45 (monitor) of ada, 2 more: end them first"
		if !errors.Is(err, ErrInUse) || err.Error() != want {
			t.Errorf("set: %v, want %s", err, want)
		}
		if _, err := b.PutBack(t.Context(), "a"); !errors.Is(err, ErrInUse) {
			t.Errorf("put back: %v", err)
		}
		if got := g.values[key("a", TimeSlice)]; got != "long" || len(b.Changes()) != 1 {
			t.Errorf("it is %s, and the book has %v", got, b.Changes())
		}
		g.users = nil
		if foreign, err := b.PutBack(t.Context(), "a"); err != nil || len(foreign) != 0 || g.values[key("a", TimeSlice)] != "default" {
			t.Errorf("put back when it is free: %v, %v, %v", foreign, err, g.values)
		}
	}
}

// Whoever changed one mode puts back that one.
func TestPartOfTheBook(t *testing.T) {
	g := machine()
	b := open(t, filepath.Join(t.TempDir(), FileName), g)
	must(t, b.Set(t.Context(), "a", TimeSlice, "long"))
	must(t, b.Of(ComputeMode).Set(t.Context(), "a", ComputeMode, "exclusive-process"))
	if _, err := b.Of(ComputeMode).PutBack(t.Context(), "a"); err != nil {
		t.Fatal(err)
	}
	if g.values[key("a", TimeSlice)] != "long" || g.values[key("a", ComputeMode)] != "default" || len(b.Changes()) != 1 {
		t.Errorf("it has %v, and the book %v", g.values, b.Changes())
	}
}
