package scheduler

import (
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// replacing are gangs of which members have places and others wait: a lost member is replaced before other pods get the room.
type replacing struct {
	gangs map[string]bool
	// tried are those that went first since the last event that may have made room, with so many members that waited.
	freed uint64
	tried map[string]int
}

// follow notes whether a gang is to go first. The caller holds the mutex.
func (r *replacing) follow(id string, is bool) {
	if is {
		r.gangs[id] = true
	} else {
		delete(r.gangs, id)
	}
}

// first is a member of a gang that has lost one and has not been tried since there may be more room, if it goes before this pod,
// and otherwise the pod. It goes before pods of no higher priority. After each event at most mostTried gangs go first, so that those
// which never fit delay the others no longer.
func (g *Gangs) first(before *corev1.Pod, freed uint64) *corev1.Pod {
	g.mutex.Lock()
	defer g.mutex.Unlock()
	r := &g.replacing
	if before == nil || len(r.gangs) == 0 {
		return before
	}
	if r.freed != freed {
		r.freed = freed
		clear(r.tried)
	}
	own, _, _ := g.members.Of(keyOf(before))
	for _, id := range slices.Sorted(maps.Keys(r.gangs)) {
		state := g.members.State(id)
		waiting := g.podsOf(state.Waiting)
		last, tried := r.tried[id]
		if !state.Begun || len(waiting) == 0 || tried && last == len(waiting) || len(r.tried) >= mostTried || priority(waiting[0]) < priority(before) {
			continue
		}
		r.tried[id] = len(waiting)
		if id == own {
			break
		}
		return waiting[0]
	}
	return before
}
