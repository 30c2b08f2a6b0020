package agent

import (
	"cmp"
	"context"
	"maps"
	"slices"

	"github.com/divvy-gpu/divvy/internal/alloc"
)

// keeping is how it is decided which GPUs each waiting request keeps, in the order of the
// queue: as many as it asks for, those on which it can be served soonest. The others that
// could serve it are free for everybody who does not keep it from being served first.
type keeping struct {
	agent *Agent
	gpus  []alloc.GPU
	// keepers count, for each GPU, the requests so far that keep it.
	keepers []int
	users   map[int]*waitingUser
	// host is the host memory that tenants have and the requests so far need.
	host uint64
}

// waitingUser is a user whose requests wait: what they may have, and what they have
// together with what their requests so far wait for.
type waitingUser struct {
	requester
	had held
}

// arrange decides again, if anything has changed, which GPUs waiting requests keep.
// Agent.mu is held.
func (a *Agent) arrange(ctx context.Context) {
	if a.arranged == a.changed {
		return
	}
	a.arranged = a.changed
	if len(a.queue) == 0 {
		return
	}
	k := keeping{agent: a, gpus: a.granted(ctx, nil), keepers: make([]int, len(a.gpus)), users: map[int]*waitingUser{}, host: a.hostTaken(nil)}
	for _, t := range a.queue {
		k.next(t)
	}
}

// next decides for the next request of the queue. One that only its user's own limits keep
// waiting, beside what the same user's requests before it wait for, keeps nothing: so
// nobody keeps more than they may have at once.
func (k *keeping) next(t *ticket) {
	before := t.lacks
	t.keeps, t.may, t.lacks, t.host = 0, 0, nil, 0
	who := k.user(t.UID)
	had := &who.had
	chosen, may := k.choose(t, before, who)
	if len(chosen) == 0 {
		return
	}
	sum, cores := uint64(0), len(chosen)*t.Request.Guaranteed(t.Request.Cores)
	for _, i := range chosen {
		sum += t.Request.Memory.Of(k.gpus[i].Capacity)
	}
	if t.Request.Profile != "" {
		least := k.agent.needOn(k.gpus[chosen[0]].UUID, t.UID, k.agent.requestOf(t.UID, t.Request))
		sum, cores = least.memory, least.cores
	}
	if who.room(*had, len(chosen), sum, cores) != nil {
		return
	}
	if t.Request.Swap {
		if who.roomOnHost(*had, sum) != nil {
			return
		}
		t.host, had.host = sum, had.host+sum
		if k.host += sum; k.host > k.agent.config.SwapMemory {
			return // no GPU can serve it before there is host memory
		}
	}
	had.memory, had.cores = had.memory+sum, had.cores+cores
	t.may, t.lacks = may, map[int]lack{}
	for _, i := range chosen {
		t.keeps |= 1 << i
		t.lacks[i] = k.lack(t, i)
		k.keepers[i]++
		if !who.uses(k.gpus[i]) {
			had.gpus = append(had.gpus, k.gpus[i].Index)
		}
	}
}

// choose are the places of the GPUs that a request keeps, none if too few can serve it,
// and all that could.
func (k *keeping) choose(t *ticket, before map[int]lack, who *waitingUser) (chosen []int, may gpuSet) {
	more := who.more() // on how many GPUs besides
	var all []rank
	for i := range k.gpus {
		allowed := more > 0 || who.uses(k.gpus[i])
		if t.gpus.has(1<<i) && k.gpus[i].Fault == "" && allowed {
			all, may = append(all, k.rank(t, before, i)), may|1<<i
		}
	}
	slices.SortFunc(all, rank.compare)
	for _, r := range all {
		if len(chosen) == t.Request.GPUs {
			break
		}
		if !who.uses(k.gpus[r.place]) {
			if more == 0 {
				continue
			}
			more--
		}
		chosen = append(chosen, r.place)
	}
	if len(chosen) < t.Request.GPUs {
		return nil, 0
	}
	return chosen, may
}

// rank is how soon a GPU can serve a request.
type rank struct {
	place   int
	keepers int // requests before it that keep the GPU
	lack    lack
	// stays is true for a GPU that the request kept before, and that lacks no more than
	// then: to give up what drains for it would be to begin again.
	stays bool
}

func (k *keeping) rank(t *ticket, before map[int]lack, place int) rank {
	r := rank{place: place, keepers: k.keepers[place], lack: k.lack(t, place)}
	was, kept := before[place]
	r.stays = kept && !r.lack.exceeds(was)
	return r
}

// compare puts first what can serve now, then what nobody before keeps, then what is kept
// already, then what lacks least.
func (r rank) compare(o rank) int {
	no := func(b bool) int {
		if b {
			return 0
		}
		return 1
	}
	return cmp.Or(
		no(r.serves())-no(o.serves()), r.keepers-o.keepers, no(r.stays)-no(o.stays),
		cmp.Compare(r.lack.memory, o.lack.memory), r.lack.cores-o.lack.cores, r.place-o.place,
	)
}

// serves reports whether the request has room there now.
func (r rank) serves() bool { return r.keepers == 0 && r.lack == lack{} }

// lack is what a GPU has too little of for a request now.
type lack struct {
	memory uint64
	cores  int
}

func (l lack) exceeds(o lack) bool { return l.memory > o.memory || l.cores > o.cores }

func (k *keeping) lack(t *ticket, place int) (l lack) {
	gpu := &k.gpus[place]
	if t.Request.Profile != "" {
		return k.agent.lacksInstance(gpu, t)
	}
	other := gpu.Form != "" && gpu.Form != string(t.Request.Backend.Form()) || gpu.User != "" && gpu.User != t.User
	if t.Request.Overcommit && !other && !t.Request.Swap {
		return l
	}
	request := k.agent.requestOf(t.UID, t.Request)
	memory, cores := request.Needs(gpu, t.Request.Memory.Of(gpu.Capacity)), t.Request.Guaranteed(t.Request.Cores)
	l.memory = memory - min(memory, gpu.FreeMemory())
	if other {
		l.memory = max(l.memory, gpu.Granted) // all shares there have to end first
	}
	l.cores = max(0, cores-gpu.FreeCores())
	return l
}

// user is the user of a request.
func (k *keeping) user(uid int) *waitingUser {
	if k.users[uid] == nil {
		k.users[uid] = &waitingUser{requester: k.agent.requester(uid, false), had: k.agent.heldBy(uid, nil)}
	}
	return k.users[uid]
}

// uses reports whether the user has shares on a GPU or waits for it already.
func (u *waitingUser) uses(gpu alloc.GPU) bool { return slices.Contains(u.had.gpus, gpu.Index) }

// more is on how many GPUs more the user may have shares.
func (u *waitingUser) more() int {
	if u.limits.GPUs == 0 {
		return alloc.MaxGPUs
	}
	return max(0, u.limits.GPUs-len(u.had.gpus))
}

// kept are the indexes of the GPUs that a request keeps, for listings. Agent.mu is held.
func (a *Agent) kept(t *ticket) (indexes []int) {
	for _, i := range slices.Sorted(maps.Keys(t.lacks)) {
		indexes = append(indexes, a.gpus[i].Index)
	}
	return indexes
}
