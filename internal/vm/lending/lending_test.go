package lending

import (
	"fmt"
	"math/rand"
	"slices"
	"strings"
	"testing"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/agent/dra/pool"
	"github.com/divvy-gpu/divvy/internal/agentconfig"
	"github.com/divvy-gpu/divvy/internal/pci"
	"github.com/divvy-gpu/divvy/internal/vm/facts"
	"github.com/divvy-gpu/divvy/internal/vm/vmtest"
)

func address(text string) pci.Address {
	a, err := pci.ParseAddress(text)
	if err != nil {
		panic(err)
	}
	return a
}

// card is a GPU on bus 3b with virtual functions.
func card(functions int) *facts.Host {
	h := &facts.Host{Devices: []facts.Device{
		{Device: pci.Device{Address: address("0000:3a:00.0"), Class: 0x060400, Vendor: 0x8086}, Group: 7},
		{Device: pci.Device{Address: address("0000:3b:00.0"), Class: 0x030200, Vendor: 0x10de, ID: 0x2235}, Group: 8, Model: "NVIDIA A40", VFs: functions},
	}}
	for n := range functions {
		at := address("0000:3b:00.0")
		at.Device, at.Function = uint8((n+4)/8), uint8((n+4)%8)
		h.Devices = append(h.Devices, facts.Device{
			Device: pci.Device{Address: at, Class: 0x030200, Vendor: 0x10de, ID: 0x2235, Virtual: true}, Parent: address("0000:3b:00.0"), Group: 20 + n,
		})
	}
	return h
}

func lendings(form v1alpha1.Backend) []agentconfig.Lending {
	return []agentconfig.Lending{{Form: form, Address: address("0000:3b:00.0"), Type: "471"}}
}

func names(functions []pool.Function) string {
	var all []string
	for _, f := range functions {
		all = append(all, f.Name())
	}
	return strings.Join(all, " ")
}

func had(names ...string) State {
	s := State{Given: map[string]bool{}}
	for _, name := range names {
		s.Given[name] = true
	}
	return s
}

func TestWhatIsOffered(t *testing.T) {
	every := []agentconfig.Lending{{Form: v1alpha1.BackendPassthrough, Every: true}, {Form: v1alpha1.BackendVF, Address: address("0000:3b:00.0")}}
	for name, c := range map[string]struct {
		host     *facts.Host
		lendings []agentconfig.Lending
		want     string
	}{
		"nothing":                       {card(2), nil, ""},
		"the card, not its functions":   {card(2), lendings(v1alpha1.BackendPassthrough), "passthrough-0000-3b-00-0"},
		"its functions, not the card":   {card(2), lendings(v1alpha1.BackendVF), "vf-0000-3b-00-4 vf-0000-3b-00-5"},
		"every GPU, and no bridge":      {card(0), every[:1], "passthrough-0000-3b-00-0"},
		"every GPU but the one named":   {card(1), every, "vf-0000-3b-00-4"},
		"a card that is not there":      {&facts.Host{}, lendings(v1alpha1.BackendPassthrough), ""},
		"vGPUs of a card without any":   {card(2), lendings(v1alpha1.BackendVGPU), ""},
		"functions of a card with none": {card(0), lendings(v1alpha1.BackendVF), ""},
	} {
		if got := names(Devices(c.host, c.lendings, State{})); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
	f := Devices(card(1), lendings(v1alpha1.BackendVF), State{
		Refused: func(f pool.Function) string { return map[bool]string{true: "held"}[f.Form == pool.VF] },
		Locate:  func(d pci.Device) pool.Location { return pool.Location{PCI: d.Address.String(), NUMANode: 1} },
	})[0]
	if f.Parent != address("0000:3b:00.0") || f.Group != 20 || f.Product != 0x2235 || f.Fault == nil || f.Fault.Reason != "held" || f.Location.NUMANode != 1 {
		t.Errorf("%+v", f)
	}
	// What a virtual machine has is not refused: it is bound already.
	state := had("vf-0000-3b-00-4")
	state.Refused = func(pool.Function) string { return "held" }
	if f := Devices(card(1), lendings(v1alpha1.BackendVF), state)[0]; f.Fault != nil {
		t.Errorf("%+v", f)
	}
}

// A mediated device keeps its number while others come and go.
func TestMediatedDevices(t *testing.T) {
	for _, c := range []struct {
		left     int
		given    State
		replicas int
		want     string
	}{
		{3, had(), 0, "0 1 2"},
		{0, had(), 0, ""},
		{2, had("vgpu-0000-3b-00-0-471-1"), 0, "0 1 2"},
		{0, had("vgpu-0000-3b-00-0-471-5"), 0, "5"},
		{3, had("vgpu-0000-3b-00-0-471-5"), 2, "0 5"},
		{3, had("vgpu-0000-3b-00-0-471-5", "vgpu-0000-3b-00-0-471-6"), 1, "5"},
		{3, had("vgpu-0000-3b-00-0-472-0"), 0, "0 1 2"},
		{1 << 20, had(), 0, ""},
	} {
		h := card(0)
		h.Devices[1].VGPU = &facts.VGPU{Interface: "mdev", Types: []facts.VGPUType{{ID: "nvidia-470", Available: 9}, {ID: "nvidia-471", Name: "GRID A40-8Q", Available: c.left}}}
		o := lendings(v1alpha1.BackendVGPU)
		o[0].Replicas = c.replicas
		var numbers []string
		for _, f := range Devices(h, o, c.given) {
			if f.Form != pool.VGPU || !f.Mediated || f.Group != pool.NoGroup || f.TypeName != "GRID A40-8Q" || f.Parent != (pci.Address{}) {
				t.Fatalf("%+v", f)
			}
			numbers = append(numbers, fmt.Sprint(f.Number))
		}
		if got := strings.Join(numbers, " "); got != c.want && (c.want != "" || c.left < most || len(numbers) != most) {
			t.Errorf("%d left of %v: %s, want %s", c.left, c.given, got, c.want)
		}
	}
}

// A function with a type that somebody else gave it is theirs, and none is offered twice.
func TestTypedFunctions(t *testing.T) {
	h := card(4)
	offer := []facts.VGPUType{{ID: "471", Name: "NVIDIA A40-8Q", Available: -1}}
	for i, v := range []facts.VGPU{{Current: "471"}, {Current: "471", Types: offer}, {Types: offer}, {}} {
		v.Interface = "vendor-vfio"
		h.Devices[2+i].VGPU = &v
	}
	ours := had("vgpu-0000-3b-00-4-471")
	if got := names(Devices(h, lendings(v1alpha1.BackendVGPU), ours)); got != "vgpu-0000-3b-00-4-471 vgpu-0000-3b-00-6-471" {
		t.Errorf("offered are %s", got)
	}
	o := lendings(v1alpha1.BackendVGPU)
	o[0].Replicas = 1
	if got := names(Devices(h, o, ours)); got != "vgpu-0000-3b-00-4-471" {
		t.Errorf("of one replica: %s", got)
	}
}

// Whatever a host tells, the pool takes what is offered, each device is there once, and what is given stays.
func TestPoolTakesWhatIsOffered(t *testing.T) {
	for seed := range int64(300) {
		draw := rand.New(rand.NewSource(seed))
		h := card(draw.Intn(20))
		for i := range h.Devices[1:] {
			if draw.Intn(2) == 0 {
				h.Devices[1+i].VGPU = &facts.VGPU{
					Interface: []string{"mdev", "vendor-vfio"}[draw.Intn(2)], Current: []string{"", "471", "3"}[draw.Intn(3)],
					Types: []facts.VGPUType{{ID: "nvidia-471", Name: strings.Repeat("x", draw.Intn(200)), Available: draw.Intn(9) - 1}},
				}
			}
			h.Devices[1+i].Group = draw.Intn(6) - 1
		}
		o := lendings([]v1alpha1.Backend{v1alpha1.BackendPassthrough, v1alpha1.BackendVF, v1alpha1.BackendVGPU}[draw.Intn(3)])
		all := Devices(h, o, State{})
		if _, err := pool.Functions(all); err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		given := had()
		for _, f := range all {
			if given.Given[f.Name()] {
				t.Errorf("seed %d: %s is offered twice", seed, f.Name())
			}
			given.Given[f.Name()] = true
		}
		for i := range h.Devices { // all of it is given, and nothing is left
			if v := h.Devices[i].VGPU; v != nil {
				for k := range v.Types {
					v.Types[k].Available = 0
				}
			}
		}
		if again := names(Devices(h, o, given)); again != names(all) {
			t.Errorf("seed %d: %s became %s", seed, names(all), again)
		}
	}
}

// Recorded hosts are read as a real one is.
func TestRecordedHosts(t *testing.T) {
	for name, want := range map[string]string{
		"a100": "passthrough-0000-3d-00-0", "mi210": "passthrough-0000-23-00-0", "geforce": "passthrough-0000-01-00-0",
	} {
		host := vmtest.Model(t, "../../..", name)
		got := Devices(host, []agentconfig.Lending{{Form: v1alpha1.BackendPassthrough, Every: true}}, State{})
		if !slices.ContainsFunc(got, func(f pool.Function) bool { return f.Name() == want && f.Group >= 0 }) {
			t.Errorf("%s lendings %s", name, names(got))
		}
	}
}
