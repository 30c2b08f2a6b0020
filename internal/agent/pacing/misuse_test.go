package pacing

import (
	"cmp"
	"context"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/agent/control"
	"github.com/divvy-gpu/divvy/internal/agentconfig"
	"github.com/divvy-gpu/divvy/internal/arbiter"
	"github.com/divvy-gpu/divvy/internal/backend"
	"github.com/divvy-gpu/divvy/internal/nvml"
)

// court is a ledger and a driver that remembers what it was told.
type court struct {
	told     []control.Event
	answered []string // tenants, with the GPU
	silence  error    // what the driver answers; nil is that it does not support the question
	unlisted error    // what the driver answers about who is on its GPUs
}

func (c *court) Owner(int) string                            { return "" }
func (c *court) Name(id string) (name, user string, ok bool) { return id, "kim", id != "ended" }
func (c *court) Tell(e control.Event)                        { c.told = append(c.told, e) }
func (c *court) Answer(_ context.Context, tenant, uuid string) {
	c.answered = append(c.answered, tenant+" on "+uuid)
}

func (c *court) Activities(gpus []int, _ []time.Time) []nvml.Activity {
	all := make([]nvml.Activity, len(gpus))
	for i := range all {
		all[i].Err = nvml.ErrNotSupported
	}
	return all
}

func (c *court) Holdings(gpus []int) []nvml.Holding {
	all := make([]nvml.Holding, len(gpus))
	for i := range all {
		all[i].Unlisted = c.unlisted
	}
	return all
}

func (c *court) Utilisations(gpus []int, _ []time.Time) []nvml.Load {
	all := make([]nvml.Load, len(gpus))
	for i := range all {
		all[i].Err = cmp.Or(c.silence, nvml.ErrNotSupported)
	}
	return all
}

// judged is a pacer of tenants of pages alone.
func (c *court) judged(t *testing.T, misuse agentconfig.Outside, tenants ...string) (*division, *Pacer) {
	t.Helper()
	d := newDivision(t)
	p, err := New(Config{
		GPUs: []backend.GPU{{UUID: firstID}}, Driver: c, Ledger: c, Misuse: misuse, Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	p.loop = d.loop
	for _, id := range tenants {
		d.add(id, shareOf(v1alpha1.PolicyFixed, 30, 1, v1alpha1.ClassOnline))
	}
	d.pass(1, nil)
	return d, p
}

// convict makes a tenant's share guilty, as the watch would.
func (d *division) convict(id string, verdict arbiter.Verdict) {
	m := &d.loop.tenants[id].shares[0].misuse
	m.verdict, m.busy = verdict, 0.83
}

func TestMisuseIsAnswered(t *testing.T) {
	for _, misuse := range []agentconfig.Outside{agentconfig.OutsideReport, agentconfig.OutsideStop, agentconfig.OutsideKill} {
		t.Run(string(misuse), func(t *testing.T) {
			c := &court{}
			d, p := c.judged(t, misuse, "guilty", "innocent")
			d.convict("guilty", arbiter.Understates)
			p.answerMisuse(t.Context())
			var want []string
			if misuse != agentconfig.OutsideReport {
				want = []string{"guilty on " + firstID}
			}
			if !slices.Equal(c.answered, want) {
				t.Errorf("answered %q, want %q", c.answered, want)
			}
			if len(c.told) != 1 || c.told[0].Kind != control.EventMisuse || c.told[0].Tenant != "guilty" || !strings.Contains(c.told[0].Text, "83%") {
				t.Errorf("told %+v", c.told)
			}
			if text := p.Times("guilty")[0].Fault; !strings.Contains(text, "says less") {
				t.Errorf("shown as %q", text)
			}
			d.convict("guilty", arbiter.Honest)
			p.answerMisuse(t.Context())
			if !slices.Equal(c.answered, want) {
				t.Errorf("answered %q although it is honest", c.answered)
			}
			// A share whose processes were stopped stays shown: they still are.
			if text := p.Times("guilty")[0].Fault; (text == "") != (misuse == agentconfig.OutsideReport) {
				t.Errorf("afterwards shown as %q", text)
			}
		})
	}
}

// A tenant that ended meanwhile is neither told of nor answered.
func TestMisuseOfAnEndedTenant(t *testing.T) {
	c := &court{}
	d, p := c.judged(t, agentconfig.OutsideKill, "ended")
	d.convict("ended", arbiter.Exceeds)
	p.answerMisuse(t.Context())
	if len(c.answered) != 0 || len(c.told) != 0 {
		t.Errorf("answered %q, told %+v", c.answered, c.told)
	}
}

// When the driver falls silent, what it said before is held against nobody, nor is what comes after a gap.
func TestNobodyIsJudgedBySilence(t *testing.T) {
	c := &court{silence: nvml.ErrSilent}
	d, p := c.judged(t, agentconfig.OutsideKill, "guilty")
	d.convict("guilty", arbiter.Understates)
	d.loop.tenants["guilty"].shares[0].misuse.told = d.loop.clock()
	w := newWatcher(p)
	w.rounds = unhurried*lazy - 1 // however seldom the GPU is asked about
	w.round(t.Context())
	m := d.loop.tenants["guilty"].shares[0].misuse
	if len(c.answered) != 0 || m.verdict != arbiter.Honest || m.told != 0 || m.busy != 0 {
		t.Errorf("answered %q, known is %+v", c.answered, m)
	}
	if text := p.Unwatched(0); !strings.Contains(text, "does not answer") {
		t.Errorf("shown as %q", text)
	}
}
