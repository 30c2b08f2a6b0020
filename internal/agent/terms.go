package agent

import (
	"fmt"
	"slices"
	"time"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/agent/control"
	"github.com/divvy-gpu/divvy/internal/agentconfig"
	"github.com/divvy-gpu/divvy/internal/backend"
	"github.com/divvy-gpu/divvy/internal/process"
)

// stamp notes that the shares are changed now. A clock that was set back does not make
// the change an old one.
func (r *record) stamp(now time.Time) {
	r.Changed = max(r.Changed+1, uint64(max(0, now.UnixNano())))
}

// hear makes what a tenant's processes are told its record, if another agent told it
// later than the record was written: a user's own agent and the system agent may serve
// a tenant in turn, and the latest change counts. It reports whether it did. What a
// user's agent has told is bounded as it is when the tenant is taken over, and grows
// into free memory and cores only. Agent.mu is held.
func (a *Agent) hear(t *tenant) bool {
	wanted := a.tenantOf(&t.record)
	adopter, ok := a.makerOf(wanted).(backend.Adopter)
	if !ok {
		return false
	}
	told, err := adopter.Told(wanted)
	if err != nil || told.Changed <= t.Changed {
		return false // who cannot be asked is told the record
	}
	r := t.record
	r.Shares, r.Changed = slices.Clone(t.Shares), told.Changed
	for i := range r.Shares {
		at := slices.IndexFunc(told.Shares, func(s backend.Share) bool { return s.GPU.UUID == r.Shares[i].UUID })
		if at >= 0 {
			told.Swap = t.Shares[i].Swap // a share is one or the other for all of its life
			terms := toldShare(&told, told.Shares[at], t.backend())
			terms.SuspendAfter = t.Shares[i].SuspendAfter // which pages do not tell
			r.Shares[i] = t.Shares[i].with(terms)
		}
	}
	if t.Origin != "" {
		if text := a.bound(&r, t, a.config.Rules.Limits(r.UID)); text != "" {
			a.tellBound(&r, text)
		}
		a.squeeze(t, &r)
	}
	t.record = r
	return true
}

// toldShare is a share of a tenant of a backend as a page tells it, of which everything but the memory
// is left out unless a request could have it.
func toldShare(t *backend.Tenant, s backend.Share, made v1alpha1.Backend) share {
	one := share{
		UUID: s.GPU.UUID, Limit: s.Limit, Cores: s.Cores,
		ShareConfig: v1alpha1.ShareConfig{Policy: s.Policy, MaxCores: s.MaxCores, Weight: s.Weight, Class: s.Class, Backend: made},
	}
	one.Default(one.Cores)
	if err := one.Validate(one.Cores); err != nil || one.Cores < 0 || one.Cores > v1alpha1.MaxCores {
		one.Cores, one.ShareConfig = 0, v1alpha1.ShareConfig{Backend: made}
		one.Default(0)
	}
	if one.Swap = t.Swap; t.Swap && s.Kept > 0 && s.Kept < s.Limit {
		one.Kept = v1alpha1.Bytes(s.Kept)
	}
	return one
}

// with is the share with other terms. It counts with what it had as long as it may have
// more in use than it has now.
func (s share) with(terms share) share {
	had, kept, turned := max(s.Limit, s.Before), max(s.kept(), s.BeforeKept), s.swapped()
	s.Limit, s.Cores, s.ShareConfig, s.Before, s.BeforeKept = terms.Limit, terms.Cores, terms.ShareConfig, 0, 0
	if s.Limit < had {
		s.Before = had
	}
	if s.Swap && s.kept() < kept {
		s.BeforeKept = kept
	}
	if s.swapped() != turned {
		s.Turn = 0 // how large the room for its turns is, is not known
	}
	return s
}

// squeeze takes back what a tenant was given more than there is beside the other tenants.
// Agent.mu is held.
func (a *Agent) squeeze(t *tenant, r *record) {
	for i := range r.Shares {
		s, was := &r.Shares[i], t.Shares[i]
		if a.gpu(s.UUID).Index < 0 {
			continue
		}
		room, turns, cores := a.gpu(s.UUID).Capacity(), uint64(0), v1alpha1.MaxCores
		for _, other := range a.tenants {
			for j, o := range other.Shares {
				if other != t && o.UUID == s.UUID {
					room -= min(room, other.counted(j))
					turns = max(turns, other.turn(j))
					cores -= o.Guaranteed(o.Cores)
				}
			}
		}
		if most := max(room-min(room, turns), was.Limit); s.Limit > most && !s.Swap {
			s.Limit = most
			r.stamp(a.config.Now())
		}
		if s.Swap && a.squeezeSwap(s, &was, room, turns, r.Overcommit) {
			r.stamp(a.config.Now())
		}
		if g := s.Guaranteed(s.Cores); g > max(cores, was.Guaranteed(was.Cores)) {
			terms := was.ShareConfig
			terms.Swap, terms.Kept, terms.SuspendAfter = s.Swap, s.Kept, s.SuspendAfter
			s.Cores, s.ShareConfig = was.Cores, terms
			r.stamp(a.config.Now())
		}
	}
}

// squeezeSwap takes back from a swap share what it was given more than there is: what it keeps fits into the room beside the
// turns of others, its own turn does unless it may be larger, and all of it fits into host memory. It reports whether it did.
// Agent.mu is held.
func (a *Agent) squeezeSwap(s, was *share, room, turns uint64, overcommit bool) bool {
	grew := s.kept() > was.kept() && s.kept() > room-min(room, turns)
	if s.swapped() > was.swapped() && !overcommit {
		grew = grew || max(turns, s.swapped()) > room-min(room, s.kept())
	}
	if more := s.Limit - min(s.Limit, was.Limit); more > 0 {
		grew = grew || a.hostRoom(nil, 1, more, a.hostAhead(nil)) != nil
	}
	if !grew {
		return false
	}
	s.Limit, s.Kept, s.Turn = was.Limit, v1alpha1.Bytes(was.kept()), was.Turn
	return true
}

// bound lowers what a user granted themselves to what the machine has and the
// administrator allows, together with what the user has already beside except. It says what is beyond
// that, "" if nothing. Agent.mu is held.
func (a *Agent) bound(r *record, except *tenant, most agentconfig.Limits) (beyond string) {
	had := a.heldBy(r.UID, except)
	memory, cores := most.Memory-min(most.Memory, had.memory), most.Cores-min(most.Cores, had.cores)
	host := a.config.SwapMemory - min(a.config.SwapMemory, a.hostTaken(except))
	if most.SwapMemory > 0 {
		host = min(host, most.SwapMemory-min(most.SwapMemory, had.host))
	}
	for i := range r.Shares {
		s := &r.Shares[i]
		gpu := a.gpu(s.UUID)
		if gpu.Index < 0 {
			continue
		}
		least := leastOf(gpu, s)
		if there := thereIs(gpu, s, &host); s.Limit > there {
			*s = s.limited(there)
			r.stamp(a.config.Now())
		}
		terms := *s
		if most.Memory > 0 {
			terms = terms.limited(max(memory, least))
		}
		if !slices.Contains(had.gpus, gpu.Index) {
			had.gpus = append(had.gpus, gpu.Index)
		}
		if at := slices.Index(had.gpus, gpu.Index); most.GPUs > 0 && at >= most.GPUs {
			terms = terms.limited(least).unguaranteed()
			beyond = fmt.Sprintf("it has a share of GPU %d, and the administrator allows shares on %d GPUs", gpu.Index, most.GPUs)
		}
		memory -= min(memory, terms.Limit)
		if most.Weight > 0 {
			terms.Weight = min(terms.Weight, most.Weight)
		}
		if guaranteed := terms.Guaranteed(terms.Cores); most.Cores > 0 && guaranteed > cores {
			terms = terms.unguaranteed()
		} else {
			cores -= min(cores, guaranteed)
		}
		if beyond == "" && terms.Limit < s.Limit {
			beyond = fmt.Sprintf("it has %s of GPU %d, and the administrator's limits leave it %s", amount(s.Limit), gpu.Index, amount(terms.Limit))
		}
		if terms != *s {
			*s = s.with(terms)
			r.stamp(a.config.Now())
		}
	}
	return beyond
}

// leastOf is the least that a share which runs can be: it has one context already, and a swap share what it keeps.
func leastOf(gpu backend.GPU, s *share) uint64 {
	if s.Swap {
		return s.kept() + v1alpha1.BlockBytes
	}
	return gpu.ContextBytes + gpu.Unit
}

// thereIs is the most that the machine has for a share: its GPU, and for a swap share host memory, of which it takes so much.
func thereIs(gpu backend.GPU, s *share, host *uint64) uint64 {
	if !s.Swap {
		return gpu.Capacity()
	}
	there := max(*host, leastOf(gpu, s))
	*host -= min(*host, s.Limit)
	return there
}

// limited is the share with no more memory than that. A swap share keeps as much of it as before.
func (s share) limited(most uint64) share {
	if s.Limit <= most {
		return s
	}
	if s.Swap {
		s.Kept = v1alpha1.Bytes(s.kept())
	}
	s.Limit = most
	return s
}

// unguaranteed is the share without a part of the GPU's time that is its own.
func (s share) unguaranteed() share {
	s.Cores, s.ShareConfig = 0, v1alpha1.ShareConfig{Class: s.Class, Swap: s.Swap, Kept: s.Kept, SuspendAfter: s.SuspendAfter}
	s.Default(0)
	return s
}

// tellBound says that a share that was taken over is beyond what its user may have.
func (a *Agent) tellBound(r *record, text string) {
	a.events.add(control.Event{
		Kind: control.EventLimit, Tenant: r.Name, User: r.User,
		Text: text + ": what it has in use beyond that stays until it is freed, and nothing more can be allocated",
	})
}

// started is since when a tenant that is taken over has run: what is told by the kernel
// of its processes counts, and what its user tells only if that is earlier. Starts of
// processes are coarse, so they say nothing of the order within a second.
func started(r *record, said, since time.Time) time.Time {
	first := r.Created
	if !said.IsZero() && said.Before(first) {
		first = said
	}
	processes := []time.Time{since}
	if r.Holder != (process.ID{}) {
		processes = append(processes, r.Holder.Started())
	}
	for _, start := range processes {
		if !start.IsZero() && first.Sub(start) > time.Second {
			first = start
		}
	}
	return first
}
