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
	"github.com/divvy-gpu/divvy/internal/process"
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
		"smaller than a context": {ask(gib / 4), control.CodeInvalid, "the context of one process takes 512Mi"},
		"unknown GPU":            {askOn("9", gib), control.CodeNotFound, "GPUs 0 to 1"},
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

// What people are shown of a command must not fill what is saved and listed.
func TestLongCommandsAreCut(t *testing.T) {
	n := newNode(t)
	r := n.start()
	p := ask(gib)
	p.Command = []string{"/bin/sh", "-c", strings.Repeat("€", 100_000), "more"}
	n.grant(r, n.asker(os.Getuid()), p)
	got := n.list(r).Tenants[0].Command
	if len(got) != 3 || got[1] != "-c" || !strings.HasPrefix(got[2], "€€€") || !strings.HasSuffix(got[2], "€…") || len(got[2]) > 1024 {
		t.Errorf("%d words are shown, the last of %d bytes", len(got), len(got[len(got)-1]))
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
	if w := n.list(r).Waiting; !strings.Contains(w[0].Reason, "4Gi of 24Gi not granted") || !strings.Contains(w[2].Reason, "waited longer") {
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
		{"overcommit", over, control.CodeDenied, gib},
		{"overcommit by root", over, "", 16 * gib},
		{"back", memory(v1alpha1.Bytes(4 * gib)), "", 4 * gib},
		{"cores", cores(40), "", 4 * gib},
		{"too many cores", cores(41), control.CodeRefused, 4 * gib},
		{"bad cores", cores(-1), control.CodeInvalid, 4 * gib},
		{"weight of a fixed share", control.SetParams{Tenant: "train", Weight: &weight}, control.CodeInvalid, 4 * gib},
		{"unknown", control.SetParams{Tenant: "nobody"}, control.CodeNotFound, 4 * gib},
	} {
		peer := owner.peer
		if strings.HasSuffix(c.what, "by root") {
			peer = root
		}
		_, err := r.set(t.Context(), peer, c.params)
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
	stranger := control.NewPeer(process.ID{}, os.Getuid()+2, nil, nil)
	if _, err := r.set(t.Context(), stranger, memory(v1alpha1.Bytes(gib))); control.CodeOf(err) != control.CodeDenied {
		t.Errorf("somebody else: %v, want denied", err)
	}
	if _, err := r.stop(t.Context(), stranger, control.StopParams{Tenant: "train"}); control.CodeOf(err) != control.CodeDenied {
		t.Errorf("somebody else: %v, want denied", err)
	}
}

// Policies change while the share runs, each time as a whole: what belongs to
// the policy before goes with it.
func TestSetTime(t *testing.T) {
	n := newNode(t)
	r := n.start()
	owner := n.asker(os.Getuid())
	p := onFirst(40)
	p.Request.Name = "train"
	n.grant(r, owner, p)
	n.grant(r, n.asker(os.Getuid()), onFirst(50))

	type change func(*control.SetParams)
	cores := func(c int) change { return func(p *control.SetParams) { p.Cores = &c } }
	most := func(c int) change { return func(p *control.SetParams) { p.MaxCores = &c } }
	weight := func(w int) change { return func(p *control.SetParams) { p.Weight = &w } }
	policy := func(name v1alpha1.Policy) change { return func(p *control.SetParams) { p.Policy = &name } }
	class := func(name v1alpha1.Class) change { return func(p *control.SetParams) { p.Class = &name } }
	over := func(p *control.SetParams) { p.Overcommit = true }
	for _, c := range []struct {
		what    string
		changes []change
		refusal string // part of it, empty for success
		want    v1alpha1.ShareConfig
		granted int // the GPU's guaranteed cores after it
	}{
		{"cores", []change{cores(50)}, "", v1alpha1.ShareConfig{Policy: "fixed", Weight: 1, Class: "online"}, 100},
		{"too many cores", []change{cores(51)}, "50 of 100 cores left", v1alpha1.ShareConfig{Policy: "fixed", Weight: 1, Class: "online"}, 100},
		{"too many by name", []change{cores(70), over}, "", v1alpha1.ShareConfig{Policy: "fixed", Weight: 1, Class: "online"}, 120},
		{"fewer, still too many", []change{cores(60)}, "", v1alpha1.ShareConfig{Policy: "fixed", Weight: 1, Class: "online"}, 110},
		{"burst", []change{cores(20), policy("burst"), most(80)}, "", v1alpha1.ShareConfig{Policy: "burst", MaxCores: 80, Weight: 1, Class: "online"}, 70},
		{"cores above the burst's limit", []change{cores(90), over}, "max cores 80", v1alpha1.ShareConfig{Policy: "burst", MaxCores: 80, Weight: 1, Class: "online"}, 70},
		{"weight of a burst", []change{weight(2)}, "needs policy weighted", v1alpha1.ShareConfig{Policy: "burst", MaxCores: 80, Weight: 1, Class: "online"}, 70},
		{"weighted", []change{policy("weighted"), weight(5)}, "", v1alpha1.ShareConfig{Policy: "weighted", Weight: 5, Class: "online"}, 70},
		{"offline with a guarantee", []change{class("offline")}, "guarantees nothing", v1alpha1.ShareConfig{Policy: "weighted", Weight: 5, Class: "online"}, 70},
		{"offline with a cap", []change{class("offline"), policy("fixed")}, "", v1alpha1.ShareConfig{Policy: "fixed", Weight: 1, Class: "offline"}, 50},
		{"weight below 1", []change{policy("weighted"), weight(-1)}, "weight -1", v1alpha1.ShareConfig{Policy: "fixed", Weight: 1, Class: "offline"}, 50},
		{"cores 101", []change{cores(101)}, "cores 101", v1alpha1.ShareConfig{Policy: "fixed", Weight: 1, Class: "offline"}, 50},
		{"unknown class", []change{class("batch")}, "use online or offline", v1alpha1.ShareConfig{Policy: "fixed", Weight: 1, Class: "offline"}, 50},
		{"unknown policy", []change{policy("fair")}, "use fixed, weighted or burst", v1alpha1.ShareConfig{Policy: "fixed", Weight: 1, Class: "offline"}, 50},
	} {
		params := control.SetParams{Tenant: "train"}
		for _, apply := range c.changes {
			apply(&params)
		}
		_, err := r.set(t.Context(), owner.peer, params)
		if (c.refusal == "") != (err == nil) || err != nil && !strings.Contains(err.Error(), c.refusal) {
			t.Errorf("%s: %v, want %q", c.what, err, c.refusal)
		}
		l := n.list(r)
		s := l.Tenants[0].Shares[0]
		got := v1alpha1.ShareConfig{Policy: s.Policy, MaxCores: s.MaxCores, Weight: s.Weight, Class: s.Class}
		if got != c.want || l.GPUs[0].Cores != c.granted {
			t.Errorf("%s: %+v and %d cores guaranteed, want %+v and %d", c.what, got, l.GPUs[0].Cores, c.want, c.granted)
		}
	}
	r.stopAgent()
	again := n.start()
	if s := n.list(again).Tenants[0].Shares[0]; s.Policy != v1alpha1.PolicyFixed || s.Class != v1alpha1.ClassOffline || s.Cores != 20 {
		t.Errorf("the next agent has %+v", s)
	}
}
