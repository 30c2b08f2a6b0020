package agent

import (
	"context"
	"errors"
	"math/rand/v2"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/agent/control"
)

func TestBadRequests(t *testing.T) {
	n := newNode(t)
	r := n.start()
	peer := n.asker(os.Getuid()).peer
	edit := func(change func(*control.CreateParams)) control.CreateParams {
		p := ask(gib)
		change(&p)
		return p
	}
	named := ask(gib)
	named.Request.Name = "train"
	n.grant(r, n.asker(os.Getuid()), named)
	for what, c := range map[string]struct {
		params control.CreateParams
		code   control.Code
		text   string
	}{
		"larger than every GPU":  {ask(81 * gib), control.CodeInvalid, "at most"},
		"smaller than a context": {ask(gib / 4), control.CodeInvalid, "context takes 512Mi"},
		"unknown GPU":            {askOn("9", gib), control.CodeNotFound, "indexes 0 to 1"},
		"bad layer":              {edit(func(p *control.CreateParams) { p.Layer = "magic" }), control.CodeInvalid, "layer"},
		"bad cores":              {edit(func(p *control.CreateParams) { p.Request.Cores = 101 }), control.CodeInvalid, "cores 101"},
		"too many GPUs":          {edit(func(p *control.CreateParams) { p.Request.GPUs = 3 }), control.CodeInvalid, "has 2"},
		"name in use":            {edit(func(p *control.CreateParams) { p.Request.Name = "train" }), control.CodeInvalid, "divvy stop train"},
	} {
		_, err := r.create(t.Context(), peer, c.params)
		if control.CodeOf(err) != c.code || err == nil || !strings.Contains(err.Error(), c.text) {
			t.Errorf("%s: %v (%s), want %s with %q", what, err, control.CodeOf(err), c.code, c.text)
		}
	}
	if l := n.list(r); len(l.Tenants) != 1 {
		t.Errorf("tenants %+v", l.Tenants)
	}
}

// Whatever is asked for at once, a GPU's shares never exceed it.
func TestSumsHoldUnderRaces(t *testing.T) {
	n := newNode(t)
	r := n.start()
	peer := n.asker(os.Getuid()).peer
	var wg sync.WaitGroup
	for i := range 60 {
		random := rand.New(rand.NewPCG(uint64(i), 7))
		wg.Go(func() {
			p := ask(gib + random.Uint64N(12*gib))
			p.Request.Cores = 1 + random.IntN(40)
			_, err := r.create(context.Background(), peer, p)
			if err != nil && control.CodeOf(err) != control.CodeRefused {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	l := n.list(r)
	if len(l.Tenants) < 4 {
		t.Errorf("only %d tenants fitted", len(l.Tenants))
	}
	names := map[string]bool{}
	for _, tenant := range l.Tenants {
		if names[tenant.Name] {
			t.Errorf("two tenants are called %s", tenant.Name)
		}
		names[tenant.Name] = true
	}
	for _, g := range l.GPUs {
		if g.Granted > g.Capacity || g.Cores > 100 {
			t.Errorf("GPU %+v", g)
		}
	}
}

func TestOvercommitIsAskedForByName(t *testing.T) {
	n := newNode(t)
	r := n.start()
	n.grant(r, n.asker(os.Getuid()), askOn("1", 20*gib))
	p := askOn("1", 20*gib)
	if _, err := r.create(t.Context(), n.asker(os.Getuid()).peer, p); control.CodeOf(err) != control.CodeRefused {
		t.Errorf("%v, want refused", err)
	}
	p.Request.Overcommit = true
	n.grant(r, n.asker(os.Getuid()), p)
	if g := n.list(r).GPUs[1]; g.Granted != 40*gib {
		t.Errorf("GPU %+v", g)
	}
}

// Requests that wait are served in turn: the small one behind a large one does
// not overtake it. One that gives up leaves the queue.
func TestWaitingIsInTurn(t *testing.T) {
	n := newNode(t)
	r := n.start()
	first := n.asker(os.Getuid())
	created := n.grant(r, first, askOn("1", 20*gib))
	waiting := func(memory uint64) (<-chan error, context.CancelFunc) {
		before := len(n.list(r).Waiting)
		ctx, cancel := context.WithCancel(context.Background())
		t.Cleanup(cancel)
		answer := make(chan error, 1)
		peer := n.asker(os.Getuid()).peer
		p := askOn("1", memory)
		p.Wait = true
		go func() {
			_, err := r.create(ctx, peer, p)
			answer <- err
		}()
		eventually(t, "the request waits", func() bool { return len(n.list(r).Waiting) == before+1 })
		return answer, cancel
	}
	gaveUp, giveUp := waiting(22 * gib)
	large, _ := waiting(21 * gib)
	small, _ := waiting(2 * gib)
	if w := n.list(r).Waiting; !strings.Contains(w[0].Reason, "4Gi of 24Gi free") || !strings.Contains(w[2].Reason, "waited for longer") {
		t.Errorf("reasons %+v", w)
	}
	giveUp()
	if err := <-gaveUp; !errors.Is(err, context.Canceled) {
		t.Errorf("%v, want context.Canceled", err)
	}
	select {
	case err := <-small:
		t.Fatalf("the small request overtook: %v", err)
	default:
	}
	first.hangUp()
	first.kill()
	for _, answer := range []<-chan error{large, small} {
		if err := <-answer; err != nil {
			t.Error(err)
		}
	}
	l := n.list(r)
	if len(l.Waiting) != 0 || l.GPUs[1].Granted != 23*gib {
		t.Errorf("listing %+v", l)
	}
	for _, tenant := range l.Tenants {
		if tenant.ID == created.Tenant.ID {
			t.Error("the first tenant is left")
		}
	}
	never := ask(100 * gib)
	never.Wait = true
	if _, err := r.create(t.Context(), n.asker(os.Getuid()).peer, never); control.CodeOf(err) != control.CodeInvalid {
		t.Errorf("what never fits waits: %v", err)
	}
}

func TestSet(t *testing.T) {
	n := newNode(t)
	r := n.start()
	owner := n.asker(os.Getuid() + 1)
	p := askOn("1", 4*gib)
	p.Request.Name = "train"
	created := n.grant(r, owner, p)
	other := askOn("1", 12*gib)
	other.Request.Cores = 60
	n.grant(r, n.asker(os.Getuid()), other)
	n.enter(created.Tenant.Dir, 0, 4711, 2*gib)

	memory := func(m v1alpha1.Memory) control.SetParams { return control.SetParams{Tenant: "train", Memory: &m} }
	below := memory(v1alpha1.Bytes(gib))
	below.BelowUsed = true
	cores := func(c int) control.SetParams { return control.SetParams{Tenant: "train", Cores: &c} }
	over := memory(v1alpha1.Bytes(16 * gib))
	over.Overcommit = true
	weight := 5
	for _, c := range []struct {
		what   string
		params control.SetParams
		code   control.Code // of the refusal, empty for success
		limit  uint64       // after it
	}{
		{"larger", memory(v1alpha1.Bytes(12 * gib)), "", 12 * gib},
		{"larger than free", memory(v1alpha1.Bytes(13 * gib)), control.CodeRefused, 12 * gib},
		{"larger than the GPU", memory(v1alpha1.Bytes(25 * gib)), control.CodeInvalid, 12 * gib},
		{"percent", memory(v1alpha1.Percent(25)), "", 6 * gib},
		{"below what is used", memory(v1alpha1.Bytes(gib)), control.CodeRefused, 6 * gib},
		{"below by name", below, "", gib},
		{"overcommit by name", over, "", 16 * gib},
		{"back", memory(v1alpha1.Bytes(4 * gib)), "", 4 * gib},
		{"cores", cores(40), "", 4 * gib},
		{"too many cores", cores(41), control.CodeRefused, 4 * gib},
		{"bad cores", cores(-1), control.CodeInvalid, 4 * gib},
		{"weight of a fixed share", control.SetParams{Tenant: "train", Weight: &weight}, control.CodeInvalid, 4 * gib},
		{"unknown", control.SetParams{Tenant: "nobody"}, control.CodeNotFound, 4 * gib},
	} {
		_, err := r.set(t.Context(), owner.peer, c.params)
		if (c.code == "") != (err == nil) || err != nil && control.CodeOf(err) != c.code {
			t.Errorf("%s: %v (%s), want %q", c.what, err, control.CodeOf(err), c.code)
		}
		page := n.config(created)
		if l := n.list(r).Tenants[0].Shares[0]; l.Limit != c.limit || page.Device[0].Limit != c.limit {
			t.Errorf("%s: limit %d in the ledger, %d in the page, want %d", c.what, l.Limit, page.Device[0].Limit, c.limit)
		}
	}
	if s := n.list(r).Tenants[0].Shares[0]; s.Cores != 40 || s.Policy != v1alpha1.PolicyFixed {
		t.Errorf("share %+v", s)
	}
	stranger := control.NewPeer(1, os.Getuid()+2, nil)
	if _, err := r.set(t.Context(), stranger, memory(v1alpha1.Bytes(gib))); control.CodeOf(err) != control.CodeDenied {
		t.Errorf("somebody else: %v, want denied", err)
	}
	if _, err := r.stop(t.Context(), stranger, control.StopParams{Tenant: "train"}); control.CodeOf(err) != control.CodeDenied {
		t.Errorf("somebody else: %v, want denied", err)
	}
}
