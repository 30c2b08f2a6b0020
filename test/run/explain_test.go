package run

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/divvy-gpu/divvy/internal/agent/control"
)

// divvy explain tells what divvy run with the same flags does, and creates nothing.
func TestExplainTellsWhatRunDoes(t *testing.T) {
	h := newHost(t)
	a := h.work([]string{"--backend", "timeslice", "--name", "a", "--gpu", "0"})
	explained := func(status int, flags ...string) (e control.Explanation, chosen string) {
		t.Helper()
		o := h.divvy(append([]string{"explain", "--simgpu", "m", "-o", "json"}, flags...)...)
		if err := json.Unmarshal([]byte(o.out), &e); err != nil || o.status != status {
			t.Fatalf("%v: %v: %+v", flags, err, o)
		}
		for _, v := range e.Backends {
			if v.Chosen {
				chosen = string(v.Backend)
			}
		}
		return e, chosen
	}
	before := len(h.list().Tenants)
	e, chosen := explained(0, "--backend", "auto", "--memory", "1Gi", "--gpu", "0")
	if chosen != "timeslice" || !strings.Contains(e.Backends[0].Reason, "GPU 0 has shares of backend timeslice") {
		t.Errorf("beside timeslice it chooses %q: %+v", chosen, e.Backends)
	}
	if _, chosen := explained(0, "--backend", "auto", "--memory", "1Gi", "--gpu", "0", "--cores", "30"); chosen != "slice" {
		t.Errorf("with cores it would wait for %q", chosen)
	}
	if e, _ := explained(1, "--isolate", "bandwidth"); !strings.Contains(e.Refused, "--isolate bandwidth") {
		t.Errorf("bandwidth: %+v", e)
	}
	if after := len(h.list().Tenants); after != before {
		t.Errorf("%d shares, and %d before", after, before)
	}
	o := h.run("--backend", "auto", "--memory", "1Gi", "--gpu", "0", "--", "true")
	if o.status != 0 || !strings.Contains(o.err, "the share has backend timeslice") {
		t.Errorf("run: %+v", o)
	}
	if o := h.run("--isolate", "bandwidth", "--memory", "1Gi", "--", "true"); o.status != 125 || !strings.Contains(o.err, "no backend on this machine") {
		t.Errorf("run with bandwidth: %+v", o)
	}
	a.kill()
}
