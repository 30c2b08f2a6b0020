package nri

import (
	"context"
	"io"
	"log/slog"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/containerd/nri/pkg/adaptation"
	"github.com/containerd/nri/pkg/api"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/agent"
	"github.com/divvy-gpu/divvy/internal/edits"
)

// timeout is when a test gives up on what should have happened long ago.
const timeout = 5 * time.Minute

// runtimeSide is NRI's own half of a container runtime.
type runtimeSide struct {
	*adaptation.Adaptation
	listener   net.Listener
	mu         sync.Mutex
	links      []net.Conn
	sandboxes  []*api.PodSandbox
	containers []*api.Container
}

func startRuntime(t *testing.T, socket string, sandboxes []*api.PodSandbox, containers []*api.Container) *runtimeSide {
	t.Helper()
	return startRuntimeThatWaits(t, socket, timeout, sandboxes, containers)
}

// startRuntimeThatWaits starts one that waits so long for each answer of a plugin, where a real one waits two seconds.
func startRuntimeThatWaits(t *testing.T, socket string, answer time.Duration, sandboxes []*api.PodSandbox, containers []*api.Container) *runtimeSide {
	t.Helper()
	adaptation.SetPluginRegistrationTimeout(timeout)
	adaptation.SetPluginRequestTimeout(answer)
	r := &runtimeSide{sandboxes: sandboxes, containers: containers}
	synchronize := func(ctx context.Context, call adaptation.SyncCB) error {
		r.mu.Lock()
		defer r.mu.Unlock()
		_, err := call(ctx, r.sandboxes, r.containers)
		return err
	}
	update := func(context.Context, []*adaptation.ContainerUpdate) ([]*adaptation.ContainerUpdate, error) {
		return nil, nil
	}
	none := t.TempDir()
	made, err := adaptation.New("runtime", "v2.3.7", synchronize, update,
		adaptation.WithSocketPath(filepath.Join(none, "nri.sock")), adaptation.WithPluginPath(none), adaptation.WithPluginConfigPath(none))
	if err != nil {
		t.Fatal(err)
	}
	r.Adaptation = made
	if err := made.Start(); err != nil {
		t.Fatal(err)
	}
	if r.listener, err = net.Listen("unix", socket); err != nil {
		t.Fatal(err)
	}
	go r.forward(filepath.Join(none, "nri.sock"))
	return r
}

// forward lets connections be cut, as the end of a runtime does and its own Stop
// does not.
func (r *runtimeSide) forward(to string) {
	for {
		theirs, err := r.listener.Accept()
		if err != nil {
			return
		}
		ours, err := net.Dial("unix", to)
		if err != nil {
			theirs.Close()
			continue
		}
		r.mu.Lock()
		r.links = append(r.links, theirs, ours)
		r.mu.Unlock()
		go func() { io.Copy(ours, theirs); ours.Close() }()
		go func() { io.Copy(theirs, ours); theirs.Close() }()
	}
}

func (r *runtimeSide) end() {
	r.listener.Close()
	r.mu.Lock()
	for _, link := range r.links {
		link.Close()
	}
	r.mu.Unlock()
	r.Stop()
}

func (r *runtimeSide) create(sandbox *api.PodSandbox, container string) (*api.ContainerAdjustment, error) {
	defer r.BlockPluginSync().Unblock() // as containerd does
	answer, err := r.CreateContainer(context.Background(), &api.CreateContainerRequest{
		Pod: sandbox, Container: &api.Container{Id: "c-" + container, PodSandboxId: sandbox.Id, Name: container, Mounts: mountsOf(sandbox, container)},
	})
	if err != nil {
		return nil, err
	}
	return answer.Adjust, nil
}

// mountsOf is what the agent's device plugin has put into a container before.
func mountsOf(sandbox *api.PodSandbox, container string) []*api.Mount {
	if !asks(sandbox) || container == "other" {
		return nil
	}
	return []*api.Mount{{Source: "/dev/null", Destination: v1alpha1.Stopper, Type: "bind"}}
}

// tenants stands for the agent.
type tenants struct {
	mu       sync.Mutex
	held     map[string]agent.Tenancy
	prepared int
	adopted  []string
	inUse    int                       // how often a release finds processes
	midway   func()                    // what happens while a share is released
	hold     chan struct{}             // what a preparation waits for
	fail     func(agent.Tenancy) error // what a preparation fails with
	changes  chan string
}

func newTenants() *tenants {
	return &tenants{held: make(map[string]agent.Tenancy), changes: make(chan string, 100)}
}

func (a *tenants) Prepare(ctx context.Context, t agent.Tenancy) (edits.Edits, error) {
	a.mu.Lock()
	hold, fail := a.hold, a.fail
	a.mu.Unlock()
	if hold != nil {
		select {
		case <-hold:
		case <-ctx.Done():
			return edits.Edits{}, ctx.Err()
		}
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.prepared++
	if fail != nil {
		if err := fail(t); err != nil {
			return edits.Edits{}, err
		}
	}
	if _, ok := a.held[t.Key]; !ok {
		a.changes <- "+" + t.Key
	}
	a.held[t.Key] = t
	return edits.Edits{
		Mounts: []edits.Mount{{Source: "/dev/shm/" + t.Key, Target: edits.ShareDir, Options: edits.ReadOnly}},
		Env:    []edits.Env{{Name: "NVIDIA_VISIBLE_DEVICES", Value: "void"}},
	}, nil
}

func (a *tenants) Release(_ context.Context, key string) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.inUse > 0 {
		a.inUse--
		return agent.ErrInUse
	}
	if _, ok := a.held[key]; ok {
		if a.midway != nil {
			a.midway()
		}
		delete(a.held, key)
		a.changes <- "-" + key
	}
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

func (a *tenants) Adopt(_ context.Context, key string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.adopted = append(a.adopted, key)
}

func (a *tenants) set(change func()) {
	a.mu.Lock()
	defer a.mu.Unlock()
	change()
}

func (a *tenants) expect(t *testing.T, changes ...string) {
	t.Helper()
	var got []string
	for range changes {
		select {
		case change := <-a.changes:
			got = append(got, change)
		case <-time.After(timeout):
			t.Fatalf("got %q, want %q", got, changes)
		}
	}
	slices.Sort(got)
	slices.Sort(changes)
	if !slices.Equal(got, changes) {
		t.Fatalf("got %q, want %q", got, changes)
	}
}

const (
	configText = `{"policy":"fixed","weight":1,"class":"online","backend":"slice"}`
	askText    = `{"version":1,"shares":[{"name":"main","containers":["first","main"],"gpus":1,"memory":4294967296,"cores":30,"config":` + configText + `}]}`
	givenText  = `{"version":1,"pod":"UID","shares":[{"name":"main","containers":["first","main"],"gpus":[{"uuid":"GPU-aaaa","memory":4294967296,"cores":30}],"config":` + configText + `}]}`
)

// sandboxOf is a sandbox that runs, of a pod that asks and was bound.
func sandboxOf(id, uid string) *api.PodSandbox {
	return &api.PodSandbox{Id: id, Uid: uid, Name: "p", Namespace: "lab", Pid: 1, Annotations: map[string]string{
		v1alpha1.RequestAnnotation:    askText,
		v1alpha1.AssignmentAnnotation: strings.Replace(givenText, "UID", uid, 1),
	}}
}

type connected struct {
	plugin *Plugin
	stop   func()
}

func connect(t *testing.T, socket string, a *tenants) *connected {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	p := New(Config{Socket: socket, Tenants: a, Log: slog.New(slog.NewTextHandler(t.Output(), nil))})
	ended := make(chan error, 1)
	go func() { ended <- p.Run(ctx) }()
	stop := sync.OnceFunc(func() {
		cancel()
		select {
		case err := <-ended:
			if err != nil {
				t.Error(err)
			}
		case <-time.After(timeout):
			t.Error("the plugin does not end")
		}
	})
	t.Cleanup(stop)
	return &connected{plugin: p, stop: stop}
}

// until waits for the guard to satisfy a condition.
func (c *connected) until(t *testing.T, condition func(error) bool) {
	t.Helper()
	limit := time.After(timeout)
	for {
		changed, reason := c.plugin.Guard().Down()
		if condition(reason) {
			return
		}
		select {
		case <-changed:
		case <-limit:
			t.Fatalf("the guard stays: %v", reason)
		}
	}
}

func up(err error) bool { return err == nil }
