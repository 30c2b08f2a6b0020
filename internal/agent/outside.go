package agent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/agent/control"
	"github.com/divvy-gpu/divvy/internal/agentconfig"
	"github.com/divvy-gpu/divvy/internal/backend"
	"github.com/divvy-gpu/divvy/internal/nvml"
	"github.com/divvy-gpu/divvy/internal/process"
)

// onGPU is a process on a GPU, as the driver lists it.
type onGPU struct {
	id   process.ID
	uuid string
	used *uint64 // nil where the driver does not tell
	// instances are the numbers of the GPU instances on which it is, none where the driver does not tell.
	instances []int
}

// snapshot is what the driver tells of one GPU at one moment.
type snapshot struct {
	gpu backend.GPU
	// divided is whether it is in MIG mode.
	divided bool
	// listed is whether it told who is on the GPU.
	listed    bool
	processes []onGPU
	// sum is what all processes have, also those of which the agent sees nothing.
	sum uint64
	// hidden is whether the driver keeps what some process has to itself.
	hidden bool
	// strange are pids that no process has here, and foreign is whether they all may be
	// of another pid namespace.
	strange []int
	foreign bool
	// used is all that is in use; nil where the driver does not tell. instances is the same of MIG instances.
	used      *uint64
	instances []nvml.InstanceMemory
	// silent says that the driver does not answer about it, empty while it does.
	silent string
}

// snapshots asks the driver who uses the GPUs. It is called before the looks at tenants: a
// process enters its tenant's account before it touches the GPU, so a look that comes
// after finds it there. Without uuids it asks about all GPUs.
func (a *Agent) snapshots(ctx context.Context, uuids ...string) []snapshot {
	snapshots, indexes := make([]snapshot, 0, len(a.gpus)), make([]int, 0, len(a.gpus))
	for _, gpu := range a.gpus {
		if len(uuids) == 0 || slices.Contains(uuids, gpu.UUID) {
			snapshots, indexes = append(snapshots, snapshot{gpu: gpu, divided: a.inMIGMode(gpu.UUID)}), append(indexes, gpu.Index)
		}
	}
	for i, told := range a.config.Driver.Holdings(indexes) {
		v := &snapshots[i]
		a.complain(ctx, "cannot list a GPU's processes", v.gpu.Index, told.Unlisted)
		v.listed = told.Unlisted == nil
		for _, p := range told.Processes {
			v.sum += p.Used
			v.hidden = v.hidden || p.Hidden
			id, err := process.Find(p.PID)
			if err != nil {
				v.strange = append(v.strange, p.PID)
				continue
			}
			found := onGPU{id: id, uuid: v.gpu.UUID, instances: p.Instances}
			if !p.Hidden {
				found.used = new(p.Used)
			}
			v.processes = append(v.processes, found)
		}
		a.complain(ctx, "cannot read a GPU's memory", v.gpu.Index, told.Unread)
		switch {
		case told.Unread == nil:
			v.used, v.instances = &told.Used, told.Instances
		case errors.Is(told.Unread, nvml.ErrSilent):
			v.silent = told.Unread.Error()
		}
	}
	return snapshots
}

// inUse is what is in use of a MIG instance, nil where the driver does not tell.
func (v *snapshot) inUse(uuid string) *uint64 {
	at := slices.IndexFunc(v.instances, func(m nvml.InstanceMemory) bool { return m.UUID == uuid })
	if at < 0 {
		return nil
	}
	return &v.instances[at].Used
}

// on are the processes on GPUs.
func on(snapshots []snapshot) []onGPU {
	var found []onGPU
	for _, v := range snapshots {
		found = append(found, v.processes...)
	}
	return found
}

// byTenant sorts the processes on a GPU by the tenants whose they are. pending are the users
// of those of whom that is not known yet.
func (a *Agent) byTenant(v *snapshot) (processes map[string][]onGPU, pending map[int]bool) {
	processes, pending = map[string][]onGPU{}, map[int]bool{}
	for _, p := range v.processes {
		switch id, known := a.member(p.id); {
		case !known:
			a.suspect(v.gpu.UUID) // it will be known soon
			pending[process.Owner(p.id.PID)] = true
		case id != "":
			processes[id] = append(processes[id], p)
		}
	}
	return processes, pending
}

// findOutside reports processes on a GPU that have no share of it, and has those of
// listed users answered.
func (a *Agent) findOutside(ctx context.Context, present []onGPU) {
	a.mu.Lock()
	before := a.outside
	a.mu.Unlock()
	outside := a.outsiders(ctx, present, before)
	a.mu.Lock()
	a.outside, a.intruders = outside, a.intrudersOf(present, outside)
	a.mu.Unlock()
	for _, o := range outside {
		known := slices.ContainsFunc(before, func(b control.Outside) bool { return b.PID == o.PID && b.UUID == o.UUID })
		if !known && !slices.ContainsFunc(present, func(p onGPU) bool { return p.id.PID == o.PID && p.uuid == o.UUID && a.onAnothers(p) }) {
			a.tellOutside(ctx, o)
		}
	}
	for _, gpu := range a.gpus {
		if a.config.Listed != nil && slices.ContainsFunc(outside, func(o control.Outside) bool { return o.UUID == gpu.UUID && o.Tenant == "" }) {
			a.tellAnswered(ctx, gpu, a.answerOutside(ctx, gpu.UUID))
		}
	}
	maps.DeleteFunc(a.answered, func(id process.ID, _ bool) bool { return !id.Alive() })
}

// intrudersOf are those of the processes without a share that are on GPUs in MIG mode.
func (a *Agent) intrudersOf(present []onGPU, outside []control.Outside) (all []intruder) {
	for _, o := range outside {
		if !a.inMIGMode(o.UUID) {
			continue
		}
		for _, p := range present {
			if p.id.PID == o.PID && p.uuid == o.UUID {
				all = append(all, intruder{pid: o.PID, uuid: o.UUID, instances: p.instances})
			}
		}
	}
	return all
}

// outsiders are the processes on a GPU that have no share of it. before are those that were
// found last.
func (a *Agent) outsiders(ctx context.Context, present []onGPU, before []control.Outside) (outside []control.Outside) {
	var confirmed []onGPU
	others := map[string]bool{}
	for _, p := range present {
		counted, known := a.accounted(p)
		if counted || a.ofBackend(p.id) {
			continue
		}
		// Of a GPU that another user's agent holds that agent knows who has a share.
		other, asked := others[p.uuid]
		if !asked {
			held, _ := a.elsewhere(ctx, p.uuid)
			other = held != ""
			others[p.uuid] = other
		}
		if other {
			continue
		}
		owner, found := a.member(p.id)
		if (!known || !found) && !a.asking.overdue(p.id) { // as long as nothing is known of it, what was said of it stays
			outside = append(outside, ofProcess(before, p)...)
			continue
		}
		// A process that ended while we looked, and was reaped, did nothing wrong. Nor did one that ends: the kernel takes it
		// out of its account before the driver's files are closed.
		if confirmed == nil {
			confirmed = on(a.snapshots(ctx))
		}
		if !slices.ContainsFunc(confirmed, func(c onGPU) bool { return c.id == p.id && c.uuid == p.uuid }) || p.id.Ending() {
			continue
		}
		o := control.Outside{PID: p.id.PID, User: userOf(p.id.PID), Command: process.Command(p.id.PID), UUID: p.uuid, Used: p.used}
		o.Tenant, o.Owner = a.nameOf(owner)
		outside = append(outside, o)
	}
	return outside
}

// ofProcess is what was said of a process.
func ofProcess(said []control.Outside, p onGPU) []control.Outside {
	return slices.DeleteFunc(slices.Clone(said), func(o control.Outside) bool { return o.PID != p.id.PID || o.UUID != p.uuid })
}

// done says what the signal of an answer did to a process.
var done = map[agentconfig.Outside]string{agentconfig.OutsideStop: "stopped (SIGSTOP)", agentconfig.OutsideKill: "killed"}

// tellAnswered reports processes without a share that got the signal of the
// configuration, each once, and shows it for as long as they are listed. sweeping is held.
func (a *Agent) tellAnswered(ctx context.Context, gpu backend.GPU, signalled []process.ID) {
	for _, id := range signalled {
		a.mu.Lock()
		i := slices.IndexFunc(a.outside, func(o control.Outside) bool { return o.PID == id.PID && o.UUID == gpu.UUID })
		var o control.Outside
		if i >= 0 {
			a.outside[i].Answer = done[a.config.Misuse]
			o = a.outside[i]
		}
		a.mu.Unlock()
		if a.answered[id] || i < 0 {
			continue
		}
		a.answered[id] = true
		held := "an unknown amount"
		if o.Used != nil {
			held = v1alpha1.FormatBytes(*o.Used)
		}
		text := fmt.Sprintf("process %d (%s) of %s was %s: it had %s of GPU %d without a share", o.PID, o.Command, o.User, o.Answer, held, gpu.Index)
		a.config.Log.WarnContext(ctx, "a process without a share is answered", "pid", o.PID, "user", o.User, "command", o.Command,
			"gpu", gpu.UUID, "held", held, "done", o.Answer)
		a.events.add(control.Event{Kind: control.EventOutside, User: o.User, UUID: gpu.UUID, PID: o.PID, Text: text})
	}
}

// tellOutside reports a process that was not known to be outside.
func (a *Agent) tellOutside(ctx context.Context, o control.Outside) {
	text := fmt.Sprintf("process %d (%s) of %s uses a GPU without a share", o.PID, o.Command, o.User)
	if o.Tenant != "" {
		text = fmt.Sprintf("process %d of %s uses a GPU beside its share: it found another way to the driver", o.PID, o.Tenant)
	} else if id, err := process.Find(o.PID); err == nil && (a.asking.unread(id) || a.asking.overdue(id)) {
		text += ", as far as anybody can tell: it has too many open files to be looked at"
	}
	a.config.Log.WarnContext(ctx, text, "gpu", o.UUID)
	a.events.add(control.Event{Kind: control.EventOutside, Tenant: o.Tenant, User: cmp.Or(o.Owner, o.User), UUID: o.UUID, PID: o.PID, Text: text})
}

// userOf is the name of a process's user, "" for a process that has ended.
func userOf(pid int) string {
	if uid := process.Owner(pid); uid >= 0 {
		return process.UserName(uid)
	}
	return ""
}

// accounted reports whether what a process uses is in the figures of a tenant with
// a share of that GPU; known is false while the kernel has not told. The pids in those are
// the tenant's word, and so is how many there are, so they say only whom to ask about: the
// kernel tells whether the process is counted.
func (a *Agent) accounted(p onGPU) (counted, known bool) {
	a.mu.Lock()
	var asked []backend.Tenant
	for _, t := range a.tenants {
		// Of a process in another pid namespace the pid may be unknown. Pids are compared first: nearly all differ.
		if slices.ContainsFunc(t.seen.Processes, func(seen backend.Process) bool { return seen.Live && (seen.PID == p.id.PID || seen.PID == 0) }) &&
			slices.ContainsFunc(t.Shares, func(s share) bool { return s.UUID == p.uuid && p.on(s.Instance) }) {
			asked = append(asked, a.tenantOf(&t.record))
		}
	}
	a.mu.Unlock()
	if len(asked) == 0 {
		return false, true
	}
	key := question{p.id, p.uuid}
	if found, ok := a.asking.known(key); ok {
		return found.counts, true
	}
	owner := process.Owner(p.id.PID)
	found, known := a.asking.ask(key, owner, func() answer {
		may := slices.DeleteFunc(asked, func(t backend.Tenant) bool { return !a.mayCount(t, p.id, owner) })
		if len(may) == 0 || !a.config.Backends.Counts(may, p.id) {
			return answer{}
		}
		return answer{counts: true, keeps: reconsidered}
	})
	return found.counts, known
}

// mayCount reports whether a tenant may count a process of a user: one of its own or of its user.
// Another user's could be lent the pages.
func (a *Agent) mayCount(t backend.Tenant, id process.ID, owner int) bool {
	return t.Layer == backend.LayerContainer || owner == t.User() || a.memberOf(id) == t.ID
}

// sumOf is what processes have together, nil if that of one is hidden.
func sumOf(processes []onGPU) *uint64 {
	sum := uint64(0)
	for _, p := range processes {
		if p.used == nil {
			return nil
		}
		sum += *p.used
	}
	return &sum
}

// mostOf is what that process has which has most.
func mostOf(processes []onGPU) (most uint64) {
	for _, p := range processes {
		if p.used != nil {
			most = max(most, *p.used)
		}
	}
	return most
}
