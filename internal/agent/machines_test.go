package agent

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/agent/control"
	"github.com/divvy-gpu/divvy/internal/backend"
	"github.com/divvy-gpu/divvy/internal/nvml"
	"github.com/divvy-gpu/divvy/internal/pci"
	"github.com/divvy-gpu/divvy/internal/vm/claims"
)

// ledgerOf is a ledger of devices that outlives agents.
type ledgerOf struct {
	mu    sync.Mutex
	all   []claims.Claim
	group []pci.Address // that goes with every device
	fail  error
	left  []string // what others changed of each device
	again bool     // whether what a claim has already is given again
	lost  error    // why not all are known
}

func (l *ledgerOf) Take(_ context.Context, w claims.Want, admit func([]pci.Address) error) (claims.Claim, error) {
	members := append([]pci.Address{w.Device}, l.group...)
	all, _ := l.List()
	if at := slices.IndexFunc(all, func(c claims.Claim) bool { return l.again && c.Name == w.Name }); at >= 0 {
		return all[at], nil
	}
	if err := admit(members); err != nil {
		return claims.Claim{}, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.fail != nil {
		return claims.Claim{}, l.fail
	}
	c := claims.Claim{Want: w, Given: claims.Given{Group: 1, Members: members}, Times: claims.Times{Phase: claims.Held}}
	l.all = append(l.all, c)
	return c, nil
}

func (l *ledgerOf) Release(_ context.Context, name string) ([]string, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	at := slices.IndexFunc(l.all, func(c claims.Claim) bool { return c.Name == name })
	if at < 0 {
		return nil, claims.ErrUnknown
	}
	if l.fail != nil {
		return nil, l.fail
	}
	l.all = slices.Delete(l.all, at, at+1)
	return l.left, nil
}

func (l *ledgerOf) List() ([]claims.Claim, <-chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.all), nil
}

func (l *ledgerOf) Reserve(claims.Reserved) error { return nil }
func (l *ledgerOf) Unreserve(string) error        { return nil }
func (l *ledgerOf) Reserved() []claims.Reserved   { return nil }
func (l *ledgerOf) Limited() []pci.Address        { return nil }
func (l *ledgerOf) Unread() error                 { return l.lost }

func (l *ledgerOf) Has(function pci.Address) (h claims.Holder, taken bool) {
	all, _ := l.List()
	for _, c := range all {
		if at, virtual := l.Physical(c.Device); c.Has(function) || virtual && at == function {
			return claims.Holder{Owner: c.Name, Form: c.Form, Fault: c.Fault}, true
		}
	}
	return h, false
}

// onBus is a backend whose GPUs have addresses; gone is the index of one that the driver does not list, -1 for none.
type onBus struct {
	*pages
	gone int
}

func addressOf(index int) pci.Address { return pci.Address{Bus: uint8(0x3b + index)} }

func (b onBus) Discover(ctx context.Context) ([]backend.GPU, error) {
	all, err := b.pages.Discover(ctx)
	for i := range all {
		all[i].PCI = fmt.Sprintf("00000000:%02X:00.0", addressOf(all[i].Index).Bus)
	}
	return slices.DeleteFunc(all, func(g backend.GPU) bool { return g.Index == b.gone }), err
}

// machined is an agent that gives devices to virtual machines, and counts how often it let go of the driver.
func (n *node) machined(l *ledgerOf, gone int, letGo *int, returned *string) *running {
	n.t.Helper()
	c := n.settings(onBus{n.backend, gone})
	c.Machines = l
	c.LetGo = func(do func() error) error {
		*letGo++
		return do()
	}
	c.Returned = func(uuid string) { *returned = uuid }
	return n.startAs(c)
}

func passthrough(name, gpu string) control.TakeDeviceParams {
	return control.TakeDeviceParams{Name: name, GPU: gpu, Form: v1alpha1.BackendPassthrough, UID: 1000}
}

func says(err error, words ...string) bool {
	return err != nil && !slices.ContainsFunc(words, func(w string) bool { return !strings.Contains(err.Error(), w) })
}

// A GPU that a virtual machine has takes no shares, is no fault, and comes back; one with shares is not given.
func TestGPUOfAVirtualMachine(t *testing.T) {
	n, l := newNode(t), &ledgerOf{}
	var letGo int
	var returned string
	r := n.machined(l, -1, &letGo, &returned)
	onFirst := ask(gib)
	onFirst.Request.Name, onFirst.Request.Among = "train", []string{"0"}
	holder := n.asker(0)
	n.grant(r, holder, onFirst)
	if _, err := r.takeDevice(t.Context(), root, passthrough("vm", "0")); control.CodeOf(err) != control.CodeRefused || !says(err, "train") {
		t.Errorf("a GPU with a share: %v", err)
	}
	if letGo != 0 || len(l.all) != 0 {
		t.Errorf("for that the agent let go of the driver %d times, and there is %v", letGo, l.all)
	}

	d, err := r.takeDevice(t.Context(), root, passthrough("vm", "1"))
	if err != nil {
		t.Fatal(err)
	}
	if d.Device != addressOf(1) || d.GPU != otherID || d.Index == nil || *d.Index != 1 || letGo != 1 {
		t.Errorf("claimed %+v, let go of the driver %d times", d, letGo)
	}
	if r.IsAway(firstID) || !r.IsAway(otherID) {
		t.Error("the wrong GPU is away")
	}
	onSecond := ask(gib)
	onSecond.Request.Among = []string{"1"}
	if _, err := r.create(t.Context(), n.asker(0).peer, onSecond); control.CodeOf(err) != control.CodeRefused || !says(err, "claim vm", "virtual machine") {
		t.Errorf("a share of it: %v", err)
	}
	if _, err := r.takeDevice(t.Context(), root, passthrough("other", "1")); control.CodeOf(err) != control.CodeRefused || !says(err, "claim vm") {
		t.Errorf("a second claim: %v", err)
	}
	r.NoteFaults(map[string]string{})
	if list := n.list(r); len(list.Devices) != 1 || list.GPUs[1].Fault != "" || list.GPUs[1].Form != v1alpha1.BackendPassthrough {
		t.Errorf("listed %+v and %+v", list.Devices, list.GPUs[1])
	}
	l.all[0].Cluster = "team/claim"
	if _, err := r.releaseDevice(t.Context(), root, control.ReleaseDeviceParams{Name: "vm"}); control.CodeOf(err) != control.CodeDenied || !says(err, "team/claim") {
		t.Errorf("a cluster's claim released by hand: %v", err)
	}
	l.all[0].Cluster = ""
	if _, err := r.releaseDevice(t.Context(), root, control.ReleaseDeviceParams{Name: "vm"}); err != nil {
		t.Fatal(err)
	}
	n.grant(r, n.asker(0), onSecond)
	if letGo != 1 || returned != "" || r.IsAway(otherID) {
		t.Errorf("let go of the driver %d times, started again for %q", letGo, returned)
	}
}

// What goes wrong leaves the GPU to shares.
func TestGPUThatIsNotGiven(t *testing.T) {
	n, l := newNode(t), &ledgerOf{fail: errors.New("it is stuck")}
	var letGo int
	var returned string
	r := n.machined(l, -1, &letGo, &returned)
	if _, err := r.takeDevice(t.Context(), root, passthrough("vm", "0")); !says(err, "it is stuck") {
		t.Error(err)
	}
	l.fail, l.group = nil, []pci.Address{addressOf(1)}
	if _, err := r.takeDevice(t.Context(), root, passthrough("vm", "0")); !says(err, "GPU 1", "--also") {
		t.Errorf("another GPU in the group: %v", err)
	}
	onFirst := ask(gib)
	onFirst.Request.Among = []string{"0"}
	n.grant(r, n.asker(0), onFirst)
	named := passthrough("vm", "1")
	named.Also = []pci.Address{addressOf(0)}
	if _, err := r.takeDevice(t.Context(), root, named); control.CodeOf(err) != control.CodeRefused || !says(err, "GPU 0 has shares") {
		t.Errorf("a named GPU of the group with a share: %v", err)
	}
}

// A GPU that was away when the agent started comes back to one that starts again.
func TestGPUThatWasAway(t *testing.T) {
	n := newNode(t)
	c := claims.Claim{Want: claims.Want{Name: "vm", Form: v1alpha1.BackendPassthrough, Device: addressOf(1), GPU: otherID}, Times: claims.Times{Phase: claims.Held}}
	l := &ledgerOf{all: []claims.Claim{c}}
	var letGo int
	var returned string
	r := n.machined(l, 1, &letGo, &returned)
	if list := n.list(r); len(list.GPUs) != 1 || len(list.Devices) != 1 || list.Devices[0].Index != nil {
		t.Errorf("listed %+v with devices %+v", list.GPUs, list.Devices)
	}
	if err := r.ReleaseDevice(t.Context(), "vm"); err != nil || returned != otherID {
		t.Errorf("released: %v, started again for %q", err, returned)
	}
}

// Whichever of a claim's GPUs was away when the agent started is served again, also where the claim ends later than it was asked to.
func TestGPUsThatComeBack(t *testing.T) {
	for name, c := range map[string]struct {
		gone        int
		want        claims.Want
		late, there bool
		renewed     int
		returned    string
	}{
		"beside another device":         {gone: 1, want: claims.Want{Device: pci.Address{Bus: 9}, Beside: []string{otherID}}, returned: otherID},
		"beside a GPU that was there":   {gone: 1, want: claims.Want{Device: addressOf(0), GPU: firstID, Beside: []string{otherID}}, returned: otherID, renewed: 1},
		"late":                          {gone: 1, want: claims.Want{Device: addressOf(1), GPU: otherID}, late: true, returned: otherID},
		"late, and the driver knew it":  {gone: -1, want: claims.Want{Device: addressOf(1), GPU: otherID}, late: true, renewed: 1},
		"late, and it is not there yet": {gone: 1, want: claims.Want{Device: addressOf(1), GPU: otherID}, late: true, there: true},
		"a part of a GPU":               {gone: -1, want: claims.Want{Device: addressOf(1), GPU: otherID, Form: v1alpha1.BackendVGPU}, late: true},
	} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t)
			c.want.Name = "vm"
			if c.want.Form == "" {
				c.want.Form = v1alpha1.BackendPassthrough
			}
			claim := claims.Claim{Want: c.want, Times: claims.Times{Phase: claims.Held}}
			l := &ledgerOf{all: []claims.Claim{claim}}
			var renewed int
			var returned string
			settings := n.settings(onBus{n.backend, c.gone})
			settings.Machines = l
			settings.Renew = func() { renewed++ }
			settings.Returned = func(uuid string) { returned = uuid }
			r := n.startAs(settings)
			if c.late {
				if !c.there {
					l.all = nil
				}
				r.TellMachine(claim, "its device was put back")
			} else if err := r.ReleaseDevice(t.Context(), "vm"); err != nil {
				t.Error(err)
			}
			if returned != c.returned || renewed != c.renewed {
				t.Errorf("started again for %q, looked at the driver anew %d times; want %q, %d", returned, renewed, c.returned, c.renewed)
			}
		})
	}
}

// A share without processes keeps its GPU from virtual machines, whole or in part, and is named.
func TestGPUWithAnIdleShare(t *testing.T) {
	n, l := newNode(t), &ledgerOf{}
	c := n.settings(onBus{n.backend, -1})
	c.Machines, c.Devices = l, newDevices()
	r := n.startAs(c)
	a := n.asker(0)
	n.grant(r, a, lasting("train", gib))
	a.kill()
	a.hangUp()
	for _, form := range []v1alpha1.Backend{v1alpha1.BackendPassthrough, v1alpha1.BackendVGPU} {
		p := passthrough("vm", "0")
		if p.Form = form; form == v1alpha1.BackendVGPU {
			p.Type = "nvidia-471"
		}
		if _, err := r.takeDevice(t.Context(), root, p); control.CodeOf(err) != control.CodeRefused || !says(err, "GPU 0 has shares: ", "train", "end them first") || says(err, "--wait") {
			t.Errorf("%s: %v", form, err)
		}
	}
	if _, err := r.stop(t.Context(), root, control.StopParams{Tenant: "train", Lasting: true}); err != nil {
		t.Fatal(err)
	}
	named := passthrough("vm", "1")
	named.Also = []pci.Address{addressOf(0), {Bus: 9}}
	if d, err := r.takeDevice(t.Context(), root, named); err != nil || d.GPU != otherID || !slices.Equal(d.Beside, []string{firstID}) {
		t.Errorf("after its end: %+v, %v", d, err)
	}
	// The ledger has it no more, when it is asked for what it has: the GPU was not closed to shares for that.
	if _, err := r.takeDevice(t.Context(), root, named); control.CodeOf(err) != control.CodeRefused || !says(err, "released just now: ask again") {
		t.Errorf("a claim that was released meanwhile: %v", err)
	}
}

// Parts of one GPU go beside each other; a whole one does not go beside parts, nor a part beside whole ones.
func TestPartsOfAGPU(t *testing.T) {
	n, l := newNode(t), &ledgerOf{}
	var letGo int
	var returned string
	r := n.machined(l, -1, &letGo, &returned)
	part := func(name, gpu string) control.TakeDeviceParams {
		p := passthrough(name, gpu)
		p.Form, p.Type = v1alpha1.BackendVGPU, "nvidia-471"
		return p
	}
	for _, name := range []string{"one", "two"} {
		if _, err := r.takeDevice(t.Context(), root, part(name, "0")); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	if letGo != 0 || r.IsAway(firstID) {
		t.Errorf("for a part the agent let go of the driver %d times, away %v", letGo, r.IsAway(firstID))
	}
	if _, err := r.takeDevice(t.Context(), root, passthrough("whole", "0")); !says(err, "claim one has it") {
		t.Errorf("the whole GPU: %v", err)
	}
	if _, err := r.takeDevice(t.Context(), root, passthrough("whole", "1")); err != nil {
		t.Fatal(err)
	}
	if _, err := r.takeDevice(t.Context(), root, part("three", "1")); !says(err, "claim whole has it") {
		t.Errorf("a part of a whole one: %v", err)
	}
}

// Who may not claim, and what cannot be claimed, is told why.
func TestDevicesThatNobodyGets(t *testing.T) {
	n := newNode(t)
	var letGo int
	var returned string
	r := n.machined(&ledgerOf{}, -1, &letGo, &returned)
	for name, c := range map[string]struct {
		peer *control.Peer
		p    control.TakeDeviceParams
		code control.Code
		says string
	}{
		"another user":        {n.asker(1000).peer, passthrough("vm", "0"), control.CodeDenied, "--user"},
		"no device":           {root, passthrough("vm", ""), control.CodeInvalid, "name one device"},
		"no such GPU":         {root, passthrough("vm", "7"), control.CodeNotFound, "7"},
		"a share's form":      {root, control.TakeDeviceParams{GPU: "0", Form: v1alpha1.BackendSlice}, control.CodeInvalid, "passthrough, vf or vgpu"},
		"a control character": {root, passthrough("a\x1b[2J", "0"), control.CodeInvalid, "lower-case letters"},
	} {
		if _, err := r.takeDevice(t.Context(), c.peer, c.p); control.CodeOf(err) != c.code || !says(err, c.says) || says(err, "\x1b") {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := r.releaseDevice(t.Context(), root, control.ReleaseDeviceParams{Name: "none"}); control.CodeOf(err) != control.CodeNotFound {
		t.Errorf("no such claim: %v", err)
	}

	settings := n.settings(n.backend)
	settings.Checkpoint += ".simulated"
	settings.Info.Simgpu = "/run/divvy/simgpu/a"
	simulated := n.startAs(settings)
	if _, err := simulated.takeDevice(t.Context(), root, passthrough("vm", "0")); control.CodeOf(err) != control.CodeInvalid || !says(err, "simulated machine", "no VFIO") {
		t.Errorf("a simulated machine: %v", err)
	}
	if _, err := simulated.devices(t.Context(), root, struct{}{}); err != nil {
		t.Errorf("list those of a simulated machine: %v", err)
	}
	settings.Checkpoint += ".own"
	settings.Info.Simgpu = ""
	if _, err := n.startAs(settings).takeDevice(t.Context(), root, passthrough("vm", "0")); control.CodeOf(err) != control.CodeInvalid || !says(err, "system agent") {
		t.Errorf("an own agent: %v", err)
	}
}

// A GPU about which the driver does not answer keeps no device of another claim from coming back, and whoever asks then finds that
// one anew.
func TestReleaseWaitsForNoGPU(t *testing.T) {
	n := newNode(t)
	c := claims.Claim{Want: claims.Want{Name: "vm", Form: v1alpha1.BackendPassthrough, Device: addressOf(1), GPU: otherID}, Given: claims.Given{Members: []pci.Address{addressOf(1)}}, Times: claims.Times{Phase: claims.Held}}
	l := &ledgerOf{all: []claims.Claim{c}}
	settings := n.settings(onBus{n.backend, -1})
	settings.Machines = l
	settings.LetGo = func(func() error) error { return nvml.ErrSilent }
	there := -1
	settings.Renew = func() {
		all, _ := l.List()
		there = len(all)
	}
	if _, err := n.startAs(settings).releaseDevice(t.Context(), root, control.ReleaseDeviceParams{Name: "vm"}); err != nil || len(l.all) != 0 || there != 0 {
		t.Errorf("released: %v; there is %+v, and %d claims were left when GPUs were to be found anew", err, l.all, there)
	}
}
