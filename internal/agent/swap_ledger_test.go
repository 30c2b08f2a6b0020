package agent

import (
	"context"
	"errors"
	"math/rand/v2"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/agent/control"
	"github.com/divvy-gpu/divvy/internal/alloc"
	"github.com/divvy-gpu/divvy/internal/backend"
)

// paper is a backend that makes nothing: what is judged is the ledger alone.
type paper struct{ *pages }

func (paper) Plan(backend.Tenant) (*backend.Plan, error)       { return &backend.Plan{}, nil }
func (paper) Apply(context.Context, *backend.Plan) error       { return nil }
func (paper) Undo(context.Context, backend.Tenant) error       { return nil }
func (paper) Change(context.Context, backend.Tenant) error     { return nil }
func (paper) Alive(backend.Tenant) (bool, error)               { return true, nil }
func (paper) Keep(backend.Tenant) error                        { return nil }
func (paper) Complete(backend.Tenant) bool                     { return true }
func (paper) Recover(context.Context) ([]backend.Found, error) { return nil, nil }
func (paper) Told(t backend.Tenant) (backend.Tenant, error)    { return t, nil }
func (paper) Notices() (backend.Notices, error)                { return silence{}, nil }
func (paper) Look(_ context.Context, t backend.Tenant) (backend.Figures, error) {
	return backend.Figures{Usage: make([]backend.Usage, len(t.Shares)), Live: true}, nil
}

// silence notices nothing.
type silence struct{}

func (silence) Add(backend.Tenant) error                    { return nil }
func (silence) Remove(string)                               {}
func (silence) Run(ctx context.Context, _ backend.Listener) { <-ctx.Done() }
func (silence) Close()                                      {}

// entry is a share as the judge keeps it, from what was asked and answered.
type entry struct {
	id            string
	gpus          []string
	limit, kept   uint64   // of each GPU; kept is 0 for a share without swap
	turns         []uint64 // for which there was room, by GPU
	suspends, out bool     // out: host memory is reserved
	off           bool     // the GPUs are free of it
}

const ledgerMemory = 48 * gib

// judge returns by how much GPUs and host memory are exceeded.
func judge(entries []entry) (overGPU, overHost uint64) {
	host, onGPU, turns := uint64(0), map[string]uint64{}, map[string]uint64{}
	for _, e := range entries {
		for i, gpu := range e.gpus {
			switch {
			case e.kept > 0:
				onGPU[gpu] += e.kept
				turns[gpu] = max(turns[gpu], e.turns[i])
				host += e.limit
			case !e.off:
				onGPU[gpu] += e.limit
			}
			if e.out {
				host += e.limit
			}
		}
	}
	for gpu, capacity := range map[string]uint64{firstID: 80 * gib, otherID: 24 * gib} {
		all := onGPU[gpu] + turns[gpu]
		overGPU += all - min(all, capacity)
	}
	return overGPU, host - min(host, ledgerMemory)
}

// player makes random requests of one agent's ledger.
type player struct {
	t                                    *testing.T
	agent                                *Agent
	random                               *rand.Rand
	peer                                 *control.Peer
	entries                              []entry
	granted, changed, suspended, refused int
}

// bytes is a random amount in quarters of a GiB.
func (p *player) bytes(most uint64) uint64 { return (1 + p.random.Uint64N(4*most)) * gib / 4 }

func (p *player) create() {
	ask := control.CreateParams{Layer: control.LayerEnv, Request: v1alpha1.ShareRequest{Memory: v1alpha1.Bytes(p.bytes(20) + gib/2), GPUs: 1 + p.random.IntN(6)/5}}
	switch r := &ask.Request; p.random.IntN(3) {
	case 0:
		r.Swap = true
		if p.random.IntN(2) == 0 {
			r.Kept = v1alpha1.Bytes(p.bytes(3) + gib/2)
		}
		if r.Overcommit = p.random.IntN(3) == 0; r.Overcommit {
			r.Memory = v1alpha1.Bytes(p.bytes(40))
		}
	case 1:
		r.SuspendAfter = v1alpha1.MinSuspendAfter
	}
	t, err := p.agent.grant(p.t.Context(), p.peer, p.agent.requester(0, false), ask)
	if p.refuses(err) {
		return
	}
	p.granted++
	p.agent.mu.Lock()
	t.ready = true
	p.agent.mu.Unlock()
	p.entries = append(p.entries, entry{id: t.ID, suspends: !ask.Request.Swap})
	p.note(&p.entries[len(p.entries)-1], t, ask.Request.Memory.InBytes(), ask.Request.ShareConfig)
}

// note is what a share has after it was granted or changed.
func (p *player) note(e *entry, t *tenant, memory uint64, config v1alpha1.ShareConfig) {
	e.limit, e.kept, e.turns, e.gpus = memory, config.KeptOf(memory), nil, nil
	for i, s := range t.Shares {
		e.gpus = append(e.gpus, s.UUID)
		e.turns = append(e.turns, t.turn(i))
		if s.Limit != memory || e.kept > 0 && t.turn(i) < min(e.kept, memory-e.kept) {
			p.t.Fatalf("asked for %d: %+v", memory, s)
		}
	}
}

// refuses counts a refusal; any other error ends the test.
func (p *player) refuses(err error) bool {
	if err == nil {
		return false
	}
	if code := control.CodeOf(err); code != control.CodeRefused && code != control.CodeInvalid && !alloc.Waits(err) && !errors.Is(err, ErrNotAway) {
		p.t.Fatal(err)
	}
	p.refused++
	return true
}

func (p *player) change(e *entry) {
	amount := v1alpha1.Bytes(p.bytes(24) + gib/2)
	set := control.SetParams{Tenant: e.id, Memory: &amount, Overcommit: e.kept > 0 && p.random.IntN(3) == 0}
	if _, err := p.agent.set(p.t.Context(), root, set); p.refuses(err) {
		return
	}
	p.changed++
	t := p.agent.tenants[e.id]
	p.note(e, t, amount.InBytes(), t.Shares[0].ShareConfig)
}

// move goes on with a suspension or a resumption.
func (p *player) move(e *entry) {
	a, ctx := p.agent, p.t.Context()
	state, err := a.AwayOf(e.id)
	if err != nil {
		p.t.Fatal(err)
	}
	switch state {
	case AwayNot:
		if e.suspends && !p.refuses(a.ReserveHost(ctx, e.id)) {
			e.out = true
			p.suspended++
		}
	case AwayLeaving:
		if p.random.IntN(4) > 0 {
			e.off = !p.refuses(a.LeaveGPUs(ctx, e.id))
			return
		}
		e.out = p.refuses(a.ReturnHost(ctx, e.id))
	case AwayOut, AwayWaiting:
		if p.random.IntN(4) == 0 {
			p.refuses(a.StayAway(ctx, e.id))
			return
		}
		e.off = p.refuses(a.EnterGPUs(ctx, e.id))
	case AwayEntering:
		e.out = p.refuses(a.ReturnHost(ctx, e.id))
	}
}

func (p *player) end(at int) {
	if err := p.agent.drop(p.agent.tenants[p.entries[at].id]); err != nil {
		p.t.Fatal(err)
	}
	p.entries = slices.Delete(p.entries, at, at+1)
}

// TestLedgerOfSwap creates, changes, suspends, resumes and ends shares at random, with agents that start again in between:
// GPUs and host memory are never exceeded. DIVVY_LONG=swap does 100,000 of these.
func TestLedgerOfSwap(t *testing.T) {
	steps := 2000
	if os.Getenv("DIVVY_LONG") == "swap" {
		steps = 100_000
	}
	n := newNode(t)
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	settings := n.settings(paper{n.backend})
	settings.SwapMemory, settings.Now = ledgerMemory, func() time.Time { return now }
	start := func() *Agent {
		a, err := New(t.Context(), settings)
		if err != nil {
			t.Fatal(err)
		}
		for _, tenant := range a.tenants {
			tenant.ready = true
		}
		return a
	}
	p := &player{t: t, agent: start(), random: rand.New(rand.NewPCG(7, 21)), peer: control.NewPeer(self(), 0, nil, nil)}
	over, most := uint64(0), 0
	for step := range steps {
		now = now.Add(time.Second)
		at := 0
		if len(p.entries) > 0 {
			at = p.random.IntN(len(p.entries))
		}
		switch kind := p.random.IntN(12); {
		case len(p.entries) == 0 || kind < 4:
			p.create()
		case kind < 6:
			p.change(&p.entries[at])
		case kind < 9:
			p.move(&p.entries[at])
		default:
			p.end(at)
		}
		if step%500 == 499 {
			p.agent = start()
		}
		overGPU, overHost := judge(p.entries)
		if over = max(over, overHost); overGPU > 0 || overHost > 0 {
			t.Fatalf("step %d: %d bytes too many on GPUs, %d on the host: %+v", step, overGPU, overHost, p.entries)
		}
		most = max(most, len(p.entries))
	}
	t.Logf("%d steps: granted %d, changed %d, suspended %d, refused %d; at most %d shares at once; bytes beyond the host memory: %d",
		steps, p.granted, p.changed, p.suspended, p.refused, most, over)
	for what, count := range map[string]int{"granted": p.granted, "changed": p.changed, "suspended": p.suspended, "refused": p.refused} {
		if count < steps/100 {
			t.Errorf("only %d %s", count, what)
		}
	}
}
