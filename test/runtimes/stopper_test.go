package runtimes

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/containerd/nri/pkg/api"
	"github.com/containerd/nri/pkg/stub"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/agent"
	"github.com/divvy-gpu/divvy/internal/agent/nri"
	"github.com/divvy-gpu/divvy/internal/edits"
)

// slotMounts is what the agent's device plugin answers for a container with a slot or a replica.
func slotMounts() []*cri.Mount {
	return []*cri.Mount{{ContainerPath: v1alpha1.Stopper, HostPath: "/dev/null", Readonly: true}}
}

// tenants makes shares that are a folder of the host.
type tenants struct {
	mu   sync.Mutex
	held map[string]agent.Tenancy
}

func (a *tenants) Prepare(_ context.Context, t agent.Tenancy) (edits.Edits, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.held[t.Key] = t
	return edits.Edits{Mounts: []edits.Mount{{Source: "/etc", Target: edits.ShareDir, Options: edits.ReadOnly}}}, nil
}

func (a *tenants) Release(_ context.Context, key string) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.held, key)
	return nil
}

func (a *tenants) Tenancies() []agent.Tenancy {
	a.mu.Lock()
	defer a.mu.Unlock()
	var all []agent.Tenancy
	for _, t := range a.held {
		all = append(all, t)
	}
	return all
}

func (a *tenants) Adopt(context.Context, string) {}

// serve runs the agent's plugin until the test ends or stop is called, and waits until the runtime asks it.
func (m *machine) serve(a *tenants) (guard *nri.Guard, stop func()) {
	m.t.Helper()
	p := nri.New(nri.Config{
		Socket: m.dir + "/nri.sock", Tenants: a, Capacity: func(string) uint64 { return 1 << 34 },
		Log: slog.New(slog.NewTextHandler(m.t.Output(), nil)),
	})
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- p.Run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			m.t.Error(err)
		}
	})
	m.t.Cleanup(stop)
	m.asks(p.Guard())
	return p.Guard(), stop
}

// asks waits until the runtime asks the plugin.
func (m *machine) asks(guard *nri.Guard) {
	m.t.Helper()
	m.until("the runtime asks", func(context.Context) error {
		_, reason := guard.Down()
		return reason
	})
}

const config = `{"policy":"fixed","weight":1,"class":"online","backend":"slice"}`

// replicas are the annotations that the agent's device plugin answers for a container with a replica.
func replicas() map[string]string {
	return map[string]string{v1alpha1.ReplicasAnnotation: v1alpha1.ReplicasText([]v1alpha1.Replica{{UUID: "GPU-aaaa", Of: 4, Backend: v1alpha1.BackendTimeslice}})}
}

// asking makes the sandbox of a pod whose container main has a share.
func (m *machine) asking(name string) *sandbox {
	return m.pod(name, map[string]string{
		v1alpha1.RequestAnnotation:    `{"version":1,"shares":[{"name":"main","containers":["main"],"gpus":1,"memory":4294967296,"cores":30,"config":` + config + `}]}`,
		v1alpha1.AssignmentAnnotation: `{"version":1,"pod":"uid-` + name + `","shares":[{"name":"main","containers":["main"],"gpus":[{"uuid":"GPU-aaaa","memory":4294967296,"cores":30}],"config":` + config + `}]}`,
	})
}

// stays checks that a container does not start, for the reason that is named.
func (s *sandbox) stays(what, id string, err error) {
	s.t.Helper()
	if s.kind.mountsFirst {
		if err == nil || !strings.Contains(err.Error(), v1alpha1.Stopper) {
			s.t.Errorf("%s: the container is made, or nobody says why not: %v", what, err)
		}
		s.t.Logf("%s: %v", what, err)
		return
	}
	if err != nil {
		s.t.Fatalf("%s: the container is not made: %v", what, err)
	}
	if err := s.start(id); err == nil || !strings.Contains(err.Error(), v1alpha1.Stopper) {
		s.t.Errorf("%s: the container starts, or nobody says why not: %v", what, err)
	}
	status, err := s.state(s.t.Context(), id)
	if err != nil {
		s.t.Fatal(err)
	}
	if status.GetState() != cri.ContainerState_CONTAINER_EXITED || status.GetStartedAt() != 0 {
		s.t.Errorf("%s: %v", what, status)
	}
	s.remove(id)
}

// runs checks that a container which was made starts, and has or has not a share.
func (s *sandbox) runs(what, id string, err error, share bool) {
	s.t.Helper()
	if err != nil {
		s.t.Fatalf("%s: the container is not made: %v", what, err)
	}
	if err := s.start(id); err != nil {
		s.t.Fatalf("%s: the container does not start: %v", what, err)
	}
	if missing := s.ended(id); (missing == 0) != share {
		s.t.Errorf("%s: the container ends with %d", what, missing)
	}
	s.remove(id)
}

// A container with a slot starts with its share or not at all, whatever becomes of the agent.
func TestNoContainerStartsWithoutItsShare(t *testing.T) {
	each(t, func(t *testing.T, k kind) {
		m := start(t, k, true)
		s, plain := m.asking("p"), m.pod("q", nil)
		main := func() (string, error) { return s.create("main", nil, slotMounts(), edits.ShareDir) }
		id, err := main()
		s.stays("no agent", id, err)
		id, err = plain.create("main", nil, nil, edits.ShareDir)
		plain.runs("a pod without a slot, no agent", id, err, false)

		_, stop := m.serve(&tenants{held: map[string]agent.Tenancy{}})
		id, err = main()
		s.runs("the agent is there", id, err, true)
		id, err = s.create("beside", nil, nil, edits.ShareDir)
		s.runs("a container without a slot", id, err, false)
		id, err = plain.create("replica", replicas(), slotMounts(), edits.ShareDir)
		plain.runs("a replica", id, err, true)
		if _, err := plain.create("unasked", nil, slotMounts()); err == nil || !strings.Contains(err.Error(), v1alpha1.SlotResource) {
			t.Errorf("a slot without a request: %v", err)
		}
		stop()
		id, err = main()
		s.stays("the agent is gone", id, err)
	})
}

// A pod that says itself that its container was given a replica gets none, also where the runtime shows the container with
// the annotations of its pod.
func TestNoPodGivesItselfReplicas(t *testing.T) {
	each(t, func(t *testing.T, k kind) {
		m := start(t, k, true)
		a := &tenants{held: map[string]agent.Tenancy{}}
		m.serve(a)
		forger := m.pod("p", replicas())
		if id, err := forger.create("main", nil, nil, edits.ShareDir); err == nil {
			forger.runs("the annotation is the pod's", id, err, false)
		} else if !strings.Contains(err.Error(), v1alpha1.ReplicasAnnotation) {
			t.Error(err)
		}
		if held := a.Tenancies(); len(held) > 0 {
			t.Errorf("it holds %v", held)
		}
	})
}

// dying is an agent whose connection ends while it is asked, or which answers too late.
type dying struct {
	synchronized chan struct{}
	asked        func(ctx context.Context)
}

func (d *dying) Synchronize(context.Context, []*api.PodSandbox, []*api.Container) ([]*api.ContainerUpdate, error) {
	close(d.synchronized)
	return nil, nil
}

func (d *dying) CreateContainer(ctx context.Context, _ *api.PodSandbox, _ *api.Container) (*api.ContainerAdjustment, []*api.ContainerUpdate, error) {
	d.asked(ctx)
	adjust := &api.ContainerAdjustment{}
	adjust.RemoveMount(v1alpha1.Stopper)
	return adjust, nil, nil
}

// An agent that dies or hangs while the runtime waits for its answer lets no container through.
func TestAgentThatFailsWhileAsked(t *testing.T) {
	each(t, func(t *testing.T, k kind) {
		m := start(t, k, true)
		s, made := m.asking("p"), make(chan struct{})
		for name, fail := range map[string]func(context.Context, func()){
			"it dies":  func(ctx context.Context, end func()) { end(); <-ctx.Done() },
			"it hangs": func(context.Context, func()) { <-made },
		} {
			d := &dying{synchronized: make(chan struct{})}
			closed := make(chan struct{})
			link, err := stub.New(d, stub.WithPluginName(v1alpha1.Plugin), stub.WithPluginIdx("50"),
				stub.WithSocketPath(m.dir+"/nri.sock"), stub.WithOnClose(sync.OnceFunc(func() { close(closed) })))
			if err != nil {
				t.Fatal(err)
			}
			asked := make(chan struct{})
			d.asked = func(ctx context.Context) { close(asked); fail(ctx, link.Stop) }
			if err := link.Start(t.Context()); err != nil {
				t.Fatal(err)
			}
			<-d.synchronized
			id, err := s.create("main", nil, slotMounts(), edits.ShareDir)
			select {
			case <-asked:
			case <-time.After(longest):
				t.Fatal("the agent was not asked")
			}
			s.stays(name, id, err)
			close(made)
			made = make(chan struct{})
			link.Stop()
			<-closed
		}
	})
}

// Where NRI is off the runtime has no socket, and nothing starts with a slot.
func TestWithoutNRI(t *testing.T) {
	each(t, func(t *testing.T, k kind) {
		m := start(t, k, false)
		p := nri.New(nri.Config{Socket: m.dir + "/nri.sock", Tenants: &tenants{}, Log: slog.New(slog.DiscardHandler)})
		ctx, cancel := context.WithCancel(context.Background())
		ended := make(chan error, 1)
		go func() { ended <- p.Run(ctx) }()
		defer func() { cancel(); <-ended }()
		m.until("the agent knows that NRI is off", func(context.Context) error {
			if _, reason := p.Guard().Down(); reason == nil || !strings.Contains(reason.Error(), "disable = false") {
				return fmt.Errorf("it says %w", reason)
			}
			return nil
		})
		s := m.asking("p")
		id, err := s.create("main", nil, slotMounts(), edits.ShareDir)
		s.stays("NRI is off", id, err)
	})
}
