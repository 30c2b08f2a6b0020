package extender

import (
	"encoding/json"
	"log/slog"
	"net/http"
	"slices"
	"strconv"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
)

// calls is a caller and what it has written.
type calls struct {
	*world
	caller *caller
}

func newCalls(t *testing.T) *calls {
	w := newWorld(t, nodeOf(t, "a", 1), nodeOf(t, "b", 1))
	return &calls{w, &caller{core: w.core, client: w.binder.client, now: w.now, counts: w.binder.counts, log: slog.New(slog.DiscardHandler)}}
}

// look returns the names of the pods for which the scheduler is called, at one look after a while.
func (c *calls) look(after time.Duration) (names []string) {
	c.t.Helper()
	c.mu.Lock()
	c.patches = nil
	c.mu.Unlock()
	c.pass(after)
	c.caller.look(c.t.Context())
	c.mu.Lock()
	patches, now := c.patches, c.clock
	c.mu.Unlock()
	for _, p := range patches {
		var pod corev1.Pod
		if err := json.Unmarshal(p.text, &pod); err != nil || p.path != "/api/v1/namespaces/default/pods/"+p.name+"/status" || string(pod.UID) != "uid-"+p.name {
			c.t.Errorf("%s: %s, %v", p.path, p.text, err)
		}
		if all := pod.Status.Conditions; len(all) != 1 || all[0].Type != v1alpha1.FitsCondition || !all[0].LastProbeTime.Time.Equal(now) {
			c.t.Errorf("%+v", all)
		}
		names = append(names, p.name)
	}
	return names
}

// refuse has a pod be asked about, and refused.
func (c *calls) refuse(name string, nodes ...string) {
	c.t.Helper()
	if fits := c.fits(trimPod(c.pod(name)), nodes...); len(fits) > 0 {
		c.t.Fatalf("it fits on %q", fits)
	}
}

func (c *calls) want(when string, after time.Duration, names ...string) {
	c.t.Helper()
	if got := c.look(after); len(got) != len(names) || len(got) > 0 && got[0] != names[0] {
		c.t.Fatalf("%s: called for %q, want %q", when, got, names)
	}
}

// A pod that was refused, and fits since, is asked about again: the scheduler hears by itself of what there is, and may have asked
// before this replica heard of it.
func TestRefusedFitsSince(t *testing.T) {
	c := newCalls(t)
	c.add(podOf(t, "p", 10), podOf(t, "q", 10))
	if err := c.ask("p", "a"); err != nil {
		t.Fatal(err)
	}
	c.tell("p")
	c.refuse("q", "a")
	c.want("refused", time.Second)
	c.want("refused", time.Second)
	c.remove("p")
	c.refuse("q", "a") // the scheduler has heard of it
	c.tell("p")
	c.want("fits", time.Second)
	c.want("fits and nobody has asked", time.Second, "q")
	c.want("called a moment ago", time.Second)
	c.want("nobody asks", firstCall, "q")
	c.want("called twice", firstCall)
	c.want("nobody asks for long", 2*firstCall, "q")
	if fits := c.fits(trimPod(c.pod("q")), "a"); len(fits) != 1 {
		t.Fatal("it does not fit")
	}
	c.want("asked about", time.Hour)
	c.want("asked about", time.Hour)
}

// Nobody is called for a pod that fits where the scheduler does not want it, for one that is refused again, or is gone.
func TestRefusedStays(t *testing.T) {
	c := newCalls(t)
	c.add(podOf(t, "p", 10), podOf(t, "q", 10))
	if err := c.ask("p", "a"); err != nil {
		t.Fatal(err)
	}
	c.tell("p")
	c.refuse("q", "a")
	c.add(podOf(t, "other", 1)) // something else happens
	for range 3 {
		c.want("b is not asked about", time.Minute)
	}
	c.remove("p")
	c.tell("p")
	c.want("fits", time.Second)
	c.add(podOf(t, "r", 10))
	if err := c.ask("r", "a"); err != nil {
		t.Fatal(err)
	}
	c.want("somebody else has its place", time.Minute)
	c.tell("r")
	c.remove("r")
	c.tell("r")
	c.want("fits again", time.Second)
	c.remove("q")
	c.tell("q")
	c.want("gone", time.Minute)
	if len(c.core.refusals.by) != 0 {
		t.Errorf("%d refusals are kept", len(c.core.refusals.by))
	}
}

// While a binding is written the pod is refused everywhere. When it is given back, the scheduler is called.
func TestRefusedWhileWritten(t *testing.T) {
	c := newCalls(t)
	c.add(podOf(t, "p", 10))
	c.manners(func(w http.ResponseWriter, _ func()) {
		c.refuse("p", "a", "b")
		status(w, http.StatusForbidden, "no")
	})
	if err := c.ask("p", "a"); err == nil {
		t.Fatal("it is bound")
	}
	c.want("fits", time.Second)
	c.want("fits and nobody has asked", time.Second, "p")
}

// However many pods are refused, what is kept of them is bounded.
func TestRefusalsAreBounded(t *testing.T) {
	var r refusals
	nodes := make([]string, mostKept/4)
	for i := range 10 {
		names := slices.Clone(nodes)
		names[0] = strconv.Itoa(i)
		for k := range 3 {
			r.note(question{podOf(t, strconv.Itoa(3*i+k), 1), names}, 0)
		}
		kept := 0
		for _, list := range r.lists {
			kept += len(list)
		}
		if kept != r.kept || kept > mostKept || len(r.by) != 3*(i%4+1) {
			t.Fatalf("%d names are kept and counted as %d, of %d pods", kept, r.kept, len(r.by))
		}
	}
}

// A pod that waits is known however often others are refused meanwhile, whose nodes are named in any order or are others each time.
func TestRefusalsOfOthersAreForgotten(t *testing.T) {
	const count = mostKept / 8
	nodes := make([]string, count)
	for i := range nodes {
		nodes[i] = strconv.Itoa(i)
	}
	for name, next := range map[string]func(names []string, i int){
		"in another order": func(names []string, i int) { names[0], names[i] = names[i], names[0] },
		"other nodes":      func(names []string, i int) { names[0] = "other" + strconv.Itoa(i) },
	} {
		var r refusals
		r.note(question{podOf(t, "waits", 1), nodes}, 0)
		for i := range mostKept/count + 4 {
			names := slices.Clone(nodes)
			next(names, i)
			r.note(question{podOf(t, "other", 1), names}, 0)
			if w := r.by["uid-waits"]; w == nil || len(w.nodes) != count {
				t.Fatalf("%s: the pod that waits is forgotten after %d refusals", name, i+1)
			}
			if r.kept > mostKept || len(r.by) != 2 {
				t.Fatalf("%s: %d names are kept of %d pods", name, r.kept, len(r.by))
			}
		}
		if name == "in another order" && len(r.lists) != 1 {
			t.Errorf("%d lists are kept of the same nodes", len(r.lists))
		}
	}
}
