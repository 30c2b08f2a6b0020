package agent

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/agent/control"
	"github.com/divvy-gpu/divvy/internal/agentconfig"
	"github.com/divvy-gpu/divvy/internal/excess"
)

// watched is what the driver tells of one tenant on one GPU.
type watched struct {
	// What follows is guarded by Agent.sweeping.
	judge  excess.Judge
	judged time.Time

	// What follows is guarded by Agent.mu.
	told     excess.Verdict // the last of which people were told
	observed *uint64        // bytes; nil where the driver does not tell
	by       map[int]uint64 // the same by pid
	pending  bool           // some process that may be the tenant's is not in them
	text     string         // for people, empty while all is well
	overhead uint64         // bytes beyond what the pages tell, as the agent measured
	// signalled counts processes that were stopped or killed for what they did there.
	signalled uint64
	past      string // that it is past its limit by overhead alone, else empty
}

// taken is what the processes of one tenant have on a GPU in one snapshot.
type taken struct {
	tenant    *tenant
	watched   *watched
	number    int // of the share, -1 where the tenant has none of the GPU
	processes []onGPU
	observed  *uint64 // the sum, nil where the driver does not tell
	// granted is the share's limit, before what it was before it was lowered, and told
	// what the pages told last; freshly is whether that was just now.
	granted, before, told uint64
	freshly               bool
}

// fresh is how old what pages tell may be to count as told with a snapshot.
const fresh = 300 * time.Millisecond

// judgedAgain is how much time must be between two readings of the driver's figures:
// figures that are read at once are the same figures.
const judgedAgain = excess.Again / 2

// compare compares what the processes of each tenant have on the GPUs, by the driver's
// figures, with what they were granted and with what their pages tell. It is called
// after the looks at tenants and reads pages only where the figures ask for it.
// sweeping is held.
func (a *Agent) compare(ctx context.Context, snapshots []snapshot) {
	a.suspicious = nil
	a.dropGauges()
	defer a.remember(snapshots)
	for i := range snapshots {
		v := &snapshots[i]
		// An agent in another pid namespace than the driver's knows some pids never.
		v.foreign = !a.initial && slices.ContainsFunc(v.strange, func(pid int) bool { return slices.Contains(a.strange[v.gpu.UUID], pid) })
		a.strange[v.gpu.UUID] = v.strange
		tenants := a.takenOn(v)
		a.measure(ctx, v, tenants)
		a.compareShares(ctx, v, tenants)
		a.compareWhole(ctx, v, tenants)
	}
}

// remember keeps what the driver told of all GPUs, for [Agent.Recent].
func (a *Agent) remember(snapshots []snapshot) {
	if len(snapshots) != len(a.gpus) {
		return
	}
	a.listings.mu.Lock()
	defer a.listings.mu.Unlock()
	a.listings.seen, a.listings.seenAt = snapshots, a.config.Now()
}

// recheck compares again, on the GPUs of which another reading decides.
func (a *Agent) recheck(ctx context.Context) {
	a.sweeping.Lock()
	defer a.sweeping.Unlock()
	a.compare(ctx, a.observe(ctx, a.suspicious...))
}

// suspect has a GPU looked at again soon. sweeping is held.
func (a *Agent) suspect(uuid string) {
	if !slices.Contains(a.suspicious, uuid) {
		a.suspicious = append(a.suspicious, uuid)
	}
}

// soon is when to compare again, nil if that has time until the next patrol.
func (a *Agent) soon() <-chan time.Time {
	a.sweeping.Lock()
	defer a.sweeping.Unlock()
	if len(a.suspicious) == 0 {
		return nil
	}
	return time.After(moment(excess.Again))
}

// moment is a random time from half of the mean to one and a half: who knows when the
// agent looks gives back until then.
func moment(mean time.Duration) time.Duration {
	return mean/2 + rand.N(mean)
}

// takenOn are the tenants that have a share of the GPU or processes on it.
func (a *Agent) takenOn(v *snapshot) []taken {
	processes, pending := a.byTenant(v)
	a.mu.Lock()
	defer a.mu.Unlock()
	var all []taken
	for _, t := range a.sorted() {
		k := taken{tenant: t, processes: processes[t.ID]}
		k.number = slices.IndexFunc(t.Shares, func(s share) bool { return s.UUID == v.gpu.UUID })
		if !t.ready || t.ended || k.number < 0 && len(k.processes) == 0 {
			continue
		}
		if v.listed && !v.foreign {
			k.observed = sumOf(k.processes)
		}
		k.tell()
		k.watched = t.watched(v.gpu.UUID)
		k.watched.observed, k.watched.by, k.watched.pending = k.observed, nil, pending[t.UID] || pending[t.Worker] && t.Worker != 0 || t.contained() && len(pending) > 0
		if k.observed != nil {
			k.watched.by = map[int]uint64{}
			for _, p := range k.processes {
				k.watched.by[p.id.PID] = *p.used
			}
		}
		if t.giveBack() {
			a.tell() // who waits may have the rest
		}
		all = append(all, k)
	}
	return all
}

// watched is what is known of the tenant on a GPU. Agent.mu is held.
func (t *tenant) watched(uuid string) *watched {
	if t.on == nil {
		t.on = map[string]*watched{}
	}
	if t.on[uuid] == nil {
		t.on[uuid] = &watched{}
	}
	return t.on[uuid]
}

// tell takes over the grant and what the pages told last. Agent.mu is held.
func (k *taken) tell() {
	if k.number < 0 {
		return
	}
	s := k.tenant.Shares[k.number]
	k.granted, k.before, k.told = s.Limit, s.Before, k.tenant.used(k.number)
	k.freshly = k.tenant.fault == "" && len(k.tenant.seen.Usage) > k.number && time.Since(k.tenant.seenAt) < fresh
}

// renew looks at the tenant's pages unless they were read just now.
func (a *Agent) renew(ctx context.Context, k *taken) {
	if k.number < 0 || k.freshly {
		return
	}
	a.lookAt(ctx, k.tenant)
	a.mu.Lock()
	defer a.mu.Unlock()
	k.tell()
}

// compareShares judges each tenant by what its processes have.
func (a *Agent) compareShares(ctx context.Context, v *snapshot, tenants []taken) {
	now := time.Now()
	for i := range tenants {
		k := &tenants[i]
		judge := &k.watched.judge
		if k.observed == nil {
			judge.Unknown()
			a.tellExcess(ctx, v, k, excess.Fits)
			continue
		}
		if now.Sub(k.watched.judged) < judgedAgain {
			continue
		}
		k.watched.judged = now
		tolerance := excess.Tolerance(k.granted, len(k.processes), v.gpu.ContextBytes)
		if *k.observed > min(k.granted, k.told)+tolerance {
			// What the dead had is free, or the next one's: the driver's list may be late.
			k.processes = slices.DeleteFunc(k.processes, func(p onGPU) bool { return !p.id.Alive() })
			k.observed = sumOf(k.processes)
			a.renew(ctx, k)
		}
		reading := excess.Reading{
			Held: *k.observed, Most: mostOf(k.processes), Granted: k.granted, Before: k.before, Processes: len(k.processes), Context: v.gpu.ContextBytes,
		}
		if k.freshly || k.number < 0 {
			reading.Told = &k.told
		}
		verdict := judge.Read(now, reading)
		if judge.Suspects() {
			a.suspect(v.gpu.UUID)
		}
		a.tellExcess(ctx, v, k, verdict)
		switch {
		case verdict != excess.Exceeds || !judge.Beyond():
		case judge.Again(now):
			a.answerExcess(ctx, k.tenant.ID, v.gpu.UUID, 0) // it may have given back since
		default:
			a.answerExcess(ctx, k.tenant.ID, v.gpu.UUID, judge.Allowed()+tolerance)
		}
	}
}

// tellExcess shows what a tenant does, and tells of it once.
func (a *Agent) tellExcess(ctx context.Context, v *snapshot, k *taken, verdict excess.Verdict) {
	text := ""
	switch {
	case verdict == excess.Fits:
	case k.number < 0:
		text = fmt.Sprintf("its processes have %s of a GPU of which it has no share", v1alpha1.FormatBytes(*k.observed))
	case verdict == excess.Exceeds && k.watched.judge.Again(time.Now()):
		text = fmt.Sprintf("its processes took %s and more again and again by the driver's figures, and it was granted %s", v1alpha1.FormatBytes(k.watched.judge.Most()), v1alpha1.FormatBytes(k.granted))
	case verdict == excess.Exceeds:
		text = fmt.Sprintf("its processes have %s by the driver's figures, and it was granted %s", v1alpha1.FormatBytes(*k.observed), v1alpha1.FormatBytes(k.granted))
	default:
		text = fmt.Sprintf("its processes have %s by the driver's figures, and its pages tell of %s", v1alpha1.FormatBytes(*k.observed), v1alpha1.FormatBytes(k.told))
	}
	if verdict == excess.Exceeds {
		switch a.config.Misuse {
		case agentconfig.OutsideStop:
			text += ": its processes on the GPU were stopped (SIGSTOP); `divvy stop` ends it"
		case agentconfig.OutsideKill:
			text += ": its processes on the GPU were killed"
		}
	}
	a.mu.Lock()
	name, news := k.tenant.Name, text != "" && verdict != k.watched.told
	k.watched.text, k.watched.told = text, verdict
	a.mu.Unlock()
	if news {
		a.config.Log.WarnContext(ctx, "GPU memory is misused", "tenant", name, "gpu", v.gpu.UUID, "reason", text)
		a.events.add(control.Event{Kind: control.EventExcess, Tenant: name, User: k.tenant.User, UUID: v.gpu.UUID, Text: text})
	}
}

// whole is what is known of a GPU as a whole.
type whole struct {
	// listed and hidden are guarded by Agent.sweeping: the one where the driver tells
	// what each process has, the other where it does not.
	listed, hidden excess.Whole

	// What follows is guarded by Agent.mu.
	unseen string // why shares are not compared one by one
	text   string // for people, empty while all is well
}

// What is said of a GPU of which the driver tells less.
const (
	hiddenText  = "the driver does not tell what each process has: its shares are compared together with what all of the GPU has in use"
	foreignText = "the driver lists processes of another pid namespace than the agent's: nobody notices who takes more memory than granted"
)

// wholeOf is what is known of a GPU as a whole, which is nothing at first.
// Agent.sweeping is held.
func (a *Agent) wholeOf(uuid string) *whole {
	w := a.wholes[uuid]
	if w == nil {
		w = &whole{}
		a.mu.Lock()
		a.wholes[uuid] = w
		a.mu.Unlock()
	}
	return w
}

// compareWhole judges a GPU by all that it has in use: what no process on the driver's
// list has, or what its shares have beyond their grants where figures of processes are
// hidden.
func (a *Agent) compareWhole(ctx context.Context, v *snapshot, tenants []taken) {
	w := a.wholeOf(v.gpu.UUID)
	judge, other, unseen := &w.listed, &w.hidden, ""
	if v.hidden {
		judge, other, unseen = &w.hidden, &w.listed, hiddenText
	}
	other.Unknown()
	if v.foreign {
		unseen = foreignText
	}
	accounted, ok := v.accounted(tenants)
	if v.used == nil || !v.listed || v.foreign || !ok {
		judge.Unknown()
		a.tellWhole(ctx, v, w, unseen, "")
		return
	}
	if *v.used > accounted+excess.LateCode {
		for i := range tenants {
			a.renew(ctx, &tenants[i])
		}
		accounted, _ = v.accounted(tenants)
	}
	now, text := time.Now(), ""
	beyond := judge.Read(now, *v.used, accounted)
	switch {
	case beyond > 0 && v.hidden:
		text = fmt.Sprintf("its shares have %s more than they were granted together", v1alpha1.FormatBytes(beyond))
	case beyond > 0:
		text = fmt.Sprintf("%s of its memory belong to no process that the driver lists and are charged to no share: an open descriptor may keep them", v1alpha1.FormatBytes(beyond))
	case judge.Suspects(now):
		a.suspect(v.gpu.UUID)
	}
	if names := namesOf(tenants); text != "" && names != "" {
		text += "; on it are " + names
	}
	a.tellWhole(ctx, v, w, unseen, text)
}

// accounted is how much of a GPU may be in use; ok is false where that is not known, as of a GPU in MIG mode, where the
// memory of an instance is in use as a whole.
func (v *snapshot) accounted(tenants []taken) (sum uint64, ok bool) {
	sum = v.sum
	hidden := hiddenOf(v.processes)
	for i := range tenants {
		k := &tenants[i]
		hidden -= hiddenOf(k.processes)
		most := k.granted + excess.Tolerance(k.granted, len(k.processes), v.gpu.ContextBytes)
		switch {
		case v.hidden && k.observed != nil:
			sum += most - min(most, *k.observed)
		case v.hidden:
			sum += max(most, k.before)
		case k.observed != nil:
			// Exported memory and what the dead had is charged but nobody's.
			told := min(k.told, max(most, k.before))
			sum += told - min(told, *k.observed)
		}
	}
	// What a process without a share has is not known where it is hidden.
	return sum, !v.divided && (!v.hidden || hidden <= 0 && len(v.strange) == 0)
}

// hiddenOf counts the processes of which the driver does not tell what they have.
func hiddenOf(processes []onGPU) (n int) {
	for _, p := range processes {
		if p.used == nil {
			n++
		}
	}
	return n
}

func namesOf(tenants []taken) string {
	var names []string
	for i := range tenants {
		names = append(names, tenants[i].tenant.fullName())
	}
	return strings.Join(names, ", ")
}

// tellWhole shows what is wrong with a GPU as a whole, and tells of it once.
func (a *Agent) tellWhole(ctx context.Context, v *snapshot, w *whole, unseen, text string) {
	a.mu.Lock()
	news := text != "" && w.text == ""
	newly := unseen != "" && w.unseen == ""
	w.unseen, w.text = unseen, text
	a.mu.Unlock()
	if newly {
		a.config.Log.WarnContext(ctx, "memory of processes is not compared", "gpu", v.gpu.Index, "reason", unseen)
	}
	if news {
		a.config.Log.WarnContext(ctx, "GPU memory is misused", "gpu", v.gpu.UUID, "reason", text)
		a.events.add(control.Event{Kind: control.EventExcess, UUID: v.gpu.UUID, Text: text})
	}
}
