package vgpu_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/divvy-gpu/divvy/test/bench/figure"
	"github.com/divvy-gpu/divvy/test/vm/guest"
	"github.com/divvy-gpu/divvy/test/vm/machine"
)

// othersInstances are the GPU instances that others have made, by their bits; they make none and take none away meanwhile.
const othersInstances = 0xff << 32

// site is a GPU on which vGPUs are made.
type site struct {
	gpu       guest.Function
	functions []guest.Function // none for mediated devices
	kinds     []string         // as owners ask for them; the first ones more often
	foreign   []string         // as others write them
	backed    bool
}

// place is a vGPU: the address of a virtual function, or the UUID of a mediated device. What is there is its type.
type world struct {
	t       testing.TB
	r       *rand.Rand
	agent   *agent
	sites   []site
	owners  int
	claims  map[string]string // places by owner, as the agent said
	made    map[string]string // types of places that the agent made
	unsure  map[string]bool   // owners of whom the agent died, or who are being released
	foreign map[string]string // types of places that others made
	held    map[string]func() // places that a virtual machine has open
	numbers int

	ops, kills, races, given, refused, aimed      int
	writers                                       int // that were killed
	overlaps, cleared, removed, lost, left, amiss int
}

// there is what sysfs has, by place.
func (w *world) there() map[string]string {
	found := map[string]string{}
	for _, uuid := range mdevs() {
		kind, _ := os.Readlink("/sys/bus/mdev/devices/" + uuid + "/mdev_type")
		found[uuid] = kind[strings.LastIndexByte(kind, '/')+1:]
	}
	for _, s := range w.sites {
		for _, f := range s.functions {
			if kind := f.Read("nvidia/current_vgpu_type"); kind != "0" {
				found[string(f)] = kind + " " + f.Read("nvidia/gpu_instance_id")
			}
		}
	}
	return found
}

// judge compares what there is with what there should be. While no agent lives, what it made may be on the way.
func (w *world) judge(lives bool) {
	found := w.there()
	for place, kind := range w.foreign {
		if found[place] != kind {
			w.removed++
			w.t.Errorf("op %d: %s of others has %q, want %q", w.ops, place, found[place], kind)
			delete(w.foreign, place)
		}
	}
	for place := range w.held {
		if found[place] == "" {
			w.cleared++
			w.t.Errorf("op %d: %s was cleared while it is open", w.ops, place)
		}
	}
	if !lives {
		return
	}
	expected := maps.Clone(w.foreign)
	for owner, place := range w.claims {
		if _, twice := expected[place]; twice {
			w.overlaps++
			w.t.Errorf("op %d: %s of %s is somebody else's as well", w.ops, place, owner)
		}
		expected[place] = w.made[place]
		if found[place] != w.made[place] {
			w.lost++
			w.t.Errorf("op %d: %s of %s has %q, want %q", w.ops, place, owner, found[place], w.made[place])
		}
	}
	for place, kind := range found {
		if _, known := expected[place]; !known {
			w.left++
			w.t.Errorf("op %d: %s has %s and is nobody's", w.ops, place, kind)
		}
	}
	w.judgeInstances()
}

// note takes what the agent says of an owner's vGPU.
func (w *world) note(owner string, h had) {
	place := h.UUID
	if place == "" {
		place = h.Function
	}
	if w.claims[owner] == "" {
		w.made[place] = w.there()[place]
		if kind, _, _ := strings.Cut(w.made[place], " "); kind != h.Type && h.Whole {
			w.amiss++
			w.t.Errorf("op %d: %s has %q, and the agent says %+v", w.ops, owner, w.made[place], h)
		}
	}
	for other, at := range w.claims {
		if at == place && other != owner {
			w.overlaps++
			w.t.Errorf("op %d: %s is given to %s and %s", w.ops, place, owner, other)
		}
	}
	w.claims[owner] = place
}

// heard takes what an agent says of all owners.
func (w *world) heard(r reply) {
	for owner, h := range r.Has {
		if place := w.claims[owner]; place != "" && place != h.UUID && place != h.Function {
			w.amiss++
			w.t.Errorf("op %d: %s has %+v, want %s", w.ops, owner, h, place)
		}
		w.note(owner, h)
	}
	for owner, place := range w.claims {
		if _, has := r.Has[owner]; !has {
			if !w.unsure[owner] {
				w.lost++
				w.t.Errorf("op %d: %s of %s is in the book no more", w.ops, place, owner)
			}
			delete(w.claims, owner)
		}
	}
}

// recede takes one of others' vGPUs away.
func (w *world) recede() {
	places := slices.Sorted(maps.Keys(w.foreign))
	if len(places) == 0 {
		return
	}
	place := places[w.r.IntN(len(places))]
	delete(w.foreign, place)
	var err error
	if f := guest.Function(place); len(place) == len(machine.RootedNVMe) {
		err = f.Write("nvidia/current_vgpu_type", "0")
		if id := f.Read("nvidia/gpu_instance_id"); err == nil && id != "4294967295" {
			err = f.Write("nvidia/gpu_instance_id", "4294967295")
		}
	} else {
		err = guest.Write("/sys/bus/mdev/devices/"+place+"/remove", "1")
	}
	if err != nil {
		w.t.Fatalf("op %d: take %s of others away: %v", w.ops, place, err)
	}
}

// claim asks for a vGPU, sometimes while others ask for one as well.
func (w *world) claim() {
	s := w.sites[w.r.IntN(len(w.sites))]
	w.owners++
	o := order{Do: "claim", Owner: fmt.Sprint("owner", w.owners), GPU: string(s.gpu), Type: s.kinds[w.r.IntN(w.r.IntN(len(s.kinds))+1)]}
	done := make(chan struct{})
	close(done)
	if w.r.IntN(4) == 0 && !s.backed {
		w.races++
		done = make(chan struct{})
		race := *w
		race.foreign, race.r = map[string]string{}, rand.New(rand.NewPCG(uint64(w.ops), 1)) //nolint:gosec // the same each time
		go func() {
			defer close(done)
			for range 3 {
				race.intrude(s)
			}
		}()
		defer func() { w.numbers += 3 }()
		r, lives := w.agent.ask(o)
		<-done
		maps.Copy(w.foreign, race.foreign)
		if lives {
			w.heard(r)
			w.answered(o, r)
		}
		return
	}
	if r, lives := w.ask(o); lives {
		w.answered(o, r)
	}
}

func (w *world) answered(o order, r reply) {
	_, has := r.Has[o.Owner]
	switch {
	case (r.Fault == "") != has:
		w.amiss++
		w.t.Errorf("op %d: %+v: %+v", w.ops, o, r)
	case r.Fault != "":
		w.refused++
	default:
		w.given++
	}
}

// owner is one who has a vGPU, or "".
func (w *world) owner() string {
	owners := slices.Sorted(maps.Keys(w.claims))
	if len(owners) == 0 {
		return ""
	}
	return owners[w.r.IntN(len(owners))]
}

func (w *world) release(owner string) {
	place := w.claims[owner]
	w.unsure[owner] = true
	r, lives := w.ask(order{Do: "release", Owner: owner})
	if !lives {
		return
	}
	if r.killed && w.held[place] == nil { // half of it may be done
		w.imitate(place)
		w.judge(false)
		r = w.agent.must(order{Do: "release", Owner: owner})
		w.heard(r)
	}
	open := w.held[place] != nil
	if r.Open != open || r.Open != (r.Fault != "") {
		w.amiss++
		w.t.Errorf("op %d: release of %s at %s, open %t: %+v", w.ops, owner, place, open, r)
	}
	if h, has := r.Has[owner]; !has || h.Whole {
		delete(w.unsure, owner)
	}
}

// toggle has a virtual machine open or close what an owner has.
func (w *world) toggle(owner string) {
	place := w.claims[owner]
	if release := w.held[place]; release != nil {
		release()
		delete(w.held, place)
		return
	}
	f := guest.Function(place)
	if len(place) != len(machine.RootedNVMe) {
		f = guest.Function("../../mdev/devices/" + place)
	}
	w.held[place] = hold(w.t, f.Group())
}

func (w *world) op() {
	w.ops++
	owner := w.owner()
	switch n := w.r.IntN(20); {
	case len(w.foreign) > 4 && n%2 == 0: // or soon all would be theirs
		w.recede()
	case n < 8 || owner == "":
		w.claim()
	case n < 14:
		w.release(owner)
	case n < 17:
		w.toggle(owner)
	case n < 18:
		w.intrude(w.sites[w.r.IntN(len(w.sites))])
	default:
		w.recede()
	}
	w.judge(true)
}

// empty takes all away.
func (w *world) empty() {
	for place, release := range w.held {
		release()
		delete(w.held, place)
	}
	for _, owner := range slices.Sorted(maps.Keys(w.claims)) {
		w.agent.must(order{Do: "release", Owner: owner})
	}
	for len(w.foreign) > 0 {
		w.recede()
	}
	if found := w.there(); len(found) > 0 {
		w.left += len(found)
		w.t.Errorf("at the end there is %v", found)
	}
}

// Random creations, releases, deaths and foreign creations, on mediated devices, types of virtual functions, and those that are
// backed by GPU instances. sysfs judges, and a model that knows nothing but what it did and was told. DIVVY_LONG=vgpu makes 2,000
// operations, otherwise there are 200.
func TestRandom(t *testing.T) {
	guest.Require(t)
	operations := 200
	if os.Getenv("DIVVY_LONG") == "vgpu" {
		operations = 2000
	}
	w := &world{
		t: t, r: rand.New(rand.NewPCG(19, 3)), //nolint:gosec // the same operations each time
		claims: map[string]string{}, made: map[string]string{}, unsure: map[string]bool{}, foreign: map[string]string{}, held: map[string]func(){},
	}
	w.sites = append(w.sites, site{gpu: mediatedGPU(t), kinds: []string{"A100-10C", "nvidia-471", "nvidia-470"}, foreign: []string{"nvidia-471"}})
	guest.Parameter(t, "mediated", false)
	card, functions := vendorGPU(t, machine.RootedCard, 7)
	w.sites = append(w.sites, site{gpu: card, functions: functions, kinds: []string{"471", "A100-10C", "472"}, foreign: []string{"471"}})
	nvme, functions := vendorGPU(t, machine.RootedNVMe, 2)
	w.sites = append(w.sites, site{gpu: nvme, functions: functions, kinds: []string{backed}, foreign: []string{"475"}, backed: true})
	if err := nvme.Write("double/instances", fmt.Sprint(uint64(othersInstances))); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = nvme.Write("double/instances", "0") })
	w.agent = newAgent(t)
	for range operations {
		if w.op(); t.Failed() {
			break
		}
	}
	if !t.Failed() {
		w.empty()
	}
	if got := nvme.Read("double/instances"); !t.Failed() && got != fmt.Sprint(uint64(othersInstances)) {
		t.Errorf("at the end there are the instances %s", got)
	}
	note := fmt.Sprintf("%d operations, %d deaths of the agent and %d of the process that writes, after which others made what it was to make %d times, %d with others at the same time; "+
		"%d claims given, %d refused; lost %d, left behind %d, answered wrongly %d",
		w.ops, w.kills, w.writers, w.aimed, w.races, w.given, w.refused, w.lost, w.left, w.amiss)
	for _, f := range []struct {
		word  string
		count int
	}{{"overlaps", w.overlaps}, {"cleared in use", w.cleared}, {"foreign removed", w.removed}} {
		figure.Tell(t, figure.Figure{ID: "vgpu.random", Case: f.word, Values: []float64{float64(f.count)}, Note: note})
	}
	if w.kills == 0 || w.writers == 0 || w.races == 0 || w.aimed < operations/50 || w.given < operations/20 {
		t.Errorf("nothing was killed, nobody came between, or hardly anything was made: %s", note)
	}
}
