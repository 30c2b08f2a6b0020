package agent

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"time"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/agent/control"
	"github.com/divvy-gpu/divvy/internal/agentconfig"
	"github.com/divvy-gpu/divvy/internal/backend"
	"github.com/divvy-gpu/divvy/internal/process"
)

// Heritage is where a user's own agent keeps the directories of its tenants.
type Heritage struct {
	UID     int
	Tenants string
}

// errForeign marks what a user's own agent left and no agent would have granted.
var errForeign = errors.New("it is not as an agent makes it")

// Inherit takes over the tenants that users' own agents left. All that is found is the
// word of its user. It counts while the kernel sees a process that lives by it, and
// never for more than the machine has and than limits says of the user. Taking over
// again, after an agent died at it, changes nothing.
func (a *Agent) Inherit(ctx context.Context, from []Heritage, limits func(uid int) agentconfig.Limits) error {
	adopters := a.config.Backends.Adopters()
	if len(adopters) == 0 {
		return nil
	}
	left := map[int]time.Duration{} // of longestInheritance, by user
	for _, h := range from {
		if _, begun := left[h.UID]; !begun {
			left[h.UID] = longestInheritance
		}
		begin := time.Now()
		for _, adopter := range adopters {
			a.inheritFrom(ctx, adopter, h, limits(h.UID), left[h.UID])
		}
		left[h.UID] -= time.Since(begin)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if err := a.save(); err != nil {
		return fmt.Errorf("take over from users' own agents: %w", err)
	}
	a.step("inherit-saved")
	a.publish()
	return nil
}

// longestInheritance is for how long one user's directories are looked through, all
// together: nobody else is served meanwhile. An agent that found little leaves it in some
// milliseconds.
const longestInheritance = 10 * time.Second

// inheritFrom takes over the tenants of one place, as many as the time is enough for, the
// oldest first.
func (a *Agent) inheritFrom(ctx context.Context, adopter backend.Adopter, h Heritage, most agentconfig.Limits, within time.Duration) {
	bounded, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	found, err := adopter.Strangers(bounded, h.Tenants, h.UID)
	if err != nil {
		a.tellStranger(ctx, h.UID, h.Tenants, err)
	}
	slices.SortFunc(found, func(x, y backend.Stranger) int { return x.Created.Compare(y.Created) })
	for i, f := range found {
		if bounded.Err() != nil && ctx.Err() == nil {
			a.tellStranger(ctx, h.UID, h.Tenants, fmt.Errorf("%w: looking through it takes too long; %d of %d are left", errForeign, len(found)-i, len(found)))
			return
		}
		if err := a.inherit(ctx, adopter, h.UID, f, most); err != nil {
			a.tellStranger(ctx, h.UID, f.Tenant.Dir, err)
		}
	}
}

func (a *Agent) tellStranger(ctx context.Context, uid int, dir string, err error) {
	a.config.Log.WarnContext(ctx, "cannot take over what a user's own agent left", "user", process.UserName(uid), "dir", dir, "error", err)
	a.events.add(control.Event{Kind: control.EventFault, Text: fmt.Sprintf("%s of user %s is not taken over: %v", dir, process.UserName(uid), err)})
}

// knows reports whether a directory is that of a tenant of this agent: root's own agent
// and the system's keep theirs in one place. Or it was taken over already; then what
// another agent changed since becomes its record.
func (a *Agent) knows(ctx context.Context, dir string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, t := range a.tenants {
		if t.Dir != dir && t.Origin != dir {
			continue
		}
		if a.hear(t) {
			a.resync(ctx, t)
		}
		return true
	}
	return false
}

// inherit takes one tenant over. One that was taken over already, that nobody lives by,
// or that has shares of other machines' GPUs is left alone.
func (a *Agent) inherit(ctx context.Context, adopter backend.Adopter, uid int, f backend.Stranger, most agentconfig.Limits) error {
	if a.knows(ctx, f.Tenant.Dir) {
		return nil
	}
	if f.Err != nil {
		return f.Err
	}
	r, err := a.strangerRecord(uid, f)
	if r == nil || err != nil {
		return err
	}
	a.mu.Lock()
	beyond := a.bound(r, nil, most)
	r.ID, r.Name = a.freeID(r), a.freeName(uid, r.Name)
	wanted := a.tenantOf(r)
	a.mu.Unlock()
	for _, s := range wanted.Shares {
		if err := a.enterForm(ctx, s.GPU, wanted.Backend); err != nil { // its processes run, and count in any case
			a.tellStranger(ctx, uid, r.Origin, fmt.Errorf("prepare GPU %d for backend %s: %w", s.GPU.Index, wanted.Backend, err))
		}
	}
	plan, err := a.planWithRecord(wanted, r)
	if err != nil {
		return err
	}
	r.Dir, wanted.Dir = plan.Dir, plan.Dir
	if wanted.Record, err = a.keptOf(r); err != nil {
		return err
	}
	a.step("inherit-begun")
	if own, ok := a.makerOf(wanted).(backend.Adopter); ok {
		adopter = own // with which its shares go on
	}
	fault := adopter.Adopt(ctx, r.Origin, wanted)
	if fault == nil && !a.makerOf(wanted).Complete(wanted) { // it stays where root's own agent made it
		r.Dir, r.Origin, r.Cooperative = r.Origin, "", false
	}
	a.step("inherit-adopted")
	a.mu.Lock()
	defer a.mu.Unlock()
	t := &tenant{record: *r, ready: true}
	a.tenants[t.ID] = t
	a.keep(ctx, t)
	a.follow(ctx, t)
	if beyond != "" {
		a.tellBound(r, beyond)
	}
	if had := cmp.Or(f.Tenant.Backend, v1alpha1.BackendSlice); had != t.backend() {
		a.events.add(control.Event{
			Kind: control.EventLimit, Tenant: t.Name, User: t.User,
			Text: goesOn(had, t.backend()),
		})
	}
	a.config.Log.InfoContext(ctx, "took a share over", "tenant", t.Name, "user", t.User, "from", r.Origin)
	if fault != nil {
		return fmt.Errorf("it is counted while its first process lives, and cannot be changed: %w", fault)
	}
	return nil
}

// strangerID is an id as agents make them.
var strangerID = regexp.MustCompile(`^[0-9a-f]{8}$`)

// strangerRecord makes a record of what was found. It returns nil for a tenant that is
// none of this agent's business.
func (a *Agent) strangerRecord(uid int, f backend.Stranger) (*record, error) {
	said := &record{}
	if k, err := keptFile.Decode(f.Record); err == nil {
		if k.Agent == a.config.Checkpoint {
			return nil, nil // found beside those of root's own agent
		}
		said = &k.Tenant
	}
	r := &record{
		ID: f.Tenant.ID, Name: cmp.Or(said.Name, f.Tenant.Name), UID: uid, User: process.UserName(uid), Layer: f.Tenant.Layer,
		Command: control.ShortCommand(said.Command), Created: f.Created, Origin: f.Tenant.Dir, Cooperative: true, Changed: f.Tenant.Changed,
	}
	for _, s := range f.Tenant.Shares {
		if a.gpu(s.GPU.UUID).Index < 0 {
			return nil, nil // of a simulated machine of the user's own
		}
		if slices.ContainsFunc(r.Shares, func(o share) bool { return o.UUID == s.GPU.UUID }) {
			return nil, fmt.Errorf("%w: it has two shares of GPU %s", errForeign, s.GPU.UUID)
		}
		with := a.inherits(uid, s.GPU.UUID, f.Tenant.Backend)
		one := toldShare(&f.Tenant, withoutCeiling(s, f.Tenant.Backend, with), with)
		one.SuspendAfter = saidToSuspend(said, s.GPU.UUID, &one)
		r.Shares = append(r.Shares, one)
	}
	if said.Away != AwayNot {
		r.Away = AwayLeaving // where its memory is, is its user's word: it counts everywhere
	}
	r.Holder = a.strangerHolder(uid, said.Holder, f.Tenant)
	r.Created = started(r, said.Created, f.Since)
	if !f.Live && r.Holder == (process.ID{}) {
		return nil, nil
	}
	return r, nil
}

// saidToSuspend is after how long a user's own agent suspended a share, 0 where it did not or the share cannot be.
func saidToSuspend(said *record, uuid string, one *share) v1alpha1.Duration {
	at := slices.IndexFunc(said.Shares, func(s share) bool { return s.UUID == uuid })
	if at < 0 {
		return 0
	}
	config := one.ShareConfig
	if config.SuspendAfter = said.Shares[at].SuspendAfter; config.Validate(one.Cores) != nil {
		return 0
	}
	return config.SuspendAfter
}

// inherits is the backend that a user's share of a GPU goes on with. Only who may choose
// another one for that GPU keeps it: see deniedBackend. A share by MPS lives by its agent's daemon and by no other, root's
// too: one that lives by this agent's is known to it.
func (a *Agent) inherits(uid int, uuid string, had v1alpha1.Backend) v1alpha1.Backend {
	if had == v1alpha1.BackendMPS || a.deniedBackend(requester{uid: uid}, had, "") != nil || !a.serves(a.gpu(uuid), had, "") {
		return v1alpha1.BackendSlice
	}
	return had
}

// strangerHolder is the process that keeps a tenant, if it lives and is the user's.
func (a *Agent) strangerHolder(uid int, said process.ID, t backend.Tenant) process.ID {
	for _, id := range []process.ID{said, a.makerOf(t).Holder(t)} {
		if id.PID > 1 && process.Owner(id.PID) == uid && id.Alive() {
			return id
		}
	}
	return process.ID{}
}

// freeID is the id that was found, or another where that is none or is in use: always
// the same one, so that an agent that takes over again finds what was made. Agent.mu is
// held.
func (a *Agent) freeID(r *record) string {
	id := r.ID
	for n := 0; a.tenants[id] != nil || !strangerID.MatchString(id); n++ {
		sum := sha256.Sum256(fmt.Appendf(nil, "%s %d", r.Origin, n))
		id = hex.EncodeToString(sum[:4])
	}
	return id
}

// freeName is a name that no other share of the user has, made of the given one.
// Agent.mu is held.
func (a *Agent) freeName(uid int, name string) string {
	base := unfit.ReplaceAllString(name, "-")
	base = cmp.Or(base[:min(len(base), 40)], "share")
	name = base
	taken := a.takenNames(uid)
	for n := 2; taken[name]; n++ {
		name = base + "-" + strconv.Itoa(n)
	}
	return name
}
