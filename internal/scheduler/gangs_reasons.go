package scheduler

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/divvy-gpu/divvy/internal/scheduler/gang"
)

// refused is why a gang got no places, and when: by the count of events that make room, and its members.
type refused struct {
	freed   uint64
	waiting int
	gang    gang.Gang
	err     error
	// told tells that its members say so.
	told bool
}

// refusal is why there was no room for a gang when it was planned last, nil where something has changed since.
func (g *Gangs) refusal(id string, now refused) error {
	g.mutex.Lock()
	defer g.mutex.Unlock()
	if last, ok := g.refused[id]; ok && last.freed == now.freed && last.waiting == now.waiting && reflect.DeepEqual(last.gang, now.gang) {
		return last.err
	}
	delete(g.refused, id)
	return nil
}

// forgetRefusal has a gang planned whether anything has changed or not.
func (g *Gangs) forgetRefusal(id string) {
	g.mutex.Lock()
	defer g.mutex.Unlock()
	delete(g.refused, id)
}

// refuse notes that there was no room for a gang.
func (g *Gangs) refuse(id string, why refused) {
	g.mutex.Lock()
	defer g.mutex.Unlock()
	if g.members.There(id) {
		g.refused[id] = why
	}
}

// Refused is the name of a pod's gang for which there is no room, and, once after it was planned, the members that wait: all
// of them are to say why.
func (g *Gangs) Refused(pod *corev1.Pod) (id string, members []*corev1.Pod) {
	g.mutex.Lock()
	defer g.mutex.Unlock()
	id, _, _ = g.members.Of(keyOf(pod))
	if last, ok := g.refused[id]; ok && !last.told {
		last.told = true
		g.refused[id] = last
		members = g.podsOf(g.members.State(id).Waiting)
	}
	return id, members
}

const (
	// lackPause is how long a gang is left alone before its members say anew what it lacks, so that they do not say it anew with
	// each member that is made.
	lackPause = time.Second
	// lackLimit is when they do at the latest.
	lackLimit = 10 * time.Second
)

// lack is why a gang cannot be planned.
type lack struct {
	reason string
	// since and last are when that changed first and last; since is zero once the members were told.
	since, last time.Time
}

// touch notes what a gang lacks after a change.
func (g *Gangs) touch(id string) {
	if !g.members.There(id) {
		return
	}
	state := g.members.State(id)
	reason := g.lack(id, &state)
	g.replacing.follow(id, reason == "" && state.Begun && len(state.Waiting) > 0)
	was := g.lacks[id]
	switch now := time.Now(); {
	case reason == "":
		delete(g.lacks, id)
	case reason != was.reason:
		if was.since.IsZero() {
			was.since = now
		}
		g.lacks[id] = lack{reason, was.since, now}
	}
}

// Lacking calls a function for each member that waits of gangs whose lack has changed, with the reason.
func (g *Gangs) Lacking(now time.Time, tell func(pod *corev1.Pod, reason string)) {
	type told struct {
		pods   []*corev1.Pod
		reason string
	}
	var all []told
	g.mutex.Lock()
	for id, one := range g.lacks {
		if one.since.IsZero() || now.Sub(one.last) < lackPause && now.Sub(one.since) < lackLimit {
			continue
		}
		one.since = time.Time{}
		g.lacks[id] = one
		all = append(all, told{g.podsOf(g.members.State(id).Waiting), lacking(one.reason).Error()})
	}
	g.mutex.Unlock()
	for _, one := range all {
		for _, pod := range one.pods {
			tell(pod, one.reason)
		}
	}
}

// lacking are the members that wait of gangs that cannot be planned.
func (g *Gangs) lacking() (all []*corev1.Pod) {
	g.mutex.Lock()
	defer g.mutex.Unlock()
	for _, id := range slices.Sorted(maps.Keys(g.lacks)) {
		all = append(all, g.podsOf(g.members.State(id).Waiting)...)
	}
	return all
}

// lacking is the error of a member whose gang cannot be planned.
func lacking(reason string) error { return fmt.Errorf("%w: %s", ErrWait, reason) }
