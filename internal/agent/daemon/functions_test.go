package daemon

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/agentconfig"
	"github.com/divvy-gpu/divvy/internal/backend/vgpu"
	"github.com/divvy-gpu/divvy/internal/pci"
	"github.com/divvy-gpu/divvy/internal/sysfs/sysfstest"
	"github.com/divvy-gpu/divvy/internal/vm/binding"
	"github.com/divvy-gpu/divvy/internal/vm/claims"
	"github.com/divvy-gpu/divvy/internal/vm/facts"
	"github.com/divvy-gpu/divvy/internal/vm/vfio"
)

// The physical function of a virtual one is where its link leads.
func TestPhysical(t *testing.T) {
	m := machines{root: sysfstest.Tree(map[string]string{
		"sys/bus/pci/devices/0000:3b:00.4": "->../../../devices/pci0000:3a/0000:3b:00.4", "sys/devices/pci0000:3a/0000:3b:00.4/physfn": "->../0000:3b:00.0",
		"sys/bus/pci/devices/0000:3b:00.0": "->../../../devices/pci0000:3a/0000:3b:00.0", "sys/devices/pci0000:3a/0000:3b:00.0/vendor": "0x10de\n",
	})}
	whole := pci.Address{Bus: 0x3b}
	if at, virtual := m.Physical(pci.Address{Bus: 0x3b, Function: 4}); !virtual || at != whole {
		t.Errorf("a virtual function is %t of %s", virtual, at)
	}
	for _, f := range []pci.Address{whole, {Bus: 1}} {
		if at, virtual := m.Physical(f); virtual {
			t.Errorf("%s is of %s", f, at)
		}
	}
}

// The configuration's functions are enabled where there are none, again until all are there, and what is there stays.
func TestEnabler(t *testing.T) {
	at := func(bus uint8) pci.Address { return pci.Address{Bus: bus} }
	device := func(bus uint8, class uint32, total, now int) facts.Device {
		d := facts.Device{VFsTotal: total, VFs: now}
		d.Address, d.Class, d.Vendor = at(bus), class, facts.NVIDIA
		return d
	}
	host := &facts.Host{Devices: []facts.Device{device(1, 0x030200, 16, 0), device(2, 0x030200, 16, 3), device(3, 0x030200, 0, 0), device(4, 0x020000, 8, 0), device(5, 0x030200, 8, 0)}}
	var asked []string
	fails := map[pci.Address]error{at(1): errors.New("no driver yet")}
	e := enabler{
		lendings: []agentconfig.Lending{
			{Form: v1alpha1.BackendVGPU, Every: true, Functions: pci.AllFunctions},
			{Form: v1alpha1.BackendVF, Address: at(4), Functions: 2},
			{Form: v1alpha1.BackendVF, Address: at(5)},
			{Form: v1alpha1.BackendVF, Address: at(9), Functions: 2},
		},
		host: func() (*facts.Host, error) { return host, nil },
		set: func(_ context.Context, device pci.Address, count int) error {
			asked = append(asked, fmt.Sprintf("%s %d", device, count))
			if err := fails[device]; err != nil {
				return err
			}
			i := slices.IndexFunc(host.Devices, func(d facts.Device) bool { return d.Address == device })
			host.Devices[i].VFs = 1
			return nil
		},
		log: slog.New(slog.DiscardHandler), said: map[pci.Address]string{},
	}
	if e.try(t.Context()) {
		t.Error("all is done while one has no driver")
	}
	delete(fails, at(1))
	if !e.try(t.Context()) {
		t.Error("it is not done")
	}
	if want := []string{"0000:01:00.0 -1", "0000:04:00.0 2", "0000:01:00.0 -1"}; !slices.Equal(asked, want) {
		t.Errorf("asked %q, want %q", asked, want)
	}
	host = nil
	e.lendings = e.lendings[2:3]
	if !e.try(t.Context()) { // without reading the machine
		t.Error("nothing is asked for, and it is not done")
	}
}

// Functions that were enabled are no claim, so to release a claim of their owner's name takes nothing away.
func TestFunctionsAreNoClaim(t *testing.T) {
	dir, card := t.TempDir(), pci.Address{Bus: 0x41}
	owner := vgpu.FunctionsOwner(card)
	m := &machines{book: bookWith(t, dir, vfio.Entry{Owner: owner, Plan: binding.Plan{Form: binding.FormFunctions, Device: card}, Phase: vfio.Bound})}
	var err error
	m.vgpus = vgpu.New(vgpu.Options{Root: os.DirFS(dir), Book: m.book})
	if m.Ledger, err = claims.Open(claims.Config{Path: filepath.Join(dir, claims.FileName), Now: time.Now, Log: slog.New(slog.DiscardHandler)}); err != nil {
		t.Fatal(err)
	}
	if _, err := m.Release(t.Context(), owner); !errors.Is(err, claims.ErrUnknown) {
		t.Errorf("released: %v", err)
	}
	if all, _ := m.List(); len(all) > 0 || len(m.EnabledFunctions()) != 1 || m.EnabledFunctions()[0].Fault != "" {
		t.Errorf("there are claims %v and functions %v", all, m.EnabledFunctions())
	}
	folder := filepath.Join(dir, "sys", binding.DeviceFolder(card))
	if err := errors.Join(os.MkdirAll(folder, 0o700), os.WriteFile(filepath.Join(folder, "sriov_numvfs"), []byte("2\n"), 0o600)); err != nil {
		t.Fatal(err)
	}
	if f := m.EnabledFunctions(); len(f) != 1 || f[0].State() != "fault" || !strings.Contains(f[0].Fault, "somebody has changed their number to 2") {
		t.Errorf("what somebody changed: %+v", f)
	}
}

// maker gives each device that it is asked for once meanwhile returned.
type maker struct{ meanwhile func() }

func (m maker) Take(_ context.Context, w claims.Want, admit func([]pci.Address) error) (claims.Given, error) {
	m.meanwhile()
	return claims.Given{Group: 1, Members: []pci.Address{w.Device}}, admit([]pci.Address{w.Device})
}
func (maker) Release(context.Context, string) ([]string, error) { return nil, nil }
func (maker) Standing(string) claims.Standing                   { return claims.Standing{} }

// Of a claim of a function and its being taken away, one gives way, whichever comes first.
func TestFunctionsAndClaims(t *testing.T) {
	card, one := pci.Address{Bus: 0x41}, pci.Address{Bus: 0x41, Function: 1}
	files := fstest.MapFS{}
	link := func(at, to string) { sysfstest.Set(files, at, "->"+to) }
	for _, a := range []pci.Address{card, one} {
		link("sys/bus/pci/devices/"+a.String(), "../../../devices/pci0000:40/"+a.String())
		files["sys/devices/pci0000:40/"+a.String()+"/class"] = &fstest.MapFile{Data: []byte("0x120000\n")}
	}
	link("sys/devices/pci0000:40/"+card.String()+"/virtfn0", "../"+one.String())
	m := &machines{vgpus: vgpu.New(vgpu.Options{Root: files})}
	var err error
	asked := func() error {
		_, err := m.SetFunctions(t.Context(), card, 0)
		return err
	}
	m.Ledger, err = claims.Open(claims.Config{
		Path: filepath.Join(t.TempDir(), claims.FileName), Now: time.Now, Log: slog.New(slog.DiscardHandler),
		Makers: map[v1alpha1.Backend]claims.Maker{v1alpha1.BackendVF: maker{func() {
			if err := asked(); !errors.Is(err, vgpu.ErrUsed) {
				t.Errorf("functions are taken away while one is claimed: %v", err)
			}
		}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	want := claims.Want{Name: "desk", Form: v1alpha1.BackendVF, Device: one}
	admit := func([]pci.Address) error { return nil }
	if _, err := m.Take(t.Context(), want, admit); err != nil {
		t.Fatal(err)
	}
	if err := asked(); !errors.Is(err, vgpu.ErrUsed) {
		t.Errorf("functions are taken away that a claim has: %v", err)
	}
	if err := m.Ledger.Release(t.Context(), "desk"); err != nil {
		t.Fatal(err)
	}
	if err := m.Reserve(claims.Reserved{Key: "key", Name: "team/pod", Functions: []pci.Address{one}}); err != nil {
		t.Fatal(err)
	}
	if err := asked(); !errors.Is(err, vgpu.ErrUsed) || !strings.Contains(err.Error(), "team/pod") {
		t.Errorf("functions are taken away that a container has: %v", err)
	}
	if err := m.Unreserve("key"); err != nil {
		t.Fatal(err)
	}
	end := m.going.begin([]pci.Address{card, one})
	if _, err := m.Take(t.Context(), want, admit); !errors.Is(err, claims.ErrBusy) {
		t.Errorf("a function is claimed that is being taken away: %v", err)
	}
	end()
	if _, err := m.Take(t.Context(), want, admit); err != nil {
		t.Errorf("afterwards: %v", err)
	}
}
