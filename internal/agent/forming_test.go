package agent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/agent/control"
	"github.com/divvy-gpu/divvy/internal/agentconfig"
	"github.com/divvy-gpu/divvy/internal/backend"
	"github.com/divvy-gpu/divvy/internal/backend/registry"
	"github.com/divvy-gpu/divvy/internal/modes"
)

// silicon are GPUs whose modes outlive agents.
type silicon struct {
	mu     sync.Mutex
	values map[string]string
	users  []modes.User
}

func (s *silicon) Mode(_ context.Context, gpu string, mode modes.Mode) (string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if value, ok := s.values[gpu+" "+string(mode)]; ok {
		return value, nil
	}
	return "default", nil
}

func (s *silicon) SetMode(_ context.Context, gpu string, mode modes.Mode, value string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.values[gpu+" "+string(mode)] = value
	return nil
}

func (s *silicon) Users(context.Context, string) ([]modes.User, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.users), nil
}

// use has processes on all GPUs.
func (s *silicon) use(users ...modes.User) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.users = users
}

// changed are the modes that are not as usual.
func (s *silicon) changed() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	others := maps.Clone(s.values)
	maps.DeleteFunc(others, func(_, value string) bool { return value == "default" })
	return fmt.Sprint(others)
}

// former is a backend of pages that changes a mode of its GPUs.
type former struct {
	*pages
	book  *modes.Book
	mode  modes.Mode
	value func(gpu backend.GPU) string
	mu    sync.Mutex
	fail  error // of Enter, after the mode was changed
	calls []string
}

func (f *former) Extends() backend.Backend { return f.pages }

func (f *former) Enter(ctx context.Context, gpu backend.GPU) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.calls = append(f.calls, fmt.Sprintf("enter %d", gpu.Index))
	if err := f.book.Set(ctx, gpu.UUID, f.mode, f.value(gpu)); err != nil {
		return err
	}
	return f.fail
}

func (f *former) Leave(ctx context.Context, gpu backend.GPU) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	_, err := f.book.Of(f.mode).PutBack(ctx, gpu.UUID)
	return err
}

// broken has Enter fail.
func (f *former) broken(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.fail = err
}

// forge is a node whose GPUs have modes: backend timeslice sets time slices, and backend mps the compute mode.
type forge struct {
	*node
	silicon       *silicon
	sliced, mpsed *former
}

func newForge(t *testing.T) *forge {
	t.Helper()
	return &forge{node: newNode(t), silicon: &silicon{values: map[string]string{}}}
}

// run starts an agent with the rules of an agent.yaml, which may be empty.
func (f *forge) run(rules string, step func(string)) *running {
	f.t.Helper()
	c := f.settings(f.backend)
	book, err := modes.Open(filepath.Join(f.dir, modes.FileName), f.silicon, step)
	if err != nil {
		f.t.Fatal(err)
	}
	if rules != "" {
		c.Rules = f.rules(rules)
	}
	c.Step, c.Modes = step, book
	if c.Forms, err = OpenForms(filepath.Join(f.dir, "forms.json"), c.Rules); err != nil {
		f.t.Fatal(err)
	}
	forms := c.Forms
	f.sliced = &former{pages: f.backend, book: book, mode: modes.TimeSlice, value: func(gpu backend.GPU) string {
		return cmp.Or(forms.Slice(gpu), "long")
	}}
	f.mpsed = &former{pages: f.backend, book: book, mode: modes.ComputeMode, value: func(backend.GPU) string { return "exclusive-process" }}
	c.Backends = registry.New(registry.Kind{Name: v1alpha1.BackendSlice, Backend: f.backend},
		registry.Kind{Name: v1alpha1.BackendTimeslice, Backend: f.sliced}, registry.Kind{Name: v1alpha1.BackendMPS, Backend: f.mpsed})
	return f.startAs(c)
}

// give gives a GPU a form as root.
func (f *forge) give(r *running, gpu string, form agentconfig.Form) error {
	f.t.Helper()
	_, err := r.giveForm(f.t.Context(), &control.Peer{UID: os.Getuid()}, control.FormParams{GPU: gpu, Form: form})
	return err
}

const (
	longFirst      = "map[" + firstID + " time-slice:long]"
	shortFirst     = "map[" + firstID + " time-slice:short]"
	exclusiveFirst = "map[" + firstID + " compute-mode:exclusive-process]"
	unchanged      = "map[]"
)

// A GPU is prepared before its first share is planned, and put back after its last.
func TestFormOfShares(t *testing.T) {
	f := newForge(t)
	r := f.run("", nil)
	first, second := f.asker(os.Getuid()), f.asker(os.Getuid())
	f.grant(r, first, timesliced("0", gib))
	if got := f.silicon.changed(); got != longFirst {
		t.Fatalf("with a share: %s", got)
	}
	f.silicon.use(modes.User{PID: 7})
	f.grant(r, second, timesliced("0", gib)) // beside it, though the GPU is in use
	f.silicon.use()
	for i, a := range []*asker{first, second} {
		if got := f.silicon.changed(); got != longFirst {
			t.Errorf("before the end of share %d: %s", i, got)
		}
		a.hangUp()
		a.kill()
	}
	eventually(t, "the GPU is as it was", func() bool { return f.silicon.changed() == unchanged })
	if _, err := r.Prepare(t.Context(), claimed("a", gib, 30)); err != nil {
		t.Error(err)
	}
}

// A GPU on which somebody is keeps its modes, and the refusal names who is there.
func TestFormOfGPUInUse(t *testing.T) {
	f := newForge(t)
	r := f.run("", nil)
	f.silicon.use(modes.User{PID: 7, Name: "monitor", Owner: "ada"})
	text, code := f.refusal(r, os.Getuid(), timesliced("0", gib))
	if code != control.CodeRefused || !strings.Contains(text, "process 7 (monitor) of ada") {
		t.Errorf("refused with %s: %s", code, text)
	}
	if got := f.silicon.changed(); got != unchanged {
		t.Errorf("it has %s", got)
	}
	if l := f.list(r); len(l.Tenants) != 0 {
		t.Errorf("left are %+v", l.Tenants)
	}
	if err := f.give(r, "0", agentconfig.Form{Backend: v1alpha1.BackendSlice}); control.CodeOf(err) != control.CodeRefused || !strings.Contains(err.Error(), "process 7") {
		t.Errorf("given by hand: %v", err)
	}
}

// What fails halfway leaves the GPU as it was, and the next share tries again.
func TestFormThatFails(t *testing.T) {
	f := newForge(t)
	r := f.run("", nil)
	f.sliced.broken(errors.New("the tool is missing"))
	if text, code := f.refusal(r, os.Getuid(), timesliced("0", gib)); code != control.CodeRefused || !strings.Contains(text, "GPU 0 cannot be prepared for shares of backend timeslice: the tool is missing") {
		t.Errorf("refused with %s: %s", code, text)
	}
	if got := f.silicon.changed(); got != unchanged {
		t.Errorf("it has %s", got)
	}
	f.sliced.broken(nil)
	f.grant(r, f.asker(os.Getuid()), timesliced("0", gib))
}

// A tenancy's GPU is prepared as well.
func TestFormOfTenancy(t *testing.T) {
	f := newForge(t)
	r := f.run("", nil)
	wanted := claimed("a", gib, 0)
	wanted.Shares[0].Config = v1alpha1.ShareConfig{Backend: v1alpha1.BackendTimeslice}
	f.sliced.broken(errors.New("the tool is missing"))
	if _, err := r.Prepare(t.Context(), wanted); err == nil || !strings.Contains(err.Error(), "the tool is missing") {
		t.Errorf("prepared: %v", err)
	}
	if got := f.silicon.changed(); len(r.Tenancies()) != 0 || got != unchanged {
		t.Errorf("left are %v and %s", r.Tenancies(), got)
	}
	f.sliced.broken(nil)
	if _, err := r.Prepare(t.Context(), wanted); err != nil || f.silicon.changed() != longFirst {
		t.Fatalf("%v, %s", err, f.silicon.changed())
	}
	if err := r.Release(t.Context(), "a"); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the GPU is as it was", func() bool { return f.silicon.changed() == unchanged })
}

// Who gives a GPU its form has it prepared from the start, and kept without shares.
func TestFormOfTheConfiguration(t *testing.T) {
	f := newForge(t)
	r := f.run("backends: {timeslice: {gpus: [0], slice: short, replicas: 2}}", nil)
	if got := f.silicon.changed(); got != shortFirst {
		t.Fatalf("at the start: %s", got)
	}
	var askers []*asker
	for range 2 {
		p := timesliced("0", 0)
		p.Request.Memory = v1alpha1.Memory{}
		askers = append(askers, f.asker(bob))
		if got := f.grant(r, askers[len(askers)-1], p).Tenant.Shares[0].Limit; got != 40*gib {
			t.Errorf("a share of two without memory has %d GiB", got>>30)
		}
	}
	if text, code := f.refusal(r, bob, timesliced("0", gib)); code != control.CodeRefused || !strings.Contains(text, "the administrator allows 2 shares on it") {
		t.Errorf("a third one: %s, %s", code, text)
	}
	for _, a := range askers {
		a.hangUp()
		a.kill()
	}
	eventually(t, "the shares have ended", func() bool { return len(f.list(r).Tenants) == 0 })
	if err := f.give(r, "0", agentconfig.Form{}); control.CodeOf(err) != control.CodeInvalid || !strings.Contains(err.Error(), "its field backends") {
		t.Errorf("given by hand: %v", err)
	}
	if got := f.silicon.changed(); got != shortFirst {
		t.Errorf("without shares: %s", got)
	}
	r.stopAgent()
	f.run("outside: report", nil)
	if got := f.silicon.changed(); got != unchanged {
		t.Errorf("after the configuration has changed: %s", got)
	}
}

// A form that is given by hand outlives the agent.
func TestFormGivenByHand(t *testing.T) {
	f := newForge(t)
	r := f.run("", nil)
	for _, c := range []struct {
		form agentconfig.Form
		want string
	}{
		{agentconfig.Form{Backend: v1alpha1.BackendTimeslice, Slice: "short"}, shortFirst},
		{agentconfig.Form{Backend: v1alpha1.BackendMPS}, exclusiveFirst},
		{agentconfig.Form{Backend: v1alpha1.BackendTimeslice}, longFirst},
		{agentconfig.Form{Backend: v1alpha1.BackendTimeslice, Slice: "short"}, shortFirst},
		{agentconfig.Form{Backend: v1alpha1.BackendSlice}, unchanged},
		{agentconfig.Form{Backend: v1alpha1.BackendMPS}, exclusiveFirst},
	} {
		if err := f.give(r, "0", c.form); err != nil || f.silicon.changed() != c.want {
			t.Fatalf("%+v: %v, %s, want %s", c.form, err, f.silicon.changed(), c.want)
		}
	}
	r.stopAgent()
	r = f.run("", nil)
	if text, code := f.refusal(r, bob, askOn("0", gib)); code != control.CodeInvalid || !strings.Contains(text, "gave GPU 0 backend mps") {
		t.Errorf("another backend: %s, %s", code, text)
	}
	f.grant(r, f.asker(os.Getuid()), askOn("1", gib))
	if err := f.give(r, "1", agentconfig.Form{Backend: v1alpha1.BackendMPS}); control.CodeOf(err) != control.CodeRefused || !strings.Contains(err.Error(), "GPU 1 has shares") {
		t.Errorf("beside a share: %v", err)
	}
	if err := f.give(r, "0", agentconfig.Form{}); err != nil || f.silicon.changed() != unchanged {
		t.Errorf("none: %v, %s", err, f.silicon.changed())
	}
	f.sliced.broken(errors.New("the tool is missing"))
	if err := f.give(r, "0", agentconfig.Form{Backend: v1alpha1.BackendTimeslice}); control.CodeOf(err) != control.CodeRefused || !strings.Contains(err.Error(), "the tool is missing") {
		t.Errorf("a form that fails: %v", err)
	}
	if form, by := r.config.Forms.Of(r.gpus[0]); by != control.GivenNone || f.silicon.changed() != unchanged {
		t.Errorf("it was given %+v by %q, and has %s", form, by, f.silicon.changed())
	}
	if err := f.give(r, "7", agentconfig.Form{Backend: v1alpha1.BackendSlice}); control.CodeOf(err) != control.CodeNotFound {
		t.Errorf("a GPU that is not there: %v", err)
	}
	if _, err := r.giveForm(t.Context(), &control.Peer{UID: bob}, control.FormParams{GPU: "0"}); control.CodeOf(err) != control.CodeDenied {
		t.Errorf("another user: %v", err)
	}
}

// Who waits gets the GPU when its shares and the processes without one have ended, and nobody overtakes.
func TestFormWaits(t *testing.T) {
	f := newForge(t)
	r := f.run("", nil)
	holder := f.asker(os.Getuid())
	f.grant(r, holder, askOn("0", gib))
	f.silicon.use(modes.User{PID: 7})
	answer := make(chan error, 1)
	go func() {
		_, err := r.giveForm(context.Background(), &control.Peer{UID: os.Getuid()}, control.FormParams{GPU: "0", Form: agentconfig.Form{Backend: v1alpha1.BackendMPS}, Wait: true})
		answer <- err
	}()
	eventually(t, "the GPU is closed", func() bool { return r.formed(t.Context(), r.gpus[0]).Fault != "" })
	if text, code := f.refusal(r, os.Getuid(), askOn("0", gib)); code != control.CodeRefused || !strings.Contains(text, "about to change its form") {
		t.Errorf("a share that comes later: %s, %s", code, text)
	}
	if err := f.give(r, "0", agentconfig.Form{}); control.CodeOf(err) != control.CodeRefused || !strings.Contains(err.Error(), "somebody else") {
		t.Errorf("a second one: %v", err)
	}
	holder.hangUp()
	holder.kill()
	eventually(t, "the form was given", func() bool { _, by := r.config.Forms.Of(r.gpus[0]); return by == control.GivenByHand })
	select {
	case err := <-answer:
		t.Fatalf("answered while a process is there: %v", err)
	default:
	}
	f.silicon.use()
	if err := <-answer; err != nil || f.silicon.changed() != exclusiveFirst {
		t.Errorf("%v, %s", err, f.silicon.changed())
	}
}
