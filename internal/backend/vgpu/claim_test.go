package vgpu_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/fstest"
	"time"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/backend/vgpu"
	"github.com/divvy-gpu/divvy/internal/pci"
	"github.com/divvy-gpu/divvy/internal/sysfs/sysfstest"
	"github.com/divvy-gpu/divvy/internal/vm/binding"
	"github.com/divvy-gpu/divvy/internal/vm/claims"
	"github.com/divvy-gpu/divvy/internal/vm/vfio"
	types "github.com/divvy-gpu/divvy/internal/vm/vgpu"
)

// modelled is a GPU with two virtual functions that take types, and a book about it. Others come in between as a test says.
type modelled struct {
	files   fstest.MapFS
	entries []vfio.Entry
	// others is called before each plan is carried out.
	others func(p binding.Plan) error
	// open is whether a virtual machine has what is given open.
	open bool
}

var modelledGPU = pci.Address{Bus: 1}

const folderOfGPU = "sys/devices/pci0000:00/0000:01:00.0"

func newModelled() *modelled {
	m := &modelled{files: fstest.MapFS{}, others: func(binding.Plan) error { return nil }}
	link := func(at, to string) { sysfstest.Set(m.files, at, "->"+to) }
	link("sys/bus/pci/devices/0000:01:00.0", "../../../devices/pci0000:00/0000:01:00.0")
	m.files[folderOfGPU+"/sriov_totalvfs"] = &fstest.MapFile{Data: []byte("2\n")}
	for i := 1; i <= 2; i++ {
		at := fmt.Sprintf("sys/devices/pci0000:00/0000:01:00.%d", i)
		link(fmt.Sprintf("sys/bus/pci/devices/0000:01:00.%d", i), fmt.Sprintf("../../../devices/pci0000:00/0000:01:00.%d", i))
		link(fmt.Sprintf("%s/virtfn%d", folderOfGPU, i-1), fmt.Sprintf("../0000:01:00.%d", i))
		link(at+"/iommu_group", fmt.Sprintf("../../../kernel/iommu_groups/4%d", i))
		m.set(i, "0")
	}
	return m
}

// set gives a function a type: those that have none offer two.
func (m *modelled) set(function int, kind string) {
	at := fmt.Sprintf("sys/devices/pci0000:00/0000:01:00.%d/nvidia/", function)
	creatable := "ID    : vGPU Name\n"
	if kind == "0" {
		creatable += "471   : NVIDIA A100-10C\n472   : NVIDIA A100-20C\n"
	}
	m.files[at+"current_vgpu_type"] = &fstest.MapFile{Data: []byte(kind + "\n")}
	m.files[at+"creatable_vgpu_types"] = &fstest.MapFile{Data: []byte(creatable)}
}

func (m *modelled) Entries() []vfio.Entry { return slices.Clone(m.entries) }

func (m *modelled) Bind(_ context.Context, owner string, p binding.Plan) error {
	if err := m.others(p); err != nil {
		return err
	}
	for _, s := range p.Steps {
		if path.Base(s.Do.Path) == "current_vgpu_type" {
			m.set(int(s.Device.Function), s.Do.Value)
		}
	}
	m.entries = append(m.entries, vfio.Entry{Owner: owner, Plan: p, Phase: vfio.Bound})
	return nil
}

func (m *modelled) Release(_ context.Context, owner string) ([]vfio.Foreign, error) {
	if m.open {
		return nil, vfio.ErrOpen
	}
	for _, e := range m.entries {
		if e.Owner == owner {
			m.set(int(e.Plan.Device.Function), "0")
		}
	}
	m.entries = slices.DeleteFunc(m.entries, func(e vfio.Entry) bool { return e.Owner == owner })
	return nil, nil
}

// A virtual function that vfio would refuse gets no type; one of a host that does not tell, or whose interrupts are remapped, does.
func TestNotRemapped(t *testing.T) {
	for interrupts, want := range map[string]error{"  1: 0 PCI-MSI 1\n": binding.ErrRemap, "  1: 0 IR-PCI-MSI 1\n": nil, "": nil} {
		m := newModelled()
		m.files["sys/class/iommu/dmar0"] = &fstest.MapFile{}
		m.files["proc/interrupts"] = &fstest.MapFile{Data: []byte(interrupts)}
		if _, err := vgpu.New(vgpu.Options{Root: m.files, Book: m}).Claim(t.Context(), "one", modelledGPU, "A100-10C"); !errors.Is(err, want) || len(m.entries) > 0 != (want == nil) {
			t.Errorf("%q: %v with %d in the book, want %v", interrupts, err, len(m.entries), want)
		}
	}
}

// A type that others take in between is asked for on the next function, and where there is none the error says so.
func TestOthersAreFaster(t *testing.T) {
	for name, c := range map[string]struct {
		faults []error
		taken  int
		want   error
		tried  []uint8
	}{
		"nobody":                   {nil, 0, nil, []uint8{1}},
		"on the first":             {[]error{syscall.EBUSY}, 1, nil, []uint8{1, 2}},
		"by another owner":         {[]error{vfio.ErrTaken}, 0, nil, []uint8{1, 2}},
		"open by somebody":         {[]error{vfio.ErrOpen}, 0, nil, []uint8{1, 2}},
		"on both":                  {[]error{syscall.ENOSPC, syscall.ENOSPC}, 2, types.ErrFull, []uint8{1, 2}},
		"both are given meanwhile": {[]error{vfio.ErrTaken, vfio.ErrTaken}, 0, binding.ErrFull, []uint8{1, 2}},
		"the device is stuck":      {[]error{&vfio.StuckError{}}, 0, &vfio.StuckError{}, []uint8{1}},
	} {
		t.Run(name, func(t *testing.T) {
			m := newModelled()
			var tried []uint8
			m.others = func(p binding.Plan) error {
				tried = append(tried, p.Device.Function)
				if len(tried) <= c.taken {
					m.set(int(p.Device.Function), "472")
				}
				if len(tried) <= len(c.faults) {
					return c.faults[len(tried)-1]
				}
				return nil
			}
			d, err := vgpu.New(vgpu.Options{Root: m.files, Book: m}).Claim(t.Context(), "one", modelledGPU, "A100-10C")
			if stuck := new(vfio.StuckError); c.want != nil && !errors.Is(err, c.want) && !errors.As(err, &stuck) || c.want == nil && err != nil || !slices.Equal(tried, c.tried) {
				t.Fatalf("%v after %v, want %v after %v", err, tried, c.want, c.tried)
			}
			if err == nil && (d.Function.Function != c.tried[len(c.tried)-1] || d.Type != "471" || d.Node() != fmt.Sprintf("/dev/vfio/4%d", d.Function.Function) || !d.Whole) {
				t.Errorf("%+v", d)
			}
			if err != nil && len(m.entries) > 0 {
				t.Errorf("after an error the book has %+v", m.entries)
			}
		})
	}
}

func TestOwners(t *testing.T) {
	m, ctx := newModelled(), t.Context()
	b := vgpu.New(vgpu.Options{Root: m.files, Book: m})
	m.set(2, "472") // another's
	first, err := b.Claim(ctx, "one", modelledGPU, "471")
	if err != nil {
		t.Fatal(err)
	}
	if again, err := b.Claim(ctx, "one", modelledGPU, "NVIDIA A100-10C"); err != nil || again != first {
		t.Errorf("asked again: %+v, %v", again, err)
	}
	if _, err := b.Claim(ctx, "one", modelledGPU, "472"); !errors.Is(err, vgpu.ErrOwner) {
		t.Errorf("another type: %v, want ErrOwner", err)
	}
	m.set(1, "472") // as somebody else does
	if listed, err := b.List(modelledGPU); err != nil || len(listed) != 2 || listed[0].Owner != "" || listed[0].Type != "472" {
		t.Errorf("with another's type on our function there are %+v, %v", listed, err)
	}
	m.set(1, "471")
	listed, err := b.List(modelledGPU)
	if err != nil || len(listed) != 2 || listed[0] != first || listed[1].Owner != "" || listed[1].Type != "472" {
		t.Errorf("listed are %+v, %v", listed, err)
	}
	if err := b.EnableFunctions(ctx, modelledGPU, 2); err != nil {
		t.Fatal(err)
	}
	if _, err := b.DisableFunctions(ctx, modelledGPU); !errors.Is(err, vgpu.ErrUsed) {
		t.Errorf("functions with vGPUs are disabled: %v", err)
	}
	if _, err := b.Claim(ctx, "two", modelledGPU, backed); !errors.Is(err, vgpu.ErrInstances) || strings.Contains(err.Error(), "\n") {
		t.Errorf("a backed type without instances: %v", err)
	}
	if _, err := b.Release(ctx, "one"); err != nil {
		t.Fatal(err)
	}
	if _, has := b.Device("one"); has {
		t.Error("after the release the owner has something")
	}
}

// A function that the book has given is not asked for again, also while it has no type yet. What has no group is given back.
func TestFunctionsThatAreNotTaken(t *testing.T) {
	m, ctx := newModelled(), t.Context()
	given := pci.Address{Bus: 1, Function: 1}
	m.entries = []vfio.Entry{{Owner: "passed", Plan: binding.Plan{Form: binding.FormFunction, Device: given, Members: []pci.Address{given}}}}
	asked := 0
	m.others = func(binding.Plan) error { asked++; return nil }
	maker := vgpu.Maker{Backend: vgpu.New(vgpu.Options{Root: m.files, Book: m})}
	want := claims.Want{Name: "desk", Form: v1alpha1.BackendVGPU, Device: modelledGPU, Type: "471"}
	admit := func([]pci.Address) error { return nil }
	if got, err := maker.Take(ctx, want, admit); err != nil || got.Members[0].Function != 2 || asked != 1 {
		t.Errorf("%+v, %v, after %d plans", got, err, asked)
	}
	if _, err := maker.Release(ctx, "desk"); err != nil {
		t.Fatal(err)
	}
	delete(m.files, "sys/devices/pci0000:00/0000:01:00.2/iommu_group")
	if got, err := maker.Take(ctx, want, admit); !errors.Is(err, binding.ErrNoGroup) || len(m.entries) != 1 {
		t.Errorf("without a group: %+v, %v; the book has %+v", got, err, m.entries)
	}
}

// The ledger of claims is told what a virtual machine gets, and that an open one stays.
func TestMaker(t *testing.T) {
	m, ctx := newModelled(), t.Context()
	maker := vgpu.Maker{Backend: vgpu.New(vgpu.Options{Root: m.files, Book: m})}
	want := claims.Want{Name: "desk", Form: v1alpha1.BackendVGPU, Device: modelledGPU, Type: "A100-10C"}
	refused := errors.New("shares are on it")
	if _, err := maker.Take(ctx, want, func([]pci.Address) error { return refused }); !errors.Is(err, refused) || len(m.entries) > 0 {
		t.Errorf("not admitted: %v, the book has %+v", err, m.entries)
	}
	given, err := maker.Take(ctx, want, func(members []pci.Address) error {
		if !slices.Equal(members, []pci.Address{modelledGPU}) {
			t.Errorf("asked about %v", members)
		}
		return nil
	})
	if err != nil || given.Group != 41 || given.Members[0].Function != 1 || given.Nodes[0] != "/dev/vfio/41" || given.TypeName != "NVIDIA A100-10C" || given.Mediated+given.Path != "" {
		t.Fatalf("%+v, %v", given, err)
	}
	if s := maker.Standing("desk"); !s.There || s.Stuck != "" {
		t.Errorf("standing: %+v", s)
	}
	m.open = true
	if _, err := maker.Release(ctx, "desk"); !errors.Is(err, claims.ErrOpen) || !maker.Standing("desk").There {
		t.Errorf("an open one: %v", err)
	}
	m.open = false
	if left, err := maker.Release(ctx, "desk"); err != nil || len(left) > 0 || maker.Standing("desk").There {
		t.Errorf("released: %v, %v", left, err)
	}
}

// unasked makes no instances, and fails the test that asks for one.
type unasked struct {
	vgpu.Instances
	t *testing.T
}

func (u unasked) Make(context.Context, pci.Address, string, string) (int, error) {
	u.t.Error("an instance was asked for")
	return 0, errors.New("none")
}

func (unasked) Take(context.Context, string) error { return nil }

// A GPU that can have no vGPU is told so before an instance is made for it, and nothing is changed.
func TestNoInstanceForNothing(t *testing.T) {
	m := newModelled()
	for i := 1; i <= 2; i++ {
		delete(m.files, fmt.Sprintf("%s/virtfn%d", folderOfGPU, i-1))
	}
	m.files[folderOfGPU+"/driver"] = &fstest.MapFile{Data: []byte("../../../bus/pci/drivers/nvidia"), Mode: fs.ModeSymlink | 0o777}
	b := vgpu.New(vgpu.Options{Root: m.files, Book: m, Instances: unasked{t: t}})
	for _, kind := range []string{backed, "471"} {
		if _, err := b.Claim(t.Context(), "one", modelledGPU, kind); !errors.Is(err, types.ErrFunctions) || !strings.Contains(err.Error(), "`divvy vm functions 0000:01:00.0 --count all`") || len(m.entries) > 0 {
			t.Errorf("%s: %v; the book has %+v", kind, err, m.entries)
		}
	}
}

// held is a GPU instance that an owner has and that cannot be taken while somebody uses it.
type held struct {
	vgpu.Instances
	owner string
	used  error
}

func (h *held) Take(_ context.Context, owner string) error {
	if h.used == nil && owner == h.owner {
		h.owner = ""
	}
	return h.used
}

func (h *held) Owners() []string {
	if h.owner == "" {
		return nil
	}
	return []string{h.owner}
}

// rootsNodes are nodes of VFIO that are root's, and stay so.
type rootsNodes struct{}

func (rootsNodes) Owner(string) (claims.Ownership, error)  { return claims.Ownership{Mode: 0o600}, nil }
func (rootsNodes) SetOwner(string, claims.Ownership) error { return nil }

// A claim stays until also the GPU instance behind its vGPU is gone, and while it is not known whether there is one.
func TestInstanceThatStays(t *testing.T) {
	m, ctx := newModelled(), t.Context()
	b := vgpu.New(vgpu.Options{Root: m.files, Book: m, Later: true})
	ledger, err := claims.Open(claims.Config{
		Path: filepath.Join(t.TempDir(), claims.FileName), Now: time.Now, Log: slog.New(slog.DiscardHandler),
		Makers: map[v1alpha1.Backend]claims.Maker{v1alpha1.BackendVGPU: vgpu.Maker{Backend: b}}, Nodes: rootsNodes{},
	})
	if err != nil {
		t.Fatal(err)
	}
	there := func(when, fault string) {
		t.Helper()
		ledger.Look(ctx)
		all, _ := ledger.List()
		if len(all) != 1 || all[0].Phase != claims.Leaving || !strings.Contains(all[0].Fault, fault) {
			t.Errorf("%s there are %+v, want a fault with %q", when, all, fault)
		}
	}
	want := claims.Want{Name: "desk", Form: v1alpha1.BackendVGPU, Device: modelledGPU, Type: "471"}
	if _, err := ledger.Take(ctx, want, nil); err != nil {
		t.Fatal(err)
	}
	if err := ledger.Release(ctx, "desk"); !errors.Is(err, vgpu.ErrLater) || len(m.entries) > 0 {
		t.Errorf("released before instances are known: %v, the book has %+v", err, m.entries)
	}
	there("before instances are known", "not known yet")
	instance := &held{owner: "desk", used: errors.New("a process uses it")}
	b.SetInstances(instance)
	there("while the instance is used", "a process uses it")
	if err := b.Recover(ctx); !errors.Is(err, instance.used) {
		t.Errorf("recovered while the instance is used: %v", err)
	}
	instance.used = nil
	ledger.Look(ctx)
	if all, _ := ledger.List(); len(all) > 0 || instance.owner != "" {
		t.Errorf("afterwards there are %+v, and %q has an instance", all, instance.owner)
	}
	// One that cannot be made leaves no instance either.
	m.others = func(binding.Plan) error { return &vfio.StuckError{} }
	instance.owner, instance.used = "desk", errors.New("a process uses it")
	if _, err := ledger.Take(ctx, want, nil); err == nil {
		t.Error("a device that is stuck was given")
	}
	there("after a claim that failed", "a process uses it")
	b.SetInstances(nil)
	if _, err := b.Claim(ctx, "two", modelledGPU, backed); !errors.Is(err, vgpu.ErrInstances) {
		t.Errorf("a backed type without instances: %v", err)
	}
}
