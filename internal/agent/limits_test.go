package agent

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/agent/control"
	"github.com/divvy-gpu/divvy/internal/process"
)

// users of the configurations below. Their names are their numbers.
const (
	ada = 4711 // has an entry of her own
	bob = 4712 // has none, and no share anywhere
	eve = 4713 // may overcommit
)

type people struct{}

func (people) User(name string) (int, error) {
	uid, ok := map[string]int{"ada": ada, "bob": bob, "eve": eve}[name]
	if !ok {
		return 0, errors.New("no such user")
	}
	return uid, nil
}
func (people) Group(string) (int, error) { return 0, errors.New("no such group") }
func (people) Groups(int) ([]int, error) { return nil, nil }

// ruled is an agent with a configuration. Its GPU 0 has 80 GiB and GPU 1 24 GiB.
func (n *node) ruled(text string) *running {
	n.t.Helper()
	c := n.settings(n.backend)
	c.Rules = n.rules(text)
	return n.startAs(c)
}

// refusal is the message with which a request is refused, "" if it is granted.
func (n *node) refusal(r *running, uid int, p control.CreateParams) (string, control.Code) {
	n.t.Helper()
	if _, err := r.create(n.t.Context(), n.asker(uid).peer, p); err != nil {
		return err.Error(), control.CodeOf(err)
	}
	return "", ""
}

func TestOvercommitIsARight(t *testing.T) {
	n := newNode(t)
	r := n.ruled("overcommit: {users: [eve]}")
	n.grant(r, n.asker(bob), askOn("1", 20*gib))
	full := askOn("1", 20*gib)
	over := full
	over.Request.Overcommit = true
	const facts = "GPU 1 has 4Gi of 24Gi not granted and the share needs 20Gi; 4712/train_it holds 20Gi: "
	for uid, want := range map[int]string{
		ada: "ask for at most 4Gi or add --wait to queue",
		eve: "ask for at most 4Gi, add --wait to queue or add --overcommit",
		0:   "ask for at most 4Gi, add --wait to queue or add --overcommit",
	} {
		if got, code := n.refusal(r, uid, full); code != control.CodeRefused || got != facts+want {
			t.Errorf("user %d: %s, want … %s", uid, got, want)
		}
	}
	if got, code := n.refusal(r, ada, over); code != control.CodeDenied || strings.Contains(got, "add --overcommit") {
		t.Errorf("a user without the right: %q (%s)", got, code)
	}
	for _, uid := range []int{eve, 0} {
		if got, _ := n.refusal(r, uid, over); got != "" {
			t.Errorf("user %d may overcommit and is refused: %s", uid, got)
		}
	}
}

// The user of an own agent concerns nobody else by overcommitting.
func TestOwnAgentOvercommits(t *testing.T) {
	n := newNode(t)
	c := n.settings(n.backend)
	c.Info.UID, c.Info.Ephemeral = ada, true
	r := n.startAs(c)
	n.grant(r, n.asker(ada), askOn("1", 20*gib))
	over := askOn("1", 20*gib)
	over.Request.Overcommit = true
	if got, _ := n.refusal(r, ada, over); got != "" {
		t.Error(got)
	}
}

func TestLimitsOfAUser(t *testing.T) {
	memory := func(amount uint64) func(*control.CreateParams) {
		return func(p *control.CreateParams) { p.Request.Memory = v1alpha1.Bytes(amount) }
	}
	for name, c := range map[string]struct {
		rules string
		had   []control.CreateParams
		ask   func(*control.CreateParams)
		want  string // in the refusal; empty for a grant
		code  control.Code
	}{
		"within":               {"{memory: 4Gi, gpus: 1, cores: 50, weight: 3}", nil, func(p *control.CreateParams) { p.Request.Memory, p.Request.Weight = v1alpha1.Bytes(4*gib), 3 }, "", ""},
		"memory never":         {"{memory: 4Gi}", nil, memory(4*gib + 1), "the administrator lets you have at most 4Gi of memory in all, and the request needs 4294967297: ask for at most 4Gi", control.CodeInvalid},
		"memory of two GPUs":   {"{memory: 4Gi}", nil, func(p *control.CreateParams) { p.Request.GPUs, p.Request.Memory = 2, v1alpha1.Bytes(3*gib) }, "needs 3Gi on each of 2 GPUs: ask for at most 2Gi", control.CodeInvalid},
		"percent never":        {"{memory: 4Gi}", nil, func(p *control.CreateParams) { p.Request.Memory = v1alpha1.Percent(50) }, "4Gi of memory in all, and the request needs 12Gi", control.CodeInvalid},
		"memory beside others": {"{memory: 8Gi}", []control.CreateParams{ask(6 * gib)}, memory(3 * gib), "you have 6Gi of memory, the request needs 3Gi more, and the administrator lets you have at most 8Gi in all: ask for at most 2Gi, end one of your shares (`divvy stop train_it`) or add --wait to queue", control.CodeRefused},
		"memory just fits":     {"{memory: 8Gi}", []control.CreateParams{ask(6 * gib)}, memory(2 * gib), "", ""},
		"weight":               {"{weight: 3}", nil, func(p *control.CreateParams) { p.Request.Memory, p.Request.Weight = v1alpha1.Bytes(gib), 4 }, "the administrator lets you have at most weight 3, and the request has 4: ask for at most 3", control.CodeInvalid},
		"GPUs never":           {"{gpus: 1}", nil, func(p *control.CreateParams) { p.Request.GPUs, p.Request.Memory = 2, v1alpha1.Bytes(gib) }, "the administrator lets you have at most 1 GPU, and the request needs 2: ask for at most 1", control.CodeInvalid},
		"another GPU":          {"{gpus: 1}", []control.CreateParams{askOn("1", gib)}, func(p *control.CreateParams) { p.Request.Among, p.Request.Memory = []string{"0"}, v1alpha1.Bytes(gib) }, "you have shares on GPU 1, the request is for GPU 0, and the administrator lets you have at most 1 GPU: end one", control.CodeRefused},
		"the same GPU":         {"{gpus: 1}", []control.CreateParams{askOn("0", gib)}, memory(20 * gib), "", ""},
		"too much for it":      {"{gpus: 1}", []control.CreateParams{askOn("1", 20*gib)}, memory(20 * gib), "you have shares on GPU 1, where", control.CodeRefused},
		"cores never":          {"{cores: 30}", nil, func(p *control.CreateParams) { p.Request.Memory, p.Request.Cores = v1alpha1.Bytes(gib), 31 }, "30 cores in all, and the request needs 31: ask for at most 30", control.CodeInvalid},
		"cores beside others":  {"{cores: 50}", []control.CreateParams{cored(30)}, func(p *control.CreateParams) { p.Request.Memory, p.Request.Cores = v1alpha1.Bytes(gib), 21 }, "you have 30 cores, the request needs 21 more, and the administrator lets you have at most 50 in all: ask for at most 20, end one", control.CodeRefused},
		"no cores beside":      {"{cores: 30}", []control.CreateParams{cored(30)}, memory(gib), "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t)
			r := n.ruled("users: {ada: " + c.rules + "}")
			for _, p := range c.had {
				n.grant(r, n.asker(ada), p)
			}
			n.grant(r, n.asker(bob), ask(gib)) // another user's shares count for that one
			p := ask(0)
			c.ask(&p)
			got, code := n.refusal(r, ada, p)
			if (c.want == "") != (got == "") || !strings.Contains(got, c.want) || code != c.code {
				t.Errorf("%q (%s), want %q (%s)", got, code, c.want, c.code)
			}
			if got, _ := n.refusal(r, bob, p); c.want != "" && got != "" {
				t.Errorf("a user without limits is refused: %s", got)
			}
		})
	}
}

func cored(cores int) control.CreateParams {
	p := ask(gib)
	p.Request.Cores = cores
	return p
}

// Who names no memory gets the default, and no more than the limit.
func TestDefaultMemory(t *testing.T) {
	for _, c := range []struct {
		rules string
		gpus  int
		want  uint64
	}{
		{"", 1, 24 * gib},
		{"defaultMemory: 8Gi", 1, 8 * gib},
		{"defaultMemory: 25%", 1, 6 * gib},
		{"defaultMemory: 8Gi\nusers: {ada: {memory: 4Gi}}", 1, 4 * gib},
		{"users: {ada: {memory: 4Gi}}", 1, 4 * gib},
		{"users: {ada: {memory: 4Gi}}", 2, 2 * gib},
		{"users: {ada: {memory: 40Gi}}", 1, 24 * gib},
	} {
		n := newNode(t)
		r := n.ruled(c.rules)
		p := askOn("1", 0)
		if c.gpus == 2 {
			p.Request.Among, p.Request.GPUs = nil, 2
		}
		p.Request.Memory = v1alpha1.Memory{}
		if s := n.grant(r, n.asker(ada), p).Tenant.Shares; s[len(s)-1].Limit != c.want {
			t.Errorf("%q: %d bytes, want %d", c.rules, s[len(s)-1].Limit, c.want)
		}
	}
}

// Who waits within their own limit holds nobody else up, and is served when a share of
// theirs ends.
func TestWaitingWithinALimit(t *testing.T) {
	n := newNode(t)
	r := n.ruled("users: {ada: {memory: 8Gi}}")
	first := n.asker(ada)
	n.grant(r, first, ask(6*gib))
	waiting := ask(4 * gib)
	waiting.Wait = true
	done := make(chan error, 1)
	go func() {
		_, err := r.create(t.Context(), n.asker(ada).peer, waiting)
		done <- err
	}()
	eventually(t, "she waits", func() bool { return len(n.list(r).Waiting) == 1 })
	if reason := n.list(r).Waiting[0].Reason; reason != "you have 6Gi of memory, the request needs 4Gi more, and the administrator lets you have at most 8Gi in all" {
		t.Errorf("she waits because %q", reason)
	}
	other := ask(gib)
	other.Wait = true
	n.grant(r, n.asker(bob), other)
	first.kill()
	first.hangUp()
	if err := <-done; err != nil {
		t.Error(err)
	}
	never := ask(9 * gib)
	never.Wait = true
	if got, code := n.refusal(r, ada, never); code != control.CodeInvalid {
		t.Errorf("what can never fit the limit waits: %s", got)
	}
}

func TestSetWithinLimits(t *testing.T) {
	n := newNode(t)
	r := n.ruled("users: {ada: {memory: 8Gi, cores: 50, weight: 2}}")
	p := ask(4 * gib)
	p.Request.Name = "train"
	n.grant(r, n.asker(ada), p)
	n.grant(r, n.asker(ada), ask(2*gib))
	peer := control.NewPeer(process.ID{}, ada, nil, nil)
	memory := func(amount uint64) control.SetParams {
		m := v1alpha1.Bytes(amount)
		return control.SetParams{Tenant: "train", Memory: &m}
	}
	number := func(f func(*control.SetParams, *int), n int) control.SetParams {
		p := control.SetParams{Tenant: "train"}
		f(&p, &n)
		return p
	}
	weight := func(p *control.SetParams, n *int) { p.Weight = n }
	cores := func(p *control.SetParams, n *int) { p.Cores = n }
	over := memory(6 * gib)
	over.Overcommit = true
	for _, c := range []struct {
		peer   *control.Peer
		params control.SetParams
		want   string
	}{
		{peer, memory(6 * gib), ""},
		{peer, memory(7 * gib), "you have 8Gi of memory, would have 9Gi with this change, and the administrator lets you have at most 8Gi in all: ask for at most 6Gi or end one of your shares"},
		{peer, over, "--overcommit is the right of root"},
		{peer, number(weight, 2), ""},
		{peer, number(weight, 3), "the share has weight 2, this change asks for 3, and the administrator lets you have at most 2: ask for at most 2"},
		{root, memory(20 * gib), ""},
		{peer, memory(16 * gib), ""}, // less than it has
		{peer, memory(17 * gib), "you have 18Gi of memory, would have 19Gi"},
		{root, number(weight, 5), ""},
		{peer, number(weight, 4), ""},
		{peer, number(cores, 51), "you have 0 cores, would have 51 with this change, and the administrator lets you have at most 50 in all: ask for at most 50"},
		{peer, number(cores, 50), ""},
	} {
		_, err := r.set(t.Context(), c.peer, c.params)
		if (c.want == "") != (err == nil) || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("user %d, %+v: %v, want %q", c.peer.UID, c.params, err, c.want)
		}
		if err != nil && strings.Contains(err.Error(), "--wait") {
			t.Errorf("set has no --wait: %v", err)
		}
	}
}

// A full server is described once for each cause, with who holds it.
func TestRefusalOnAFullServer(t *testing.T) {
	n := newNode(t)
	r := n.ruled("")
	for i, uid := range []int{ada, ada, bob, bob, bob, eve} {
		p := ask([]uint64{40, 24, 16, 8, 8, 8}[i] * gib)
		p.Request.Name = string(rune('a' + i))
		n.grant(r, n.asker(uid), p)
	}
	got, _ := n.refusal(r, eve, ask(gib))
	user := n.list(r).Tenants[0].User
	for _, want := range []string{"GPU 0 has 0 of 80Gi not granted", "GPU 1 has 0 of 24Gi not granted", user + "/a holds 40Gi, " + user + "/b holds 24Gi", "and 2 other shares the rest: add --wait to queue"} {
		if !strings.Contains(got, want) {
			t.Errorf("%q does not say %q", got, want)
		}
	}
	if strings.Count(got, "has 0 of") != 2 || strings.Contains(got, "ask for") || strings.Contains(got, "overcommit") {
		t.Errorf("%q repeats itself or gives advice that does not help", got)
	}
}

func TestNamesArePerUser(t *testing.T) {
	n := newNode(t)
	r := n.start()
	train := ask(gib)
	train.Request.Name = "train"
	adas, bobs := n.grant(r, n.asker(ada), train), n.grant(r, n.asker(bob), train)
	if got, code := n.refusal(r, ada, train); code != control.CodeInvalid || !strings.Contains(got, `you have a share named "train"`) {
		t.Errorf("the same name twice: %q (%s)", got, code)
	}
	if first := n.grant(r, n.asker(eve), ask(gib)).Tenant.Name; first != n.grant(r, n.asker(bob), ask(gib)).Tenant.Name {
		t.Error("a made name is taken by another user's share")
	}
	adaPeer, evePeer := control.NewPeer(process.ID{}, ada, nil, nil), control.NewPeer(process.ID{}, eve, nil, nil)
	names := []string{adas.Tenant.User + "/train", bobs.Tenant.User + "/train"}
	for _, c := range []struct {
		peer *control.Peer
		name string
		id   string // of the share that is meant
		says []string
	}{
		{adaPeer, "train", adas.Tenant.ID, nil},
		{adaPeer, names[0], adas.Tenant.ID, nil},
		{adaPeer, names[1], "", []string{names[1] + " belongs to"}},
		{adaPeer, bobs.Tenant.ID, "", []string{names[1] + " belongs to"}},
		{evePeer, "train", "", []string{"belongs to", "only they and root"}},
		{root, names[1], bobs.Tenant.ID, nil},
		{root, adas.Tenant.ID, adas.Tenant.ID, nil},
		{root, "train", "", append(slices.Clone(names), "2 users have a share train: say which: ")},
		{root, "nobody/train", "", []string{`there is no share "nobody/train"`}},
	} {
		found, err := r.find(c.peer, c.name)
		if c.id != "" && (err != nil || found.ID != c.id) || c.id == "" && err == nil {
			t.Errorf("user %d, %s: %v, %v", c.peer.UID, c.name, found, err)
		}
		for _, words := range c.says {
			if err == nil || !strings.Contains(err.Error(), words) {
				t.Errorf("user %d, %s: %v does not say %q", c.peer.UID, c.name, err, words)
			}
		}
	}
}

// The arguments of a share's command are its owner's and root's.
func TestCommandsArePrivate(t *testing.T) {
	n := newNode(t)
	r := n.start()
	p := ask(gib)
	p.Command = []string{"/usr/bin/env", "TOKEN=secret", "train"}
	n.grant(r, n.asker(ada), p)
	for uid, want := range map[int][]string{ada: p.Command, 0: p.Command, bob: {"env"}} {
		l, err := r.list(t.Context(), control.NewPeer(process.ID{}, uid, nil, nil), struct{}{})
		if err != nil || !slices.Equal(l.Tenants[0].Command, want) {
			t.Errorf("user %d: %q, want %q (%v)", uid, l.Tenants[0].Command, want, err)
		}
	}
}
