package agent

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/agent/control"
	"github.com/divvy-gpu/divvy/internal/alloc"
	"github.com/divvy-gpu/divvy/internal/alloc/forms"
	"github.com/divvy-gpu/divvy/internal/backend"
	"github.com/divvy-gpu/divvy/internal/process"
)

// explain answers what each backend could do for a request. It takes nothing.
func (a *Agent) explain(ctx context.Context, peer *control.Peer, p control.ExplainParams) (*control.Explanation, error) {
	who := a.requester(peer.UID, false)
	who.unsized, who.open = p.Request.Memory.IsZero(), leftOpen(p.Request.Backend)
	wanted := p.Request.Backend
	if wanted != "" {
		if wanted != v1alpha1.BackendAuto && !slices.Contains(forms.All(), wanted) {
			return nil, control.Errorf(control.CodeInvalid, "backend %q is not known: use auto, slice, timeslice, mps, mig or remote", wanted)
		}
		p.Request.Backend = v1alpha1.BackendAuto // what is wrong with the one that is named is its verdict
	}
	if p.Request.Profile != "" {
		wanted = forInstance(wanted)
	}
	r, err := a.completed(who, p.Request)
	if err != nil {
		return nil, err
	}
	r.Backend = cmp.Or(wanted, r.Backend)
	verdicts := a.judge(ctx, who, r)
	answer := &control.Explanation{Request: r, Backends: verdicts}
	if v, ok := forms.Chosen(verdicts); ok {
		chosen := a.withBackend(who, r, v.Backend)
		if chosen, err = a.withProfile(ctx, who, chosen); err != nil {
			return nil, err
		}
		answer.Request.Memory, answer.Request.Profile = chosen.Memory, chosen.Profile
	} else {
		answer.Refused = forms.Refusal(r.Backend, r.Isolate, verdicts)
	}
	return answer, nil
}

// forInstance is the backend of a request with a MIG profile. Whoever leaves it open wants the instance: a part of one is
// asked for by its backend.
func forInstance(wanted v1alpha1.Backend) v1alpha1.Backend {
	if wanted == "" || wanted == v1alpha1.BackendAuto {
		return v1alpha1.BackendMIG
	}
	return wanted
}

// leftOpen reports whether a request as it was asked leaves its backend open.
func leftOpen(b v1alpha1.Backend) bool { return b == "" || b == v1alpha1.BackendAuto }

// completed is a request with what was left out, and with UUIDs of the GPUs that it names.
func (a *Agent) completed(who requester, r v1alpha1.ShareRequest) (v1alpha1.ShareRequest, error) {
	if r.Memory.IsZero() {
		r.Memory = a.memoryFor(who, r)
	}
	r.Default()
	if err := r.Validate(); err != nil {
		return r, &control.Error{Code: control.CodeInvalid, Message: err.Error()}
	}
	var err error
	r.Among, err = a.resolve(r.Among)
	return r, err
}

// withBackend is a complete request with that backend, and with the memory that it has there if it names none.
func (a *Agent) withBackend(who requester, r v1alpha1.ShareRequest, b v1alpha1.Backend) v1alpha1.ShareRequest {
	r.Backend = b
	if who.unsized {
		r.Memory = a.memoryFor(who, r)
		r.Default()
	}
	return r
}

// choose gives a request that lets the agent choose its backend: the best one that fits now, else the best one that the
// request can wait for.
func (a *Agent) choose(ctx context.Context, who requester, r v1alpha1.ShareRequest) (v1alpha1.ShareRequest, error) {
	a.catchUp(ctx, who.uid) // what has ended makes room for a better one
	verdicts := a.judge(ctx, who, r)
	if v, ok := forms.Chosen(verdicts); ok {
		return a.withBackend(who, r, v.Backend), nil
	}
	return r, &control.Error{Code: control.CodeInvalid, Message: forms.Refusal(r.Backend, r.Isolate, verdicts)}
}

// judge has a verdict about every backend for a request that is complete.
func (a *Agent) judge(ctx context.Context, who requester, r v1alpha1.ShareRequest) []forms.Verdict {
	var found []forms.Found
	for _, b := range forms.Preferred(r.Isolate) {
		if a.config.Backends.Has(b) {
			found = append(found, a.findForm(ctx, who, r, b))
		}
	}
	return forms.Judge(r.Backend, r.Isolate, found)
}

// findForm finds out what a backend could do for a request, as a whole and on each GPU.
func (a *Agent) findForm(ctx context.Context, who requester, r v1alpha1.ShareRequest, b v1alpha1.Backend) forms.Found {
	r = a.withBackend(who, r, b)
	f := forms.Found{Backend: b}
	never := r.Validate()
	if never == nil {
		r, never = a.withProfile(ctx, who, r)
	}
	if never == nil {
		never = cmp.Or(who.denied(r.Overcommit), a.otherBackend(r), a.neverOnHost(r), a.never(who, r), a.config.Backends.Of(b).Health(ctx))
	}
	if never == nil {
		r.Among, never = a.suitable(r)
	}
	who.request = a.requestOf(who.uid, r)
	if never == nil {
		never = cmp.Or(a.neverFits(ctx, who), a.deniedBackend(who, b, r.Profile)) // what not even root could have comes first
	}
	if never != nil {
		f.Never = plain(never)
		return f
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	request, awaited := who.request, a.awaited(ctx, nil)
	request.AvoidGPUs = a.uuidsOf(awaited)
	had := a.heldBy(who.uid, nil)
	who.ahead = a.hostAhead(nil)
	err := a.roomFor(who, had, request.Count, a.leastNeed(who.uid, request))
	if err == nil {
		var grants []alloc.Share
		if grants, err = a.search(ctx, nil, request); err == nil {
			err = a.roomFor(who, had, request.Count, a.needOf(who.uid, request, grants))
		}
	}
	if err != nil {
		f.Wait = a.facts(a.overtaking(ctx, who.request, awaited&a.candidates(r), err), nil)
	}
	for _, gpu := range a.gpus {
		f.GPUs = append(f.GPUs, a.findOn(ctx, r, who.request, gpu))
	}
	return f
}

// findOn finds out what a backend could do for one share of a request on a GPU. Agent.mu is held.
func (a *Agent) findOn(ctx context.Context, r v1alpha1.ShareRequest, request alloc.Request, gpu backend.GPU) forms.GPU {
	g := forms.GPU{Index: gpu.Index, UUID: gpu.UUID, State: forms.Never}
	request.Count = 1
	one := request
	one.Among = alloc.Names(gpu.UUID)
	why := a.unfit(r, gpu)
	switch {
	case why != "" && a.serves(gpu, r.Backend, r.Profile):
		g.Reason = fmt.Sprintf("GPU %d: %s", gpu.Index, why)
		return g
	case request.Among != "" && !request.Among.Has(gpu.UUID):
		g.Reason = "the request is for other GPUs"
		return g
	case !a.serves(gpu, r.Backend, r.Profile):
		g.Reason = a.whyNotServed(gpu, r)
		return g
	}
	_, err := a.search(ctx, nil, one)
	switch {
	case err == nil:
		g.State = forms.Fits
	case alloc.Waits(err):
		g.State, g.Reason = forms.Waits, a.facts(err, nil)
	default:
		g.Reason = a.facts(err, nil)
	}
	return g
}

// requestOf is a user's request as the allocator reads it.
func (a *Agent) requestOf(uid int, r v1alpha1.ShareRequest) alloc.Request {
	request := alloc.Request{
		Count: r.GPUs, Among: alloc.Names(strings.Join(r.Among, "|")), Memory: r.Memory, Cores: r.Guaranteed(r.Cores),
		Overcommit: r.Overcommit, OvercommitCores: r.Overcommit, Form: string(r.Backend.Form()), Swap: r.Swap, Kept: r.Kept,
	}
	if request.Profile = r.Profile; r.Profile != "" { // the amounts are relative to the instance
		request.Memory = v1alpha1.Bytes(max(1, r.Memory.Of(a.capacityFor(r))))
	}
	if r.Backend == v1alpha1.BackendMPS {
		request.User = process.UserName(uid)
	}
	return request
}

// plain is an error's text in one line, without what every error of a request begins with.
func plain(err error) string {
	return strings.ReplaceAll(strings.ReplaceAll(err.Error(), v1alpha1.ErrRequest.Error()+": ", ""), "\n", "; ")
}
