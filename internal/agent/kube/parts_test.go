package kube

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/fstest"
	"testing/synctest"
	"time"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/agent"
	"github.com/divvy-gpu/divvy/internal/agent/health"
	"github.com/divvy-gpu/divvy/internal/agentconfig"
	"github.com/divvy-gpu/divvy/internal/alloc"
	"github.com/divvy-gpu/divvy/internal/alloc/layouts"
	"github.com/divvy-gpu/divvy/internal/backend"
	"github.com/divvy-gpu/divvy/internal/pluginfile"
)

// layout is how GPUs are divided, which a test changes.
type layout struct {
	mu      sync.Mutex
	of      map[string]backend.Division
	changed chan struct{}
}

func (l *layout) get() (map[string]backend.Division, <-chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return maps.Clone(l.of), l.changed
}

// set divides a GPU into instances of these profiles, each as "profile uuid", one memory slice apart.
func (l *layout) set(gpu string, instances ...[2]string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	d := backend.Division{On: true, Profiles: []alloc.Profile{{Name: "1g.10gb", Takes: layouts.Amounts{layouts.ComputeSlices: 1}}}}
	for i, one := range instances {
		d.Parts = append(d.Parts, backend.Part{Instance: backend.Instance{UUID: one[1], Parent: gpu, Profile: one[0], Start: i, Size: 1, Bytes: 10 << 30, GPUInstance: 7 + i}})
	}
	l.of[gpu] = d
	close(l.changed)
	l.changed = make(chan struct{})
}

// add adds an instance to a GPU.
func (l *layout) add(gpu string, one backend.Part) {
	l.mu.Lock()
	defer l.mu.Unlock()
	d := l.of[gpu]
	d.Parts = append(slices.Clone(d.Parts), one)
	l.of[gpu] = d
	close(l.changed)
	l.changed = make(chan struct{})
}

func newLayout() *layout {
	return &layout{of: map[string]backend.Division{}, changed: make(chan struct{})}
}

func stated(strategy, sharing string) *fstest.MapFile {
	return &fstest.MapFile{Data: fmt.Appendf(nil, "{version: v1, flags: {migStrategy: %s}%s}", strategy, sharing)}
}

// lab is a policy over a layout, which runs until the test ends.
type lab struct {
	*policy
	t    *testing.T
	used map[string]bool
	told chan string
}

func runPolicy(t *testing.T, l *layout, node *chooser, files fstest.MapFS) *lab {
	t.Helper()
	b := &lab{policy: testPolicy(node, files), t: t, told: make(chan string, 10)}
	var mu sync.Mutex
	b.divisions = l.get
	b.policy.used = func() map[string]bool {
		mu.Lock()
		defer mu.Unlock()
		return maps.Clone(b.used)
	}
	b.policy.told = func(reason, text string) { b.told <- reason + ": " + text }
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- b.run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return b
}

func (b *lab) expect(when, want string) {
	b.t.Helper()
	synctest.Wait()
	if got, _ := b.units(nil); brief(got) != want {
		b.t.Errorf("%s: %s, not %s", when, brief(got), want)
	}
}

// Instances come and go without the label being read again; one that is gone while it has a share is faulty until that
// ends.
func TestUnitsOfInstances(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLayout()
		l.set("A", [2]string{"1g.10gb", "MIG-1"}, [2]string{"3g.40gb", "MIG-2"})
		b := runPolicy(t, l, &chooser{}, fstest.MapFS{"c": stated("mixed", ", sharing: {timeSlicing: {resources: [{name: mig-1g.10gb, replicas: 2}]}}")})
		b.expect("mixed", "mig-1g.10gb MIG-1::0, mig-1g.10gb MIG-1::1, mig-3g.40gb MIG-2, gpu B")
		units, _ := b.units(map[string]health.Fault{"A": {Reason: health.MIGMode}})
		if want := (v1alpha1.Replica{UUID: "A", Instance: "MIG-1", Profile: "1g.10gb", Memory: 10 << 30, Of: 2, Number: 1, Backend: "timeslice"}); units[1].Replica != want || units[1].Faulty {
			t.Errorf("%+v, not %+v", units[1], want)
		}
		if units, _ = b.units(map[string]health.Fault{"A": {Reason: "xid-79"}}); !units[0].Faulty || units[3].Faulty {
			t.Errorf("a fault of the GPU gives %s", brief(units))
		}
		l.add("A", backend.Part{Instance: backend.Instance{UUID: "MIG-8", Profile: "1g.10gb", Start: 6}, Origin: backend.OriginShare})
		l.add("A", backend.Part{Instance: backend.Instance{UUID: "MIG-9", Profile: "1g.10gb", Start: 7}, Half: "no compute instance"})
		b.expect("a share's own instance, and half of one", "mig-1g.10gb MIG-1::0, mig-1g.10gb MIG-1::1, mig-3g.40gb MIG-2, gpu B")
		b.used = map[string]bool{place("A", 1, true): true}
		l.set("A", [2]string{"1g.10gb", "MIG-1"})
		b.expect("gone and used", "mig-1g.10gb MIG-1::0, mig-1g.10gb MIG-1::1, mig-3g.40gb MIG-2 faulty, gpu B")
		b.used = nil
		time.Sleep(2 * freeInterval)
		b.expect("gone", "mig-1g.10gb MIG-1::0, mig-1g.10gb MIG-1::1, gpu B")
		l.set("B", [2]string{"1g.10gb+me", "MIG-3"})
		b.expect("another GPU", "mig-1g.10gb MIG-1::0, mig-1g.10gb MIG-1::1, mig-1g.10gb.me MIG-3")
		given, _ := b.forms()
		if len(given) > 0 {
			t.Errorf("GPUs in MIG mode are given the forms %v", given)
		}
	})
}

// A strategy that the node does not satisfy is an event, and what was in force stays, but for what is gone.
func TestStrategyThatDoesNotFit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLayout()
		l.set("A", [2]string{"1g.10gb", "MIG-1"})
		node := &chooser{}
		b := runPolicy(t, l, node, fstest.MapFS{"default": stated("single", ""), "none": stated("none", "")})
		b.expect("beside a GPU that is not in MIG mode", "")
		if got := <-b.told; got != "UnsatisfiedMIGStrategy: configuration default: flags.migStrategy single: GPU 0 is in MIG mode, and GPU 1 is not: divide all GPUs of the node into instances of one profile, or use mixed" {
			t.Errorf("the event is %q", got)
		}
		l.set("B", [2]string{"1g.10gb", "MIG-2"}, [2]string{"1g.10gb", "MIG-3"})
		b.expect("all of one profile", "gpu MIG-1, gpu MIG-2, gpu MIG-3")
		l.set("B", [2]string{"1g.10gb", "MIG-2"}, [2]string{"3g.40gb", "MIG-4"})
		b.expect("two profiles", "gpu MIG-1, gpu MIG-2, gpu MIG-3 faulty")
		if got := <-b.told; got != "UnsatisfiedMIGStrategy: configuration default: flags.migStrategy single: there are instances of profiles 1g.10gb and 3g.40gb: divide all GPUs of the node into instances of one profile, or use mixed; configuration default stays in force" {
			t.Errorf("the event is %q", got)
		}
		node.set("none", nil)
		time.Sleep(labelInterval)
		b.expect("none", "")
	})
}

// What an instance's share, or a GPU's, takes is known by its place.
func TestPlaces(t *testing.T) {
	used := placesOf([]agent.Tenancy{{Shares: []agent.TenancyShare{{UUID: "A", Instance: &agent.TenancyInstance{Profile: "1g.10gb", Start: 4}}, {UUID: "B"}}}})
	if want := map[string]bool{place("A", 4, true): true, place("B", 0, false): true}; !maps.Equal(used, want) {
		t.Errorf("%v, not %v", used, want)
	}
}

// The agent's form of a GPU in MIG mode goes before the configuration's.
func TestFormsOfGPUsInMIGMode(t *testing.T) {
	got := chosenOver(map[string]agentconfig.Form{"A": {Backend: "mig"}, "B": {Backend: "slice"}}, map[string]agentconfig.Form{"A": {Backend: "slice"}, "B": {Backend: "mps"}})
	if want := map[string]agentconfig.Form{"A": {Backend: "mig"}, "B": {Backend: "mps"}}; !maps.Equal(got, want) {
		t.Errorf("%v, not %v", got, want)
	}
}

// dividing is an agent whose GPUs are divided.
type dividing map[string]backend.Division

func (d dividing) Division(uuid string) (backend.Division, string, <-chan struct{}) {
	return d[uuid], "", make(chan struct{})
}

func TestDivisionsOfANode(t *testing.T) {
	from := dividing{"A": {On: true}, "C": {On: true}}
	found, changed := divisionsOf(from, []pluginfile.GPU{{UUID: "A"}, {UUID: "B"}})()
	if !found["A"].On || found["B"].On || len(found) != 2 || changed == nil {
		t.Errorf("%v, %v", found, changed)
	}
}

// Of shares by slots that are left, the names are kept that they may have.
func TestReplicasLeft(t *testing.T) {
	at := &agent.TenancyInstance{Profile: "1g.10gb+me"}
	all := []agent.Tenancy{
		{Key: agent.PodKey("u", "a"), Shares: []agent.TenancyShare{{UUID: "A", Instance: at, Config: v1alpha1.ShareConfig{Backend: "mig"}}}},
		{Key: "claim", Shares: []agent.TenancyShare{{UUID: "A", Instance: &agent.TenancyInstance{Profile: "3g.40gb"}}}},
	}
	if got := strings.Join(replicasLeft(all), " "); got != "nvidia.com/gpu nvidia.com/gpu.shared nvidia.com/mig-1g.10gb.me" {
		t.Error(got)
	}
	all[0].Shares[0].Config.Backend = "mps"
	if got := strings.Join(replicasLeft(all), " "); got != "nvidia.com/gpu nvidia.com/gpu.shared nvidia.com/mig-1g.10gb.me nvidia.com/mig-1g.10gb.me.shared" {
		t.Error(got)
	}
}
