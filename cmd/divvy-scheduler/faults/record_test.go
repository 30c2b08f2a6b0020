package faults

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/dynamic-resource-allocation/resourceclaim"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
)

// record is what the API had of pods and claims, revision by revision. Revisions are those of the whole cluster, so that they
// order what happened to pods and to claims. Anybody may call its methods.
type record struct {
	mutex sync.Mutex
	has   capacities
	// pods and claims are those that are there, by name.
	pods   map[string]*corev1.Pod
	claims map[string]*resourcev1.ResourceClaim
	// seen is the last revision of pods that was told of.
	seen int64
	// taken are the sums of what claims have of each device.
	taken map[string]map[resourcev1.QualifiedName]int64
	// lives are those of pods that got a node, states those of claims, until both were judged.
	lives  map[types.UID]*life
	states map[string][]state
	// wrong are the contradictions, revisions how many changes of claims were seen, gaps how often a watch could not go on
	// where it had ended.
	wrong           []string
	revisions, gaps int
	// bound counts the pods that got a node, moved is when the last one did.
	bound int
	moved time.Time
}

// life is that of a pod on its node: from one revision to another, 0 for a pod that is still there.
type life struct {
	name, node  string
	claims      []string
	bound, gone int64
}

// state is that of a claim from a revision on: which devices it has, and for whom.
type state struct {
	revision int64
	devices  string
	users    []types.UID
}

func newRecord(has capacities) *record {
	return &record{
		has: has, pods: map[string]*corev1.Pod{}, claims: map[string]*resourcev1.ResourceClaim{}, taken: map[string]map[resourcev1.QualifiedName]int64{},
		lives: map[types.UID]*life{}, states: map[string][]state{}, moved: time.Now(),
	}
}

func revisionOf(text string) int64 {
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return 0 // the checker finds a pod that was bound before its claim had devices
	}
	return n
}

// pod notes a change of a pod; gone tells that it is its last. A pod that got its node at an unknown revision has the latest
// that it can be, and one that went the earliest.
func (r *record) pod(p *corev1.Pod, revision int64, gone bool) {
	one := r.lives[p.UID]
	if one == nil && p.Spec.NodeName != "" && !gone {
		one = &life{name: p.Name, node: p.Spec.NodeName, bound: revision}
		for i := range p.Spec.ResourceClaims {
			if name, _, err := resourceclaim.Name(p, &p.Spec.ResourceClaims[i]); err == nil && name != nil {
				one.claims = append(one.claims, *name)
			}
		}
		r.lives[p.UID] = one
		r.bound++
		r.moved = time.Now()
	}
	if gone {
		delete(r.pods, p.Name)
		if one != nil {
			one.gone = revision
		}
		return
	}
	r.pods[p.Name] = p
}

// claim notes a change of a claim, nil for one that is gone.
func (r *record) claim(name string, c *resourcev1.ResourceClaim, revision int64) {
	r.revisions++
	if before := r.claims[name]; before != nil {
		r.count(before, -1)
	}
	now := state{revision: revision}
	if c == nil {
		delete(r.claims, name)
	} else {
		r.claims[name] = c
		r.count(c, 1)
		if c.Status.Allocation != nil {
			for _, d := range c.Status.Allocation.Devices.Results {
				now.devices += d.Pool + "/" + d.Device + " "
			}
		}
		for _, user := range c.Status.ReservedFor {
			now.users = append(now.users, user.UID)
		}
	}
	r.states[name] = append(r.states[name], now)
	if c != nil {
		r.look(c, revision)
	}
}

// count adds what a claim has to the sums, or takes it off.
func (r *record) count(c *resourcev1.ResourceClaim, sign int64) {
	if c.Status.Allocation == nil {
		return
	}
	for _, d := range c.Status.Allocation.Devices.Results {
		device := d.Pool + "/" + d.Device
		if r.taken[device] == nil {
			r.taken[device] = map[resourcev1.QualifiedName]int64{}
		}
		for name, amount := range d.ConsumedCapacity {
			r.taken[device][name] += sign * amount.Value()
		}
	}
}

// look finds devices of a claim of which all claims together have more than there is.
func (r *record) look(c *resourcev1.ResourceClaim, revision int64) {
	if c.Status.Allocation == nil {
		return
	}
	for _, d := range c.Status.Allocation.Devices.Results {
		device := d.Pool + "/" + d.Device
		if r.has[device] == nil {
			r.wrong = append(r.wrong, fmt.Sprintf("revision %d: claim %s has %s, which nobody ever published", revision, c.Name, device))
			continue
		}
		for name, sum := range r.taken[device] {
			if most := r.has[device][name]; sum > most.Value() {
				r.wrong = append(r.wrong, fmt.Sprintf("revision %d: claim %s was given %s, of which claims have %d of %s %s then:\n    %s",
					revision, c.Name, device, sum, most.String(), name, strings.Join(r.holders(device), "\n    ")))
			}
		}
	}
}

// holders are the claims that have a device, each with what became of it since the last judgement.
func (r *record) holders(device string) (all []string) {
	for _, name := range slices.Sorted(maps.Keys(r.claims)) {
		allocation := r.claims[name].Status.Allocation
		if allocation == nil {
			continue
		}
		for _, d := range allocation.Devices.Results {
			if d.Pool+"/"+d.Device == device {
				memory := d.ConsumedCapacity[v1alpha1.CapacityMemory]
				all = append(all, fmt.Sprintf("%s, %s:", name, memory.String()))
			}
		}
		if len(all) > 0 && strings.HasPrefix(all[len(all)-1], name+",") {
			for _, s := range r.states[name] {
				all[len(all)-1] += fmt.Sprintf(" at %d [%s] for %v", s.revision, s.devices, s.users)
			}
		}
	}
	return all
}

// judge looks whether each pod had its claims' devices for as long as it had a node. It is called when everything up to now has
// been told, and forgets what was judged.
func (r *record) judge() {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	for uid, one := range r.lives {
		for _, name := range one.claims {
			r.wrong = append(r.wrong, one.without(uid, name, r.states[name])...)
		}
		if one.gone > 0 {
			delete(r.lives, uid)
			continue
		}
		for _, name := range one.claims { // what was before is forgotten
			if all := r.states[name]; len(all) > 0 {
				one.bound = max(one.bound, all[len(all)-1].revision)
			}
		}
	}
	for name, all := range r.states {
		if r.claims[name] == nil && !r.named(name) {
			delete(r.states, name)
		} else {
			r.states[name] = all[len(all)-1:]
		}
	}
}

// named reports whether a pod that is on a node has a claim of this name.
func (r *record) named(claim string) bool {
	for _, one := range r.lives {
		if slices.Contains(one.claims, claim) {
			return true
		}
	}
	return false
}

// without tells when a pod was on its node without one of its claims.
func (l *life) without(uid types.UID, name string, states []state) (faults []string) {
	if len(states) == 0 || states[0].revision > l.bound {
		faults = append(faults, fmt.Sprintf("revision %d: pod %s got %s before there was a claim %s", l.bound, l.name, l.node, name))
	}
	devices := ""
	for i, s := range states {
		switch {
		case i+1 < len(states) && states[i+1].revision <= l.bound, l.gone > 0 && s.revision > l.gone:
			continue // before and after
		case s.devices == "" || !slices.Contains(s.users, uid):
			faults = append(faults, fmt.Sprintf("revision %d: pod %s is on %s since %d, and claim %s has devices [%s] for %v", s.revision, l.name, l.node, l.bound, name, s.devices, s.users))
		case devices != "" && s.devices != devices:
			faults = append(faults, fmt.Sprintf("revision %d: pod %s is on %s, and claim %s has %s instead of %s", s.revision, l.name, l.node, name, s.devices, devices))
		}
		devices = s.devices
	}
	return faults
}

// found are the contradictions so far.
func (r *record) found() []string {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	return slices.Clone(r.wrong)
}

// there are the pods that are there, by name.
func (r *record) there() []*corev1.Pod {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	all := make([]*corev1.Pod, 0, len(r.pods))
	for _, name := range slices.Sorted(maps.Keys(r.pods)) {
		all = append(all, r.pods[name])
	}
	return all
}

// progress is how many pods have got a node, and since when none has.
func (r *record) progress() (bound int, moved time.Time) {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	return r.bound, r.moved
}

// knows reports whether the record has come to a picture of a cluster that does not change.
func (r *record) knows(p *picture) bool {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	if len(p.pods) != len(r.pods) || len(p.claims) != len(r.claims) {
		return false
	}
	for i := range p.pods {
		if known := r.pods[p.pods[i].Name]; known == nil || known.ResourceVersion != p.pods[i].ResourceVersion {
			return false
		}
	}
	for i := range p.claims {
		if known := r.claims[p.claims[i].Name]; known == nil || known.ResourceVersion != p.claims[i].ResourceVersion {
			return false
		}
	}
	return true
}
