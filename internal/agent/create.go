package agent

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"slices"
	"time"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/agent/control"
	"github.com/divvy-gpu/divvy/internal/alloc"
	"github.com/divvy-gpu/divvy/internal/backend"
	"github.com/divvy-gpu/divvy/internal/process"
	"github.com/divvy-gpu/divvy/internal/visible"
)

func (a *Agent) create(ctx context.Context, peer *control.Peer, p control.CreateParams) (*control.Created, error) {
	if _, err := peer.Holder(); err != nil {
		return nil, err
	}
	if peer.Maker != peer.UID {
		return nil, control.Errorf(control.CodeDenied, "you are user %d only in a user namespace of %s's, and shares are for users of this machine: ask as %[2]s", peer.UID, process.UserName(peer.Maker))
	}
	switch p.Layer {
	case control.LayerNamespace, control.LayerEnv:
	case control.LayerContainer:
		return a.createLasting(ctx, peer, p)
	default:
		return nil, control.Errorf(control.CodeInvalid, "layer %q: use namespace, env or container", p.Layer)
	}
	if err := p.Remote.Fault(); err != nil {
		return nil, err
	}
	if p.For != nil {
		return nil, control.Errorf(control.CodeInvalid, "a share for another user is one for containers (layer container)")
	}
	t, err := a.grant(ctx, peer, a.requester(peer.UID, !p.Wait), p)
	if err != nil {
		return nil, err
	}
	created := &control.Created{Edits: t.plan.Edits, Worker: t.plan.Worker}
	if err := a.startWorker(ctx, t, p.Environment, created); err != nil {
		return nil, err
	}
	a.hold(ctx, peer, t)
	a.step("create-held")
	created.Tenant = a.describe(t)
	return created, nil
}

// grant enters a tenant of the peer's into the ledger and has it made. What may be asked for is the right of who asks.
func (a *Agent) grant(ctx context.Context, peer *control.Peer, asker requester, p control.CreateParams) (*tenant, error) {
	who := a.requester(peer.UID, !p.Wait)
	who.unsized, who.open = p.Request.Memory.IsZero(), leftOpen(p.Request.Backend)
	if err := cmp.Or(asker.denied(p.Request.Overcommit), a.deniedBackend(asker, p.Request.Backend, p.Request.Profile)); err != nil {
		return nil, err
	}
	asked, version := time.Now(), a.divisions.version()
	t, err := a.enrol(ctx, peer, who, p, true)
	if err != nil && a.readSince(ctx, asked, version, p.Request) {
		t, err = a.enrol(ctx, peer, who, p, false)
	}
	if err != nil {
		return nil, err
	}
	a.step("create-admitted")
	err = a.makeInstances(ctx, t)
	if errors.Is(err, errStale) {
		if err = a.drop(t); err == nil {
			t, err = a.enrol(ctx, peer, who, p, false)
		}
		if err != nil {
			return nil, err
		}
		err = a.makeInstances(ctx, t)
	}
	if err == nil {
		err = a.enterForms(ctx, t)
	}
	if err == nil {
		err = a.chooseWorker(t)
	}
	if err == nil {
		err = a.prepare(ctx, t, p.LibraryPath)
	}
	if err != nil {
		return nil, errors.Join(err, a.drop(t))
	}
	return t, nil
}

// enrol enters a tenant into the ledger, as soon as there is room where the request waits. The policy that places MIG
// instances learns a request only once.
func (a *Agent) enrol(ctx context.Context, peer *control.Peer, who requester, p control.CreateParams, learn bool) (*tenant, error) {
	var err error
	if p.Request, err = a.decided(ctx, who, p.Request); err != nil {
		return nil, err
	}
	if err := lastingBackend(p); err != nil {
		return nil, err
	}
	if err := a.config.Backends.Of(p.Request.Backend).Health(ctx); err != nil {
		return nil, err
	}
	who.request = a.requestOf(peer.UID, p.Request)
	if err := a.neverFits(ctx, who); err != nil {
		return nil, err
	}
	if learn {
		if err := a.learn(ctx, who.request); err != nil {
			return nil, err
		}
	}
	a.catchUp(ctx, peer.UID)
	return a.admit(ctx, peer, who, p)
}

// decided is the request with what it leaves out: its defaults, its backend and the GPUs that it may have. A request that
// can never be granted is an error.
func (a *Agent) decided(ctx context.Context, who requester, r v1alpha1.ShareRequest) (v1alpha1.ShareRequest, error) {
	if r.Profile != "" {
		r.Backend = forInstance(r.Backend)
	}
	r, err := a.completed(who, r)
	if err != nil {
		return r, err
	}
	if r.Backend == v1alpha1.BackendAuto {
		if r, err = a.choose(ctx, who, r); err != nil {
			return r, err
		}
	}
	if r, err = a.withProfile(ctx, who, r); err != nil {
		return r, err
	}
	if r.Among, err = a.suitable(r); err != nil {
		return r, err
	}
	return r, cmp.Or(a.otherBackend(r), a.neverOnHost(r), a.never(who, r))
}

// tryAdmit enters a tenant or returns why it does not fit on the GPUs that nobody awaits
// who came before. Agent.mu is held.
func (a *Agent) tryAdmit(ctx context.Context, peer *control.Peer, who requester, p control.CreateParams, mine *ticket, awaited gpuSet) (*tenant, error) {
	if awaited &= a.candidates(p.Request); mine != nil && awaited != 0 && awaited == mine.gpus {
		return nil, a.waitedLonger(awaited) // without a search: many can wait
	}
	name, err := a.name(peer.UID, p)
	if err != nil {
		return nil, err
	}
	holder, err := peer.Holder() // where it is zero, the connection alone holds the tenant
	if err != nil {
		return nil, err
	}
	lasting := p.Layer == backend.LayerContainer
	if lasting {
		holder = process.ID{} // it holds nothing
	}
	r := p.Request
	grants, err := a.placeFor(ctx, who, who.request)
	if err != nil {
		return nil, a.overtaking(ctx, who.request, awaited, err)
	}
	inOrder(grants, r.Among)
	id := a.unused(p.Ticket)
	if mine != nil {
		id = mine.Ticket
	}
	t := &tenant{record: record{
		ID: newID(), Ticket: id, Name: name, UID: peer.UID, User: process.UserName(peer.UID), Layer: p.Layer, Holder: holder,
		Command: control.ShortCommand(p.Command), Created: a.config.Now(), Overcommit: r.Overcommit,
		Unmade: lasting, Remote: p.Remote,
	}}
	for _, grant := range grants {
		s := share{UUID: grant.UUID, Limit: grant.Limit, Turn: grant.Turn, Cores: r.Cores, ShareConfig: r.ShareConfig, Instance: a.instanceFor(grant)}
		s.Made = a.makes(s)
		t.Shares = append(t.Shares, s)
	}
	t.request = new(who.request)
	t.request.Memory = r.Memory // as it was asked for: a percentage is one of what the instance has
	a.takeDebts(t)
	a.tenants[t.ID] = t
	a.announce()
	return t, nil
}

// resolve returns the UUIDs of the GPUs that a request names.
func (a *Agent) resolve(names []string) ([]string, error) {
	gpus := make([]visible.GPU, 0, len(a.gpus))
	for _, gpu := range a.gpus {
		gpus = append(gpus, visible.GPU{Index: gpu.Index, UUID: gpu.UUID})
	}
	uuids, err := visible.Resolve(gpus, names)
	switch {
	case errors.Is(err, visible.ErrUnknown):
		return nil, &control.Error{Code: control.CodeNotFound, Message: err.Error()}
	case err != nil:
		return nil, &control.Error{Code: control.CodeInvalid, Message: err.Error()}
	}
	return uuids, nil
}

// inOrder sorts grants as their GPUs were named: the tenant numbers its GPUs so.
func inOrder(grants []alloc.Share, named []string) {
	slices.SortStableFunc(grants, func(x, y alloc.Share) int {
		return cmp.Compare(slices.Index(named, x.UUID), slices.Index(named, y.UUID))
	})
}

// prepare has the backend make the tenant. The checkpoint is written before, so
// that the next agent knows of everything that was made.
func (a *Agent) prepare(ctx context.Context, t *tenant, libraryPath []string) error {
	wanted := a.tenantOf(&t.record)
	wanted.LibraryPath = libraryPath
	plan, err := a.planWithRecord(wanted, &t.record)
	if err != nil {
		return err
	}
	a.mu.Lock()
	t.Dir, t.plan = plan.Dir, plan
	err = a.save()
	a.mu.Unlock()
	if err != nil {
		return err
	}
	a.step("create-saved")
	if err := a.makerOf(wanted).Apply(ctx, plan); err != nil {
		return err
	}
	a.step("create-made")
	return nil
}

// hold ties the tenant to the process and the connection that asked for it.
func (a *Agent) hold(ctx context.Context, peer *control.Peer, t *tenant) {
	a.mu.Lock()
	t.ready, t.connection, t.asker = true, true, peer
	a.follow(ctx, t)
	a.announce()
	a.mu.Unlock()
	life := context.WithoutCancel(ctx)
	a.running.Go(func() {
		select {
		case <-peer.Done():
			a.dropHold(life, t, func(t *tenant) { t.connection = false })
		case <-a.stopped:
		}
	})
}

// drop is forget for who does not hold Agent.mu.
func (a *Agent) drop(t *tenant) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.forget(t)
}

// forget takes a tenant out of the ledger. Agent.mu is held.
func (a *Agent) forget(t *tenant) error {
	t.ended = true
	a.leaveDebts(t)
	a.passOn(t)
	delete(a.tenants, t.ID)
	a.reform()
	a.members.forget(t.ID)
	a.giveGPUs()
	a.announce()
	return a.save()
}

func newID() string {
	var id [4]byte
	_, _ = rand.Read(id[:]) // never fails (crypto/rand)
	return hex.EncodeToString(id[:])
}
