package agent

import (
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/divvy-gpu/divvy/internal/agent/control"
	"github.com/divvy-gpu/divvy/internal/agentconfig"
)

func (n *node) rules(text string) *agentconfig.Config {
	n.t.Helper()
	rules, err := agentconfig.Parse("agent.yaml", []byte("apiVersion: divvy.dev/v1alpha1\nkind: AgentConfig\n"+text), people{})
	if err != nil {
		n.t.Fatal(err)
	}
	return rules
}

// A share ends with the time that its user may have, and no other share does.
func TestTimeLimit(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("only root starts processes of other users")
	}
	n := newNode(t)
	r := n.ruled("users: {ada: {time: 8h}}")
	adas, bobs := n.asker(ada), n.asker(bob)
	hers, his := n.grant(r, adas, ask(gib)).Tenant, n.grant(r, bobs, ask(gib)).Tenant
	tenantOf := func(id string) *tenant {
		i := slices.IndexFunc(r.all(), func(t *tenant) bool { return t.ID == id })
		return r.all()[i]
	}
	for _, c := range []struct {
		id    string
		after time.Duration
		due   bool
	}{{hers.ID, 8*time.Hour - time.Second, false}, {his.ID, 1000 * time.Hour, false}, {hers.ID, 8 * time.Hour, true}} {
		tenant := tenantOf(c.id)
		if why := r.due(tenant, tenant.Created.Add(c.after)); (why != "") != c.due || c.due && !strings.Contains(why, "limit is 8h") {
			t.Errorf("after %s: %q", c.after, why)
		}
	}
	l := n.list(r)
	if i := slices.IndexFunc(l.Tenants, func(t control.Tenant) bool { return t.ID == hers.ID }); l.Tenants[i].Until == nil || !l.Tenants[i].Until.Equal(hers.Created.Add(8*time.Hour)) {
		t.Errorf("listed until %v", l.Tenants[i].Until)
	}
	r.endBecause(t.Context(), tenantOf(hers.ID), "its time is over")
	_ = adas.cmd.Wait() // by SIGTERM
	adas.hangUp()
	eventually(t, "her share has ended", func() bool { return len(n.list(r).Tenants) == 1 })
	if left := n.list(r).Tenants[0].ID; left != his.ID {
		t.Error("his share has ended")
	}
	if !slices.ContainsFunc(n.list(r).Events, func(e control.Event) bool { return e.Kind == control.EventLimit && e.Tenant == hers.Name }) {
		t.Error("nobody is told")
	}
	if !slices.ContainsFunc(n.list(r).Events, func(e control.Event) bool {
		return e.Kind == control.EventEnded && e.Tenant == hers.Name && e.Text == "its time is over"
	}) {
		t.Errorf("its end does not say why: %+v", n.list(r).Events)
	}
}

// A share that uses no GPU is reported or ended. Use that cannot be told counts as use.
func TestIdleShares(t *testing.T) {
	for action, ends := range map[string]bool{"report": false, "end": true} {
		n := newNode(t)
		c := n.settings(n.backend)
		c.Rules = n.rules("idle: {after: 1h, action: " + action + "}")
		a, err := New(t.Context(), c)
		if err != nil {
			t.Fatal(err)
		}
		now := time.Now()
		known := &tenant{record: record{ID: "known", Name: "it", User: "ada", Created: now}, ready: true}
		known.busy = now
		known.asked = true
		if d := a.idle(known, now.Add(2*time.Hour)); d != 0 {
			t.Errorf("a share of unknown use is idle for %s", d)
		}
		for _, c := range []struct {
			idle     time.Duration
			due      bool
			reported bool
		}{{59 * time.Minute, false, false}, {time.Hour, ends, !ends}, {2 * time.Hour, ends, !ends}, {time.Minute, false, false}} {
			if why := a.over(known, now, c.idle); (why != "") != c.due {
				t.Errorf("%s, idle for %s: %q", action, c.idle, why)
			}
			if reported := !known.idle.IsZero(); reported != c.reported {
				t.Errorf("%s, idle for %s: reported %v", action, c.idle, reported)
			}
		}
		told := 0
		for _, e := range a.events.list() {
			if e.Kind == control.EventIdle {
				told++
			}
		}
		if (told == 1) == ends {
			t.Errorf("%s: told %d times", action, told)
		}
	}
}
