package agent

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/alloc"
)

// gpuSet is a set of the agent's GPUs, by their places in Agent.gpus.
type gpuSet uint64

// has reports whether the set holds all of another.
func (s gpuSet) has(other gpuSet) bool { return s&other == other }

// setOf are the GPUs with these UUIDs.
func (a *Agent) setOf(uuids []string) (set gpuSet) {
	for i, gpu := range a.gpus {
		for _, uuid := range uuids {
			if uuid == gpu.UUID {
				set |= 1 << i
			}
		}
	}
	return set
}

// uuidsOf are the UUIDs of a set, as the allocator takes them.
func (a *Agent) uuidsOf(set gpuSet) alloc.Names {
	var uuids []string
	for i, gpu := range a.gpus {
		if set.has(1 << i) {
			uuids = append(uuids, gpu.UUID)
		}
	}
	return alloc.Names(strings.Join(uuids, "|"))
}

// namesOf names the GPUs of a set for people.
func (a *Agent) namesOf(set gpuSet) string {
	var indexes []int
	for i, gpu := range a.gpus {
		if set.has(1 << i) {
			indexes = append(indexes, gpu.Index)
		}
	}
	return a.listed(indexes)
}

// candidates are the GPUs that can serve a request while nothing else is on them. The
// request names its GPUs by UUID.
func (a *Agent) candidates(r v1alpha1.ShareRequest) (set gpuSet) {
	for i, gpu := range a.gpus {
		named := len(r.Among) == 0 || a.setOf(r.Among).has(1<<i)
		capacity := gpu.Capacity()
		if d := a.divisions.get(gpu.UUID); r.Profile != "" {
			size, _ := d.size(r.Profile)
			capacity = size.Bytes
		}
		if r.Swap {
			able := alloc.GPU{UUID: gpu.UUID, Index: gpu.Index, Capacity: capacity, ContextBytes: gpu.ContextBytes}
			if named && a.serves(gpu, r.Backend, "") && a.requestOf(0, r).Possible(&able) {
				set |= 1 << i
			}
			continue
		}
		if memory := r.Memory.Of(capacity); named && a.serves(gpu, r.Backend, r.Profile) && memory <= capacity && memory > gpu.ContextBytes {
			set |= 1 << i
		}
	}
	return set
}

// neverFits returns an error for a request that would not fit if the machine were idle.
func (a *Agent) neverFits(ctx context.Context, who requester) error {
	idle := make([]alloc.GPU, 0, len(a.gpus))
	for _, gpu := range a.gpus {
		d := a.divisions.get(gpu.UUID)
		idle = append(idle, alloc.GPU{UUID: gpu.UUID, Index: gpu.Index, Capacity: gpu.Capacity(), ContextBytes: gpu.ContextBytes, Profiles: d.Profiles})
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if who.request.Profile != "" {
		return a.refused(ctx, a.neverInside(who), who)
	}
	inventory, err := a.hostOf(idle)
	if err != nil {
		return err
	}
	_, err = alloc.Search(inventory, who.request)
	return a.refused(ctx, err, who)
}

// awaited are the GPUs that requests keep that came before mine; nil is for one that is
// not in the queue. Agent.mu is held.
func (a *Agent) awaited(ctx context.Context, mine *ticket) gpuSet {
	return a.awaitedInQueue(ctx, mine) | a.awaitedBySuspended(nil)
}

// awaitedInQueue are those that requests keep; mine is as for awaited. Agent.mu is held.
func (a *Agent) awaitedInQueue(ctx context.Context, mine *ticket) (set gpuSet) {
	a.arrange(ctx)
	for _, t := range a.queue {
		if t == mine {
			break
		}
		set |= t.keeps
	}
	return set
}

// standing is where a request stands among those that wait for any of the GPUs that can
// serve it: behind those that came before and have a turn there. Agent.mu is held.
func (a *Agent) standing(ctx context.Context, mine *ticket) (place, of int) {
	a.arrange(ctx)
	place = 1
	before := true
	for _, t := range a.queue {
		switch {
		case t == mine:
			before = false
		case t.gpus&mine.gpus == 0:
			continue
		case before && t.may&mine.gpus != 0:
			place++
		}
		of++
	}
	return place, of
}

// overtaking is why a request is refused on the GPUs that nobody keeps: that others came
// before, if it would fit without them. Agent.mu is held.
func (a *Agent) overtaking(ctx context.Context, r alloc.Request, awaited gpuSet, err error) error {
	var refusal *alloc.Refusal
	if awaited == 0 || isLimited(err) || !errors.As(err, &refusal) {
		return err
	}
	r.AvoidGPUs = ""
	if _, full := a.search(ctx, nil, r); full != nil {
		return full
	}
	return a.waitedLonger(awaited)
}

// waitedLonger is the refusal of a request that others came before.
func (a *Agent) waitedLonger(awaited gpuSet) error {
	return &alloc.Refusal{Reason: alloc.ReasonFull, Text: fmt.Sprintf("other requests have waited longer for %s", a.namesOf(awaited))}
}
