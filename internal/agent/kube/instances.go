package kube

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/agent"
	"github.com/divvy-gpu/divvy/internal/agent/dra/pool"
	"github.com/divvy-gpu/divvy/internal/agentconfig"
	"github.com/divvy-gpu/divvy/internal/alloc/layouts"
	"github.com/divvy-gpu/divvy/internal/backend"
)

// dividers are what the agent knows of GPUs in MIG mode.
type dividers interface {
	// Division is how a GPU is divided, and a channel that is closed when that may be otherwise. Unknown says why it could
	// not be read.
	Division(uuid string) (d backend.Division, unknown string, changed <-chan struct{})
	// InstanceUses are the instances that shares have, or are about to have.
	InstanceUses() []agent.InstanceUse
	// Preferred lists the places of GPUs in MIG mode, in the order in which they should be taken now. A choice's GPU is its
	// position among the UUIDs. GPUs with other profiles than the first are left out.
	Preferred(uuids []string) []layouts.Choice
}

// uses are the instances of one GPU that shares have, by the names of the devices.
type uses map[string]agent.InstanceUse

func usesOf(all []agent.InstanceUse, gpu string) uses {
	found := uses{}
	for _, u := range all {
		if u.GPU != gpu {
			continue
		}
		name := pool.InstanceName(gpu, u.Profile, u.Start)
		if before, ok := found[name]; !ok || u.Claim && !before.Claim {
			found[name] = u
		}
	}
	return found
}

// byHost reports whether a share that is no claim's has a device.
func (u uses) byHost(name string) bool {
	use, ok := u[name]
	return ok && !use.Claim
}

// deviceMark divides the names of devices in a list.
const deviceMark = ","

// devicesIn are the names in a list.
func devicesIn(list string) []string {
	if list == "" {
		return nil
	}
	return strings.Split(list, deviceMark)
}

func listOf(devices []string) string {
	return strings.Join(slices.Sorted(slices.Values(devices)), deviceMark)
}

// without are the names that others do not have.
func without(devices, others []string) []string {
	return slices.DeleteFunc(slices.Clone(devices), func(d string) bool { return slices.Contains(others, d) })
}

// isDynamic reports whether all places of a GPU are published, with counters. That is so only where the administrator
// says it: with counters anywhere, Kubernetes 1.36 places pods more slowly everywhere.
func isDynamic(form agentconfig.Form) bool { return form.Layout == agentconfig.LayoutDynamic }

// offered are the devices of a GPU whose layout is fixed: instances that stay and that no share of the host has, and those
// that claims have. A claim's instance that is gone is among them, because its pods are to be evicted.
func offered(d *backend.Division, gpu string, uses uses) (devices []string) {
	for name, use := range uses {
		if use.Claim {
			devices = append(devices, name)
		}
	}
	for _, p := range d.Parts {
		name := pool.InstanceName(gpu, p.Profile, p.Start)
		if _, used := uses[name]; p.Half == "" && p.Origin != backend.OriginShare && !used {
			devices = append(devices, name)
		}
	}
	return devices
}

// divide brings the devices of a GPU of form MIG a step nearer to its instances. Devices that go are withdrawn first. What
// is there in their stead is published when neither the API nor a claim has them any more: a scheduler that had not seen
// that they are withdrawn may have allocated one meanwhile. Instances that are added beside are published at once. Between
// fixed and dynamic nothing has to wait, because a device stands for the same instance in both.
func (p published) divide(d *backend.Division, dynamic bool, offered []string, ask func() (*allocated, error)) (published, error) {
	next := published{form: p.form, dynamic: dynamic, devices: listOf(offered)}
	departing := devicesIn(p.departing)
	if !p.dynamic {
		departing = append(departing, without(devicesIn(p.devices), offered)...)
	}
	departing = without(departing, offered)
	if len(departing) == 0 || dynamic {
		return next, nil
	}
	slices.Sort(departing)
	departing = slices.Compact(departing)
	if p.departing == listOf(departing) {
		asked, err := ask()
		if err != nil {
			return p, err
		}
		departing = slices.DeleteFunc(departing, func(name string) bool { return !asked.devices[name] })
		if len(departing) == 0 {
			return next, nil
		}
	}
	next.departing = listOf(departing)
	next.devices = listOf(slices.DeleteFunc(slices.Clone(offered), func(name string) bool { return overlaps(d, name, departing) }))
	return next, nil
}

// overlaps reports whether a device has memory slices of one of others, as far as their profiles are known.
func overlaps(d *backend.Division, name string, others []string) bool {
	profile, start, _ := pool.ParseInstance(name)
	one := instanceOf(d, profile, start)
	return slices.ContainsFunc(others, func(other string) bool {
		profile, start, _ := pool.ParseInstance(other)
		o := instanceOf(d, profile, start)
		return one.Start < o.Start+o.Size && o.Start < one.Start+one.Size
	})
}

// divided describes how a GPU is published as these devices, or with dynamic as all that it can have.
func divided(d *backend.Division, gpu string, p published, uses uses) *pool.Division {
	published := &pool.Division{Dynamic: p.dynamic}
	for _, s := range d.Sizes {
		published.Multiprocessors = max(published.Multiprocessors, s.Multiprocessors)
	}
	if !p.dynamic {
		for _, name := range devicesIn(p.devices) {
			profile, start, ok := pool.ParseInstance(name)
			if !ok {
				continue
			}
			one := instanceOf(d, profile, start)
			if uses[name].Gone {
				one.Fault = &pool.Fault{Reason: goneInstance, Lost: true}
			}
			published.Instances = append(published.Instances, one)
		}
		return published
	}
	for i := range d.Profiles {
		for _, start := range d.Profiles[i].Starts {
			one := instanceOf(d, d.Profiles[i].Name, start)
			one.UUID = "" // it comes and goes
			published.Instances = append(published.Instances, one)
		}
	}
	keepOthers(d, gpu, published, uses)
	return published
}

// keepOthers leaves to others what the scheduler does not know of. An instance that stays is a device that takes no
// counters, unless a share of the host has it. Such a share keeps its place also before its instance is made.
func keepOthers(d *backend.Division, gpu string, published *pool.Division, uses uses) {
	made := map[string]bool{}
	for _, p := range d.Parts {
		name := pool.InstanceName(gpu, p.Profile, p.Start)
		made[name] = made[name] || p.Half == ""
		stays := p.Half == "" && p.Origin != backend.OriginShare
		if !stays && p.Half == "" && !uses.byHost(name) {
			continue // it is a claim's, whose allocation counts, or about to go
		}
		keep(published, p.Instance, stays && !uses.byHost(name))
	}
	for name, use := range uses {
		if !made[name] && uses.byHost(name) && !use.Gone {
			one := instanceOf(d, use.Profile, use.Start)
			keep(published, backend.Instance{Profile: one.Profile, Start: one.Start, Size: one.Size}, false)
		}
	}
}

// keep takes an instance from what claims can have. Its device is published only where it stays.
func keep(published *pool.Division, one backend.Instance, stays bool) {
	published.Taken |= (uint32(1)<<one.Size - 1) << one.Start
	at := slices.IndexFunc(published.Instances, func(i pool.Instance) bool { return i.Profile == one.Profile && i.Start == one.Start })
	if at < 0 {
		return
	}
	for c, n := range published.Instances[at].Takes {
		published.Used[c] += n
	}
	if stays {
		published.Instances[at].Stays = true
		return
	}
	published.Instances = slices.Delete(published.Instances, at, at+1)
}

// instanceOf describes an instance, from what the driver tells of its profile and of the instance.
func instanceOf(d *backend.Division, profile string, start int) pool.Instance {
	one := pool.Instance{Profile: profile, Start: start, Size: 1, Memory: pool.LeastMemory}
	for i, s := range d.Sizes {
		if s.Profile == profile {
			one.Size, one.Memory, one.Multiprocessors = s.Size, s.Bytes, s.Multiprocessors
			if i < len(d.Profiles) {
				one.Takes = d.Profiles[i].Takes
			}
		}
	}
	for _, p := range d.Parts {
		if p.Profile == profile && p.Start == start && p.Half == "" {
			one.UUID = p.UUID
		}
	}
	return one
}

// goneInstance is the reason of the taint on a device whose instance somebody took away.
const goneInstance = "instance-gone"

// orderInterval is the least time between two orders of places that are told.
const orderInterval = time.Second

// order is that of the devices of GPUs whose layout may change. The scheduler takes the first that fits, so the agent tells
// it which one that should be, at most once a second.
type order struct {
	now func() time.Time

	mu    sync.Mutex
	told  time.Time
	ranks map[string]int // by the devices' names
}

// get returns the ranks that are told, and after which time others may be, 0 where these are the ones that are preferred.
func (o *order) get(preferred map[string]int) (ranks map[string]int, after time.Duration) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if maps.Equal(preferred, o.ranks) {
		return o.ranks, 0
	}
	now := o.now()
	if since := now.Sub(o.told); o.ranks != nil && since >= 0 && since < orderInterval {
		return o.ranks, orderInterval - since
	}
	o.ranks, o.told = preferred, now
	return o.ranks, 0
}

// ranksOf orders the places of GPUs. GPUs with the same profiles are ordered together.
func ranksOf(by dividers, gpus []string) map[string]int {
	ranks := map[string]int{}
	for len(gpus) > 0 {
		placed := map[string]bool{}
		for _, c := range by.Preferred(gpus) {
			d, _, _ := by.Division(gpus[c.GPU])
			if c.Profile >= len(d.Profiles) {
				continue
			}
			placed[gpus[c.GPU]] = true
			ranks[pool.InstanceName(gpus[c.GPU], d.Profiles[c.Profile].Name, c.Start)] = len(ranks)
		}
		placed[gpus[0]] = true // also where it has no places now
		gpus = slices.DeleteFunc(slices.Clone(gpus), func(uuid string) bool { return placed[uuid] })
	}
	return ranks
}

// instanceState is what the slices of GPUs in MIG mode follow from.
type instanceState struct {
	of    map[string]backend.Division
	uses  []agent.InstanceUse
	ranks map[string]int
}

// divide gives GPUs of form mig their division. It returns a channel that is closed when that is another one, nil where no
// GPU has that form.
func (p *publisher) divide(ctx context.Context, gpus []pool.GPU, shapes map[string]published) <-chan struct{} {
	var all, dynamic []string
	for i := range gpus {
		if gpus[i].Form == pool.MIG {
			all = append(all, gpus[i].UUID)
		}
		if shapes[gpus[i].UUID].dynamic {
			dynamic = append(dynamic, gpus[i].UUID)
		}
	}
	if len(all) == 0 {
		return nil
	}
	now, changed := untilOther(ctx, func() (d instanceState, changed <-chan struct{}) {
		d.of = map[string]backend.Division{}
		for _, uuid := range all {
			d.of[uuid], _, changed = p.divider.Division(uuid)
		}
		d.uses, d.ranks = p.divider.InstanceUses(), ranksOf(p.divider, dynamic)
		return d, changed
	})
	ranks, after := p.order.get(now.ranks)
	for i := range gpus {
		g := &gpus[i]
		if g.Form != pool.MIG {
			continue
		}
		d := now.of[g.UUID]
		g.Division = divided(&d, g.UUID, shapes[g.UUID], usesOf(now.uses, g.UUID))
		for k := range g.Division.Instances {
			one := &g.Division.Instances[k]
			one.Rank = ranks[pool.InstanceName(g.UUID, one.Profile, one.Start)]
		}
	}
	if after > 0 {
		return either(ctx, changed, later(ctx, after))
	}
	return changed
}

// later returns a channel that is closed after a time, or when ctx is done.
func later(ctx context.Context, after time.Duration) <-chan struct{} {
	done := make(chan struct{})
	go func() {
		defer close(done)
		select {
		case <-time.After(after):
		case <-ctx.Done():
		}
	}()
	return done
}

// wantedForm is the form that a GPU is to have: that of MIG while it is in that mode, unless it is given to virtual
// machines.
func wantedForm(given agentconfig.Form, d *backend.Division) pool.Form {
	if given.Backend.ForMachines() {
		return pool.Form(given.Backend)
	}
	if d.On || given.Backend == v1alpha1.BackendMIG {
		return pool.MIG
	}
	return pool.Form(v1alpha1.FormOf(cmp.Or(given.Backend, v1alpha1.BackendSlice)))
}
