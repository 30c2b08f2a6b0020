package agent

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/agent/control"
	"github.com/divvy-gpu/divvy/internal/backend"
	"github.com/divvy-gpu/divvy/internal/plaintext"
	"github.com/divvy-gpu/divvy/internal/process"
)

// The lines of the log, by what became of a share.
var happenings = map[control.EventKind]string{
	control.EventGranted:   "a share is granted",
	control.EventChanged:   "a share is changed",
	control.EventRefused:   "a request is refused",
	control.EventMemory:    "allocations are refused",
	control.EventSuspended: "a share is suspended",
	control.EventResumed:   "a share is resumed",
	control.EventFault:     "a share has a fault",
	control.EventEnded:     "a share has ended",
}

// happened keeps an event about a share for listings, and logs it. What a user is refused
// again in the same words is one line.
func (a *Agent) happened(ctx context.Context, e control.Event) {
	if e.Kind == control.EventRefused && !a.events.mayRefuse(e.User) {
		return
	}
	if times := a.events.add(e); times > 1 && e.Kind == control.EventRefused {
		return
	}
	attrs := []any{"tenant", e.Tenant, "user", e.User, "text", e.Text}
	if e.UUID != "" {
		attrs = append(attrs, "gpu", e.UUID)
	}
	a.config.Log.InfoContext(ctx, happenings[e.Kind], attrs...)
}

// Follow has told called with what becomes of tenancies from now on: grants, refused allocations and ends. Told returns at
// once and asks nothing of the agent.
func (a *Agent) Follow(told func(Tenancy, control.Event)) { a.follower.Store(&told) }

// happenedTo is happened for a tenant's event, which the follower of tenancies hears too.
func (a *Agent) happenedTo(ctx context.Context, t *tenant, e control.Event) {
	a.happened(ctx, e)
	if told := a.follower.Load(); told != nil && t.Tenancy != nil {
		(*told)(*t.Tenancy, e)
	}
}

// mostRefused is how many refused requests of one user are told in a minute: whoever asks
// in a loop fills no log.
const mostRefused = 20

// refusedLately is what was told lately of refused requests of one user.
type refusedLately struct {
	since time.Time
	count int
}

// mayRefuse reports whether one more refused request of a user is to be told.
func (e *events) mayRefuse(user string) bool {
	now := e.now()
	e.mu.Lock()
	defer e.mu.Unlock()
	for name, r := range e.refused {
		if now.Sub(r.since) >= repeats {
			delete(e.refused, name)
		}
	}
	r, ok := e.refused[user]
	if !ok {
		r.since = now
	}
	r.count++
	if e.refused == nil {
		e.refused = map[string]refusedLately{}
	}
	e.refused[user] = r
	return r.count <= mostRefused
}

// createTold is create, with an event of what came of it.
func (a *Agent) createTold(ctx context.Context, peer *control.Peer, p control.CreateParams) (*control.Created, error) {
	created, err := a.create(ctx, peer, p)
	switch code := control.CodeOf(err); {
	case err == nil:
		t := &created.Tenant
		a.happened(ctx, control.Event{Kind: control.EventGranted, Tenant: t.Name, User: t.User, Text: grantText(t)})
	case code == control.CodeRefused || code == control.CodeDenied || code == control.CodeInvalid:
		a.happened(ctx, control.Event{Kind: control.EventRefused, Tenant: repeated(p.Request.Name), User: process.UserName(peer.UID), Text: repeated(err.Error())})
	}
	return created, err
}

// longestRepeated bounds what an event repeats of a request, in characters.
const longestRepeated = 400

// repeated is a text in which a requester may have had a word, fit for an event.
func repeated(text string) string { return plaintext.Line(text, longestRepeated) }

// grantText says what a tenant has.
func grantText(t *control.Tenant) string {
	var shares []string
	for i := range t.Shares {
		shares = append(shares, termsText(&t.Shares[i]))
	}
	return strings.Join(shares, "; ")
}

// termsText says what a share has of its GPU.
func termsText(s *control.Share) string {
	text := fmt.Sprintf("GPU %d: memory %s, policy %s", s.Index, v1alpha1.FormatBytes(s.Limit), s.Policy)
	if s.Cores > 0 {
		text += fmt.Sprintf(", cores %d", s.Cores)
	}
	if s.MaxCores > 0 {
		text += fmt.Sprintf(", max-cores %d", s.MaxCores)
	}
	if s.Policy == v1alpha1.PolicyWeighted {
		text += fmt.Sprintf(", weight %d", s.Weight)
	}
	return text + fmt.Sprintf(", class %s, backend %s", s.Class, s.Backend)
}

// tellChange tells of a change that somebody made.
func (a *Agent) tellChange(ctx context.Context, peer *control.Peer, before, after *control.Tenant) {
	was, is := grantText(before), grantText(after)
	if was == is {
		return
	}
	a.happened(ctx, control.Event{
		Kind: control.EventChanged, Tenant: after.Name, User: after.User,
		Text: fmt.Sprintf("by %s: now %s; before %s", process.UserName(peer.UID), is, was),
	})
}

// tenancyMade keeps a tenancy that was made, and tells of one that was not there before.
// Agent.mu is held.
func (a *Agent) tenancyMade(ctx context.Context, t *tenant, before bool) {
	a.keep(ctx, t)
	if before {
		return
	}
	var shares []string
	for _, s := range t.Shares {
		shares = append(shares, termsText(&control.Share{
			Index: a.gpu(s.UUID).Index, Limit: s.Limit, Cores: s.Cores, Policy: s.Policy, MaxCores: s.MaxCores, Weight: s.Weight, Class: s.Class, Backend: s.Backend,
		}))
	}
	a.happenedTo(ctx, t, control.Event{Kind: control.EventGranted, Tenant: t.Name, User: t.User, Text: strings.Join(shares, "; ")})
}

// toldRefusals is what was told of refused allocations of a share.
type toldRefusals struct {
	count uint64
	at    time.Time
}

// tellRefusals tells of allocations that a tenant was refused since this was told last: at
// once, and then once in a minute, or when the tenant ends. A page can count what it
// likes; that makes no more events. Agent.mu is held.
func (a *Agent) tellRefusals(ctx context.Context, t *tenant, found []backend.Usage, ends bool) {
	for i := range min(len(found), len(t.Shares)) {
		r := found[i].Refusals
		if r == nil {
			continue
		}
		if fresh := a.events.fresh(t.ID, i, r.ByLimit+r.ByGPU, ends); fresh > 0 {
			a.happenedTo(ctx, t, control.Event{
				Kind: control.EventMemory, Tenant: t.Name, User: t.User, UUID: t.Shares[i].UUID,
				Text: memoryText(a.gpu(t.Shares[i].UUID).Index, fresh, r),
			})
		}
	}
}

// fresh is how many refused allocations of a share are to be told now.
func (e *events) fresh(tenant string, share int, count uint64, ends bool) uint64 {
	now := e.now()
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.memory == nil {
		e.memory = map[string][]toldRefusals{}
	}
	told := e.memory[tenant]
	if share >= len(told) {
		told = append(told, make([]toldRefusals, share+1-len(told))...)
	}
	e.memory[tenant] = told
	one := &told[share]
	if count <= one.count || !ends && now.Sub(one.at) < repeats {
		return 0
	}
	fresh := count - one.count
	*one = toldRefusals{count, now}
	return fresh
}

// over forgets what was told of a tenant that has ended.
func (e *events) over(tenant string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.memory, tenant)
}

// mostTold is the largest amount that is told as a number, a PiB: a request can be of any.
const mostTold = 1 << 50

func memoryText(gpu int, fresh uint64, r *backend.Refusals) string {
	by := "by its limit"
	if r.LastByGPU {
		by = "by the GPU, which was full"
	}
	amount := "of more than any GPU has"
	if r.Last < mostTold {
		amount = "of " + v1alpha1.FormatBytes(r.Last)
	}
	if fresh == 1 {
		return fmt.Sprintf("GPU %d: an allocation %s was refused %s", gpu, amount, by)
	}
	return fmt.Sprintf("GPU %d: %d allocations were refused, the last %s %s", gpu, fresh, amount, by)
}
