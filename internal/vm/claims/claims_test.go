package claims

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/pci"
)

// kernel is a machine whose devices outlive agents: who has which, and whose the nodes are.
type kernel struct {
	mu    sync.Mutex
	has   map[string]Given
	nodes map[string]Ownership
	// fail is what the next change fails with, stuck what keeps one from ending, open who has a device open, lost what others changed of it.
	fail              error
	stuck, open, lost string
	// rest keeps a part of what was given, after the device is back.
	rest error
	// left is what somebody else has changed of a device that is put back.
	left []string
	// whose are the owners of nodes when their devices were asked back.
	whose []Ownership
}

func newKernel() *kernel {
	return &kernel{has: map[string]Given{}, nodes: map[string]Ownership{}}
}

// companion is the function that goes with a device.
func companion(at pci.Address) pci.Address {
	at.Function = 1
	return at
}

func (k *kernel) Take(_ context.Context, w Want, admit func([]pci.Address) error) (Given, error) {
	g := Given{Group: int(w.Device.Bus), Members: []pci.Address{w.Device, companion(w.Device)}, Nodes: []string{fmt.Sprintf("/dev/vfio/%d", w.Device.Bus)}}
	if err := admit(g.Members); err != nil {
		return Given{}, err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.fail != nil {
		return Given{}, k.fail
	}
	k.has[w.Name] = g
	if k.stuck != "" {
		return Given{}, errors.New(k.stuck)
	}
	k.nodes[g.Nodes[0]] = Ownership{Mode: 0o600}
	return g, nil
}

func (k *kernel) Release(_ context.Context, owner string) ([]string, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	switch {
	case k.open != "":
		k.askedWith(owner)
		return nil, fmt.Errorf("%w: %s", ErrOpen, k.open)
	case k.stuck != "":
		return nil, errors.New(k.stuck)
	}
	k.askedWith(owner)
	for _, node := range k.has[owner].Nodes {
		delete(k.nodes, node)
	}
	delete(k.has, owner)
	return k.left, k.rest
}

// askedWith notes whose the nodes are when a device is asked back.
func (k *kernel) askedWith(owner string) {
	for _, node := range k.has[owner].Nodes {
		k.whose = append(k.whose, k.nodes[node])
	}
}

func (k *kernel) Standing(owner string) Standing {
	k.mu.Lock()
	defer k.mu.Unlock()
	g, there := k.has[owner]
	s := Standing{There: there, What: fmt.Sprintf("bus %d", g.Group)}
	if there {
		s.Stuck, s.Lost = k.stuck, k.lost
	}
	return s
}

func (k *kernel) Owner(node string) (Ownership, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	o, there := k.nodes[node]
	if !there {
		return o, errors.New("no such node")
	}
	return o, nil
}

func (k *kernel) SetOwner(node string, to Ownership) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.nodes[node] = to
	return nil
}

// set changes how the kernel behaves.
func (k *kernel) set(change func()) {
	k.mu.Lock()
	defer k.mu.Unlock()
	change()
}

func open(t *testing.T, path string, k *kernel, step func(string)) *Ledger {
	t.Helper()
	l, err := Open(Config{
		Path: path, Nodes: k, Now: time.Now, Log: slog.New(slog.DiscardHandler), Step: step,
		Makers: map[v1alpha1.Backend]Maker{v1alpha1.BackendPassthrough: k, v1alpha1.BackendVF: k},
	})
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func want(name string, bus uint8) Want {
	return Want{Name: name, UID: 1000, Form: v1alpha1.BackendPassthrough, Device: pci.Address{Bus: bus}}
}

func names(l *Ledger) []string {
	all, _ := l.List()
	found := []string{}
	for _, c := range all {
		found = append(found, c.Name+" "+string(c.Phase))
	}
	return found
}

func equal(t *testing.T, what string, got, want any) {
	t.Helper()
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("%s: %v, want %v", what, got, want)
	}
}

// A claim has its device and its node until it is released, over the end of the agent that made it.
func TestLife(t *testing.T) {
	ctx, k, path := t.Context(), newKernel(), filepath.Join(t.TempDir(), FileName)
	l := open(t, path, k, nil)
	c, err := l.Take(ctx, want("a", 3), nil)
	if err != nil {
		t.Fatal(err)
	}
	equal(t, "owner", k.nodes["/dev/vfio/3"], Ownership{UID: 1000, Mode: 0o600})
	if again, err := l.Take(ctx, want("a", 3), nil); err != nil || again.Since != c.Since {
		t.Errorf("the same claim again: %v %v", again, err)
	}

	l = open(t, path, k, nil)
	if err := l.Recover(ctx); err != nil {
		t.Fatal(err)
	}
	equal(t, "after a restart", names(l), []string{"a held"})
	k.set(func() { k.nodes["/dev/vfio/3"] = Ownership{Mode: 0o600} }) // as udev does
	l.Look(ctx)
	equal(t, "owner after udev", k.nodes["/dev/vfio/3"], Ownership{UID: 1000, Mode: 0o600})

	k.set(func() { k.nodes["/dev/vfio/3"] = Ownership{UID: 7, Mode: 0o600} }) // as somebody else does
	l.Look(ctx)
	equal(t, "owner that somebody else chose", k.nodes["/dev/vfio/3"], Ownership{UID: 7, Mode: 0o600})

	k.set(func() { k.nodes["/dev/vfio/3"] = Ownership{UID: 1000, Mode: 0o666} }) // as its user may do
	if err := l.Release(ctx, "a"); err != nil {
		t.Fatal(err)
	}
	equal(t, "owner and mode while the device was freed", k.whose, []Ownership{{Mode: 0o600}})
	equal(t, "after the release", names(l), []string{})
	equal(t, "devices", len(k.has), 0)
	if err := l.Release(ctx, "a"); !errors.Is(err, ErrUnknown) {
		t.Errorf("released twice: %v", err)
	}
}

// No two claims have one function, whichever of a group is asked for, and no two one name.
func TestTaken(t *testing.T) {
	ctx, k := t.Context(), newKernel()
	l := open(t, filepath.Join(t.TempDir(), FileName), k, nil)
	if _, err := l.Take(ctx, want("a", 3), nil); err != nil {
		t.Fatal(err)
	}
	second := want("b", 3)
	beside := second
	beside.Device = companion(beside.Device)
	renamed := want("a", 4)
	for _, w := range []Want{second, beside, renamed} {
		if _, err := l.Take(ctx, w, nil); !errors.Is(err, ErrTaken) || !strings.Contains(err.Error(), "claim a") {
			t.Errorf("%+v: %v", w, err)
		}
	}
	equal(t, "claims", names(l), []string{"a held"})
}

// Parts of one GPU go beside each other, and not beside the whole of it.
func TestPartsBesideEachOther(t *testing.T) {
	ctx, k := t.Context(), newKernel()
	l := open(t, filepath.Join(t.TempDir(), FileName), k, nil)
	l.config.Makers[v1alpha1.BackendVGPU] = k
	part := func(name string, bus uint8) Want {
		w := want(name, bus)
		w.Form, w.Type = v1alpha1.BackendVGPU, "nvidia-471"
		return w
	}
	for _, w := range []Want{part("a", 3), part("b", 3), want("c", 4)} {
		if _, err := l.Take(ctx, w, nil); err != nil {
			t.Errorf("%s: %v", w.Name, err)
		}
	}
	for _, w := range []Want{want("d", 3), part("d", 4)} {
		if _, err := l.Take(ctx, w, nil); !errors.Is(err, ErrTaken) {
			t.Errorf("%s of %s: %v", w.Form, w.Device, err)
		}
	}
}

// What can never be is an error before anything is written down.
func TestInvalid(t *testing.T) {
	l := open(t, filepath.Join(t.TempDir(), FileName), newKernel(), nil)
	for name, change := range map[string]func(*Want){
		"no name":                  func(w *Want) { w.Name = "" },
		"a control character":      func(w *Want) { w.Name = "a\x1b[2J" },
		"a path":                   func(w *Want) { w.Name = "../a" },
		"a long name":              func(w *Want) { w.Name = strings.Repeat("a", MaxName+1) },
		"a form that nobody makes": func(w *Want) { w.Form = v1alpha1.BackendVGPU },
		"a share's form":           func(w *Want) { w.Form = v1alpha1.BackendSlice },
		"a type without vgpu":      func(w *Want) { w.Type = "nvidia-471" },
		"others beside a function": func(w *Want) { w.Form, w.Also = v1alpha1.BackendVF, []pci.Address{{Bus: 9}} },
	} {
		w := want("a", 3)
		change(&w)
		if _, err := l.Take(t.Context(), w, nil); !errors.Is(err, ErrInvalid) || strings.Contains(err.Error(), "\x1b") {
			t.Errorf("%s: %v", name, err)
		}
	}
	equal(t, "claims", names(l), []string{})
}

// A claim that could not be made leaves nothing.
func TestFailed(t *testing.T) {
	ctx, k := t.Context(), newKernel()
	l := open(t, filepath.Join(t.TempDir(), FileName), k, nil)
	k.fail = errors.New("the kernel refuses")
	if _, err := l.Take(ctx, want("a", 3), nil); !errors.Is(err, k.fail) {
		t.Error(err)
	}
	refusal := errors.New("not admitted")
	k.fail = nil
	if _, err := l.Take(ctx, want("a", 3), func([]pci.Address) error { return refusal }); !errors.Is(err, refusal) {
		t.Error(err)
	}
	equal(t, "claims", names(l), []string{})
	equal(t, "devices", len(k.has), 0)
}

// A change that does not end stands with its reason, keeps the device from others and holds nobody up. Its late end is noticed.
func TestStuck(t *testing.T) {
	ctx, k := t.Context(), newKernel()
	l := open(t, filepath.Join(t.TempDir(), FileName), k, nil)
	var told []string
	l.Tell(func(c Claim, text string) { told = append(told, c.Name+": "+text) })
	k.stuck = "process 7 holds it"
	if _, err := l.Take(ctx, want("a", 3), nil); err == nil || !strings.Contains(err.Error(), "process 7") {
		t.Fatal(err)
	}
	all, _ := l.List()
	if len(all) != 1 || all[0].Fault != "process 7 holds it" || all[0].Phase != Leaving {
		t.Fatalf("%+v", all)
	}
	if _, err := l.Take(ctx, want("b", 3), nil); !errors.Is(err, ErrTaken) {
		t.Errorf("another claim of it: %v", err)
	}
	if _, err := l.Take(ctx, want("a", 3), nil); !errors.Is(err, ErrBusy) || !strings.Contains(err.Error(), "process 7") {
		t.Errorf("the same claim again: %v", err)
	}
	l.Look(ctx)
	k.set(func() { k.stuck = "" })
	if _, err := l.Take(ctx, want("c", 4), nil); err != nil {
		t.Errorf("another device meanwhile: %v", err)
	}
	l.Look(ctx)
	equal(t, "claims", names(l), []string{"c held"})
	equal(t, "told", told, []string{"a: process 7 holds it", "a: its device was put back"})
}

// A claim of which a part is left stays with the fault, and is put back later: one that was made, and one that could not be.
func TestPartIsLeft(t *testing.T) {
	ctx, k := t.Context(), newKernel()
	l := open(t, filepath.Join(t.TempDir(), FileName), k, nil)
	if _, err := l.Take(ctx, want("a", 3), nil); err != nil {
		t.Fatal(err)
	}
	k.rest, k.fail = errors.New("the instance is in use"), errors.New("no type is left")
	if err := l.Release(ctx, "a"); !errors.Is(err, k.rest) {
		t.Error(err)
	}
	if _, err := l.Take(ctx, want("b", 4), nil); !errors.Is(err, k.fail) {
		t.Error(err)
	}
	for range 2 {
		l.Look(ctx)
		all, _ := l.List()
		equal(t, "claims", names(l), []string{"a leaving", "b leaving"})
		equal(t, "faults", []string{all[0].Fault, all[1].Fault}, []string{k.rest.Error(), k.rest.Error()})
	}
	k.rest = nil
	l.Look(ctx)
	equal(t, "claims", names(l), []string{})
}

// A device that a virtual machine has open stays its claim's, node and all.
func TestOpen(t *testing.T) {
	ctx, k := t.Context(), newKernel()
	l := open(t, filepath.Join(t.TempDir(), FileName), k, nil)
	if _, err := l.Take(ctx, want("a", 3), nil); err != nil {
		t.Fatal(err)
	}
	k.open = "process 9"
	if err := l.Release(ctx, "a"); !errors.Is(err, ErrOpen) || !strings.Contains(err.Error(), "process 9") {
		t.Error(err)
	}
	equal(t, "claims", names(l), []string{"a held"})
	equal(t, "owner", k.nodes["/dev/vfio/3"], Ownership{UID: 1000, Mode: 0o600})
}

type crash struct{}

// However an agent ends while it makes or ends a claim, the next one leaves the claim whole, or nothing of it.
func TestEndAfterEveryStep(t *testing.T) {
	ctx := t.Context()
	for count := 1; ; count++ {
		k, path := newKernel(), filepath.Join(t.TempDir(), FileName)
		left, over := count, false
		l := open(t, path, k, func(string) {
			if left--; left == 0 {
				panic(crash{})
			}
		})
		func() {
			defer func() { over = recover() == nil }()
			_, _ = l.Take(ctx, want("a", 3), nil)
			_ = l.Release(ctx, "a")
		}()
		l = open(t, path, k, nil)
		if err := l.Recover(ctx); err != nil {
			t.Fatalf("after step %d: %v", count, err)
		}
		got := names(l)
		switch held := len(got) == 1 && got[0] == "a held"; {
		case held && len(k.has) == 1 && k.nodes["/dev/vfio/3"].UID == 1000:
		case len(got) == 0 && len(k.has) == 0 && len(k.nodes) == 0:
		default:
			t.Errorf("after step %d there are claims %v, devices %v and nodes %v", count, got, slices.Collect(maps.Keys(k.has)), k.nodes)
		}
		for _, o := range k.whose {
			equal(t, fmt.Sprintf("after step %d, the owner while the device was freed", count), o.UID, 0)
		}
		if over {
			if count < 6 {
				t.Errorf("there are only %d steps", count-1)
			}
			return
		}
	}
}
