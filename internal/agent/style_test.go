package agent

import (
	"regexp"
	"strings"
	"testing"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/agent/control"
	"github.com/divvy-gpu/divvy/internal/process"
)

// remedy begins what a reader can do.
var remedy = regexp.MustCompile(`^(ask|add|choose|end|wait|use|say|give|free|leave|delete|start|make|correct|` + "`divvy" + `|only they)`)

// faultOf says what is wrong with how a refusal is written: one line that begins small,
// facts divided by commas and semicolons, then, after the only colon of its own, what the
// reader can do.
func faultOf(text string) string {
	last := text[strings.LastIndex(text, ": ")+1:]
	switch {
	case text == "" || strings.TrimSpace(text) != text || strings.Contains(text, "  ") || strings.Contains(text, "\n"):
		return "it is not one line"
	case strings.HasSuffix(text, ".") || strings.Contains(text, ". "):
		return "it has sentences"
	case strings.Contains(text, "!") || strings.Contains(text, ";;") || strings.Contains(text, ":;") || strings.Contains(text, ": :"):
		return "its punctuation is wrong"
	case strings.Contains(text, " or ") && regexp.MustCompile(`, or `).MatchString(last):
		return "the last of its ways follows a comma"
	case !strings.Contains(text, ": "):
		return "it does not say what to do"
	case !remedy.MatchString(strings.TrimSpace(last)):
		return "what follows the last colon is nothing that the reader can do"
	case strings.ToLower(text[:1]) != text[:1] && !strings.HasPrefix(text, "GPU"):
		return "it begins with a capital"
	}
	return ""
}

// Every refusal is written in one way.
func TestRefusalsAreOfOneStyle(t *testing.T) {
	n := newNode(t)
	c := n.settings(n.backend)
	c.Rules = n.rules("users: {ada: {memory: 8Gi, gpus: 1, cores: 50, weight: 2}}\novercommit: {users: [eve]}")
	r := n.startAs(c)
	named := askOn("0", 6*gib)
	named.Request.Name, named.Request.Cores = "train", 40
	n.grant(r, n.asker(ada), named)
	n.grant(r, n.asker(bob), askOn("1", 20*gib))
	create := func(uid int, change func(*control.CreateParams)) func() error {
		return func() error {
			p := ask(gib)
			change(&p)
			_, err := r.create(t.Context(), n.asker(uid).peer, p)
			return err
		}
	}
	set := func(uid int, name string, change func(*control.SetParams)) func() error {
		return func() error {
			p := control.SetParams{Tenant: name}
			change(&p)
			_, err := r.set(t.Context(), control.NewPeer(process.ID{}, uid, nil, nil), p)
			return err
		}
	}
	memory := func(amount uint64) v1alpha1.Memory { return v1alpha1.Bytes(amount) }
	for name, refused := range map[string]func() error{
		"overcommit":        create(ada, func(p *control.CreateParams) { p.Request.Overcommit = true }),
		"weight":            create(ada, func(p *control.CreateParams) { p.Request.Weight = 3 }),
		"GPUs":              create(ada, func(p *control.CreateParams) { p.Request.GPUs = 2 }),
		"memory never":      create(ada, func(p *control.CreateParams) { p.Request.Memory = memory(9 * gib) }),
		"cores never":       create(ada, func(p *control.CreateParams) { p.Request.Cores = 51 }),
		"memory beside":     create(ada, func(p *control.CreateParams) { p.Request.Memory = memory(3 * gib) }),
		"cores beside":      create(ada, func(p *control.CreateParams) { p.Request.Cores = 20 }),
		"another GPU":       create(ada, func(p *control.CreateParams) { p.Request.Among = []string{"1"} }),
		"full":              create(bob, func(p *control.CreateParams) { p.Request.Among, p.Request.Memory = []string{"1"}, memory(10*gib) }),
		"full, may have it": create(eve, func(p *control.CreateParams) { p.Request.Among, p.Request.Memory = []string{"1"}, memory(10*gib) }),
		"cores":             create(bob, func(p *control.CreateParams) { p.Request.Among, p.Request.Cores = []string{"0"}, 70 }),
		"larger than a GPU": create(bob, func(p *control.CreateParams) { p.Request.Memory = memory(100 * gib) }),
		"no such GPU":       create(bob, func(p *control.CreateParams) { p.Request.Among = []string{"9"} }),
		"name taken":        create(ada, func(p *control.CreateParams) { p.Request.Name = "train" }),
		"layer":             create(ada, func(p *control.CreateParams) { p.Layer = "none" }),
		"set memory":        set(ada, "train", func(p *control.SetParams) { p.Memory = new(memory(9 * gib)) }),
		"set cores":         set(ada, "train", func(p *control.SetParams) { p.Cores = new(51) }),
		"set weight":        set(ada, "train", func(p *control.SetParams) { p.Policy, p.Weight = new(v1alpha1.PolicyWeighted), new(3) }),
		"set overcommit":    set(ada, "train", func(p *control.SetParams) { p.Overcommit, p.Memory = true, new(memory(gib)) }),
		"set no share":      set(ada, "none", func(p *control.SetParams) { p.Memory = new(memory(gib)) }),
		"set another's":     set(bob, "4711/train", func(p *control.SetParams) { p.Memory = new(memory(gib)) }),
	} {
		err := refused()
		if err == nil {
			t.Errorf("%s: it is granted", name)
			continue
		}
		t.Logf("%s: %v", name, err)
		if fault := faultOf(err.Error()); fault != "" {
			t.Errorf("%s: %q: %s", name, err, fault)
		}
	}
}
