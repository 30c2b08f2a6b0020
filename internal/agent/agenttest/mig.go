package agenttest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	"github.com/divvy-gpu/divvy/internal/alloc/layouts"
	"github.com/divvy-gpu/divvy/internal/backend"
	"github.com/divvy-gpu/divvy/internal/install/installtest"
	"github.com/divvy-gpu/divvy/internal/mig"
)

// What a [MIG] refuses.
var (
	ErrBusy     = mig.ErrUsed
	ErrForeign  = errors.New("the MIG instance is not ours")
	ErrOccupied = errors.New("no room for the MIG instance")
)

// MIG are GPUs with MIG that outlive agents, as a [backend.Divider]. It keeps the driver's rules, and each change either
// happened or did not.
type MIG struct {
	// Step is called between a change and the answer; it may be nil.
	Step func(name string)
	// Bookless are GPUs of an agent that makes no instances.
	Bookless bool

	mu       sync.Mutex
	fail     func(change string) error
	unread   error
	model    *layouts.Model
	gpus     map[string]*migGPU
	made     int
	vanished []backend.Instance
	reserved uint64
}

type migGPU struct {
	on bool
	// leaves is true while the mode is to be off after the next reset.
	leaves bool
	parts  []backend.Part
	busy   map[string]string // who uses an instance, by its UUID; the GPU's own is under ""
}

// slice is the memory of one memory slice of a [MIG].
const slice = 10 << 30

// NewMIG has the GPUs with these UUIDs, which have the profiles of an H100 with 80 GB and are in MIG mode.
func NewMIG(t *testing.T, gpus ...string) *MIG {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(installtest.Root(t), "testdata/mig/h100-80gb.txt"))
	if err != nil {
		t.Fatal(err)
	}
	profiles, err := layouts.Parse(string(text))
	if err != nil {
		t.Fatal(err)
	}
	m := &MIG{gpus: map[string]*migGPU{}}
	if m.model, err = layouts.NewModel(profiles); err != nil {
		t.Fatal(err)
	}
	for _, gpu := range gpus {
		m.gpus[gpu] = &migGPU{on: true, busy: map[string]string{}}
	}
	return m
}

// Division implements [backend.Divider].
func (m *MIG) Division(_ context.Context, gpu backend.GPU) (backend.Division, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	g := m.gpus[gpu.UUID]
	if g == nil || !g.on {
		return backend.Division{}, nil
	}
	if m.unread != nil {
		return backend.Division{}, m.unread
	}
	d := backend.Division{On: true, Pending: !g.leaves, Profiles: m.model.Profiles(), Parts: slices.Clone(g.parts)}
	for _, p := range d.Profiles {
		size := sizeOf(p)
		for _, part := range g.parts {
			if part.Profile == p.Name {
				size.Reserved = part.Reserved
			}
		}
		d.Sizes = append(d.Sizes, size)
	}
	return d, nil
}

func sizeOf(p layouts.Profile) backend.Instance {
	return backend.Instance{Profile: p.Name, Size: p.Size, Bytes: uint64(p.Size) * slice, Multiprocessors: 16 * int(p.Takes[layouts.ComputeSlices])}
}

// Reserve has the driver keep so many bytes of each instance that is made, which it tells of those that are there alone.
func (m *MIG) Reserve(bytes uint64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.reserved = bytes
}

// Create implements [backend.Divider].
func (m *MIG) Create(_ context.Context, gpu backend.GPU, profile string, start int, origin backend.Origin) (backend.Instance, error) {
	made, err := m.create(gpu.UUID, profile, start, origin)
	if err == nil {
		m.step("mig-created")
	}
	return made, err
}

func (m *MIG) create(gpu, profile string, start int, origin backend.Origin) (backend.Instance, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.fails("create"); err != nil {
		return backend.Instance{}, err
	}
	g := m.gpus[gpu]
	at := m.model.Profile(profile)
	if g == nil || !g.on || m.model.Placed(at, start) == 0 {
		return backend.Instance{}, fmt.Errorf("make %s at %d of %s: %w", profile, start, gpu, ErrOccupied)
	}
	all := m.model.Placed(at, start)
	for _, p := range g.parts {
		one := m.model.Placed(m.model.Profile(p.Profile), p.Start)
		if m.model.Slices(one)&m.model.Slices(m.model.Placed(at, start)) != 0 {
			return backend.Instance{}, fmt.Errorf("make %s at %d of %s: %w", profile, start, gpu, ErrOccupied)
		}
		all |= one
	}
	if !m.model.Valid(all) {
		return backend.Instance{}, fmt.Errorf("make %s at %d of %s: %w", profile, start, gpu, ErrOccupied)
	}
	m.made++
	made := sizeOf(m.model.Profiles()[at])
	made.UUID, made.Parent, made.Start, made.GPUInstance = fmt.Sprintf("MIG-00000000-0000-4000-8000-%012d", m.made), gpu, start, m.made
	made.Reserved = m.reserved
	g.parts = append(g.parts, backend.Part{Instance: made, Origin: origin})
	slices.SortFunc(g.parts, func(a, b backend.Part) int { return cmp.Compare(a.Start, b.Start) })
	return made, nil
}

// Destroy implements [backend.Divider].
func (m *MIG) Destroy(_ context.Context, gpu backend.GPU, uuid string) error {
	if err := m.destroy(gpu.UUID, uuid, true); err != nil {
		return err
	}
	m.step("mig-destroyed")
	return nil
}

func (m *MIG) destroy(gpu, uuid string, ours bool) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if ours {
		if err := m.fails("destroy"); err != nil {
			return err
		}
	}
	g := m.gpus[gpu]
	at := slices.IndexFunc(g.parts, func(p backend.Part) bool { return p.UUID == uuid })
	switch {
	case at < 0, ours && g.parts[at].Origin == backend.OriginForeign:
		return fmt.Errorf("take away %s: %w", uuid, ErrForeign)
	case g.busy[uuid] != "":
		return fmt.Errorf("take away %s: %w by %s", uuid, ErrBusy, g.busy[uuid])
	}
	g.parts = slices.Delete(g.parts, at, at+1)
	return nil
}

// Claim implements [backend.Divider].
func (m *MIG) Claim(_ context.Context, gpu backend.GPU, uuid string, origin backend.Origin) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.fails("claim"); err != nil {
		return err
	}
	for i := range m.gpus[gpu.UUID].parts {
		if p := &m.gpus[gpu.UUID].parts[i]; p.UUID == uuid && p.Origin != backend.OriginForeign {
			p.Origin = origin
			return nil
		}
	}
	return fmt.Errorf("claim %s: %w", uuid, ErrForeign)
}

// MakesInstances is what the backend of an agent tells that may make none.
func (m *MIG) MakesInstances() bool { return !m.Bookless }

// SetMode implements [backend.Divider].
func (m *MIG) SetMode(_ context.Context, gpu backend.GPU, on bool) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.fails("mode"); err != nil {
		return err
	}
	g := m.gpus[gpu.UUID]
	switch {
	case g == nil:
		return errors.New("the GPU has no MIG")
	case g.busy[""] != "":
		return fmt.Errorf("%w by %s: end them first", ErrBusy, g.busy[""])
	case len(g.parts) > 0:
		return fmt.Errorf("%w: it has %d instances", ErrBusy, len(g.parts))
	}
	g.on, g.leaves = on, false
	return nil
}

// Leave has a GPU's MIG mode end at its next reset, as another tool does.
func (m *MIG) Leave(gpu string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.gpus[gpu].leaves = true
}

// RecoverInstances implements [backend.Divider].
func (m *MIG) RecoverInstances(context.Context) ([]backend.Instance, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	gone := m.vanished
	m.vanished = nil
	return gone, nil
}

func (m *MIG) fails(change string) error {
	if m.fail == nil {
		return nil
	}
	return m.fail(change)
}

// SetFail has every change ask fail first, and return its error; nil lets all succeed.
func (m *MIG) SetFail(fail func(change string) error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.fail = fail
}

// SetUnread has readings of GPUs in MIG mode fail with an error; nil lets them succeed.
func (m *MIG) SetUnread(err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.unread = err
}

func (m *MIG) step(name string) {
	if m.Step != nil {
		m.Step(name)
	}
}

// Foreign makes an instance as another tool does.
func (m *MIG) Foreign(t *testing.T, gpu, profile string, start int) backend.Instance {
	t.Helper()
	made, err := m.create(gpu, profile, start, backend.OriginForeign)
	if err != nil {
		t.Fatal(err)
	}
	return made
}

// TakeAway takes an instance away as another tool does.
func (m *MIG) TakeAway(t *testing.T, gpu, uuid string) {
	t.Helper()
	if err := m.destroy(gpu, uuid, false); err != nil {
		t.Fatal(err)
	}
}

// Use has somebody use an instance of a GPU, or with an empty UUID the GPU itself; nobody does with an empty name.
func (m *MIG) Use(gpu, uuid, by string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.gpus[gpu].busy[uuid] = by
}

// Turn turns the MIG mode of a GPU as another tool does.
func (m *MIG) Turn(gpu string, on bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.gpus[gpu].on = on
}

// Lists are the instances of a GPU: profile, start and origin of each.
func (m *MIG) Lists(gpu string) (all []string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, p := range m.gpus[gpu].parts {
		all = append(all, fmt.Sprintf("%s@%d %s", p.Profile, p.Start, p.Origin))
	}
	return all
}
