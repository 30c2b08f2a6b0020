package nri

import (
	"context"
	"errors"
	"fmt"
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
	validator "github.com/containerd/nri/plugins/default-validator"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/agent"
	"github.com/divvy-gpu/divvy/internal/edits"
)

// timeout is when a test gives up on what should have happened long ago.
const timeout = 30 * time.Second

// runtimeSide is NRI's own half of a container runtime, with its validator.
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
		adaptation.WithSocketPath(filepath.Join(none, "nri.sock")), adaptation.WithPluginPath(none), adaptation.WithPluginConfigPath(none),
		adaptation.WithDefaultValidator(&validator.DefaultValidatorConfig{Enable: true}))
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
		Pod: sandbox, Container: &api.Container{Id: "c-" + container, PodSandboxId: sandbox.Id, Name: container},
	})
	if err != nil {
		return nil, err
	}
	return answer.Adjust, nil
}

// tenants stands for the agent.
type tenants struct {
	mu       sync.Mutex
	held     map[string]agent.Tenancy
	prepared int
	adopted  []string
	inUse    int                       // how often a release finds processes
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
		v1alpha1.RequestAnnotation:                          askText,
		v1alpha1.AssignmentAnnotation:                       strings.Replace(givenText, "UID", uid, 1),
		"required-plugins.noderesource.dev/container.first": "- divvy\n",
		"required-plugins.noderesource.dev/container.main":  "- divvy\n",
	}}
}

type connected struct {
	plugin *Plugin
	stop   func()
}

func connect(t *testing.T, socket string, a *tenants, probe func(context.Context) error) *connected {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	p := New(Config{Socket: socket, Tenants: a, Probe: probe, Log: slog.New(slog.NewTextHandler(t.Output(), nil))})
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

func proven(context.Context) error { return nil }

func TestContainerGetsItsShare(t *testing.T) {
	socket, a := filepath.Join(t.TempDir(), "nri.sock"), newTenants()
	r := startRuntime(t, socket, nil, nil)
	defer r.end()
	connect(t, socket, a, proven).until(t, up)
	sandbox := sandboxOf("s1", "u1")
	if err := r.RunPodSandbox(context.Background(), &api.RunPodSandboxRequest{Pod: sandbox}); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"first", "main", "main"} {
		adjust, err := r.create(sandbox, name)
		if err != nil {
			t.Fatal(err)
		}
		if len(adjust.GetMounts()) != 1 || adjust.Mounts[0].Source != "/dev/shm/pod/u1/main" || adjust.Mounts[0].Destination != "/run/divvy/share" {
			t.Errorf("container %s gets %v", name, adjust)
		}
	}
	a.expect(t, "+pod/u1/main")
	want := agent.Tenancy{Key: "pod/u1/main", Name: "lab/p", Namespace: "lab", Pods: []string{"p"}, Shares: []agent.TenancyShare{
		{UUID: "GPU-aaaa", Memory: 4 << 30, Cores: 30, Config: v1alpha1.ShareConfig{Policy: "fixed", Weight: 1, Class: "online", Backend: "slice"}},
	}}
	if got := fmt.Sprint(a.Tenancies()); got != fmt.Sprint([]agent.Tenancy{want}) {
		t.Errorf("prepared %s", got)
	}
	if adjust, err := r.create(sandbox, "other"); err != nil || len(adjust.GetMounts()) > 0 {
		t.Errorf("a container without a share gets %v, %v", adjust, err)
	}
	plain := &api.PodSandbox{Id: "s2", Uid: "u2", Name: "q", Namespace: "lab"}
	if adjust, err := r.create(plain, "main"); err != nil || len(adjust.GetMounts()) > 0 {
		t.Errorf("a pod without a share gets %v, %v", adjust, err)
	}
}

// TestAway is the reason for the required-plugins annotation.
func TestAway(t *testing.T) {
	socket, a := filepath.Join(t.TempDir(), "nri.sock"), newTenants()
	r := startRuntime(t, socket, nil, nil)
	defer r.end()
	c := connect(t, socket, a, proven)
	c.until(t, up)
	c.stop()
	if reason, err := c.plugin.Guard().Down(); err == nil {
		t.Errorf("the guard is up without a plugin: %v", reason)
	}
	sandbox := sandboxOf("s1", "u1")
	if _, err := r.create(sandbox, "main"); err == nil || !strings.Contains(err.Error(), `"divvy"`) {
		t.Errorf("a container is made while the plugin is away: %v", err)
	}
	if _, err := r.create(sandbox, "other"); err != nil {
		t.Errorf("a container without a share: %v", err)
	}
	connect(t, socket, a, proven).until(t, up)
	if adjust, err := r.create(sandbox, "main"); err != nil || len(adjust.GetMounts()) != 1 {
		t.Errorf("with the plugin back it gets %v, %v", adjust, err)
	}
}

func TestRefused(t *testing.T) {
	socket, a := filepath.Join(t.TempDir(), "nri.sock"), newTenants()
	a.fail = func(t agent.Tenancy) error {
		if strings.Contains(t.Key, "full") {
			return errors.New("GPU 0 has 1Gi free")
		}
		return nil
	}
	r := startRuntime(t, socket, nil, nil)
	defer r.end()
	connect(t, socket, a, proven).until(t, up)
	for name, test := range map[string]struct {
		change func(map[string]string)
		want   string
	}{
		"never bound by us":     {func(n map[string]string) { delete(n, v1alpha1.AssignmentAnnotation) }, "no annotation divvy.dev/assignment"},
		"never asked":           {func(n map[string]string) { delete(n, v1alpha1.RequestAnnotation) }, "and no divvy.dev/request"},
		"request is no request": {func(n map[string]string) { n[v1alpha1.RequestAnnotation] = "{}" }, "invalid annotation divvy.dev/request"},
		"assignment is none":    {func(n map[string]string) { n[v1alpha1.AssignmentAnnotation] = "{}" }, "invalid annotation divvy.dev/assignment"},
		"assignment of another": {func(n map[string]string) {
			n[v1alpha1.AssignmentAnnotation] = strings.Replace(givenText, "UID", "other", 1)
		}, "made for pod other"},
		"assignment is larger": {func(n map[string]string) {
			n[v1alpha1.AssignmentAnnotation] = strings.Replace(n[v1alpha1.AssignmentAnnotation], "4294967296", "8589934592", 1)
		}, "are asked for"},
		"the agent has no room ": {func(map[string]string) {}, "GPU 0 has 1Gi free"},
	} {
		sandbox := sandboxOf("s-"+name, "full-"+name)
		test.change(sandbox.Annotations)
		if err := r.RunPodSandbox(context.Background(), &api.RunPodSandboxRequest{Pod: sandbox}); err != nil {
			t.Errorf("%s: the sandbox is refused: %v", name, err)
		}
		if _, err := r.create(sandbox, "main"); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if got := a.Tenancies(); len(got) > 0 {
		t.Errorf("left are %v", got)
	}
}

func TestSlowPreparation(t *testing.T) {
	socket, a := filepath.Join(t.TempDir(), "nri.sock"), newTenants()
	a.hold = make(chan struct{})
	r := startRuntime(t, socket, nil, nil)
	defer r.end()
	c := connect(t, socket, a, proven)
	c.until(t, up)
	sandbox := sandboxOf("s1", "u1")
	if err := r.RunPodSandbox(context.Background(), &api.RunPodSandboxRequest{Pod: sandbox}); err != nil {
		t.Fatalf("a sandbox waits for its shares: %v", err)
	}
	if _, err := r.create(sandbox, "main"); err == nil || !strings.Contains(err.Error(), errSlow.Error()) {
		t.Fatalf("a share that is not there yet: %v", err)
	}
	close(a.hold)
	a.expect(t, "+pod/u1/main")
	if adjust, err := r.create(sandbox, "main"); err != nil || len(adjust.GetMounts()) != 1 {
		t.Errorf("then it gets %v, %v", adjust, err)
	}
	if _, reason := c.plugin.Guard().Down(); reason != nil {
		t.Errorf("the runtime dropped the plugin: %v", reason)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.prepared != 1 {
		t.Errorf("prepared %d times, though one was under way", a.prepared)
	}
}

func TestRuntimeRestarts(t *testing.T) {
	socket, a := filepath.Join(t.TempDir(), "nri.sock"), newTenants()
	c := connect(t, socket, a, proven)
	for i := range 3 {
		c.until(t, func(err error) bool { return errors.Is(err, ErrApart) })
		r := startRuntime(t, socket, nil, nil)
		c.until(t, up)
		if _, err := r.create(sandboxOf("s1", "u1"), "main"); err != nil {
			t.Errorf("start %d: %v", i, err)
		}
		r.end()
	}
}

func TestOpenRuntime(t *testing.T) {
	socket, a := filepath.Join(t.TempDir(), "nri.sock"), newTenants()
	r := startRuntime(t, socket, nil, nil)
	defer r.end()
	answers := make(chan error, 2)
	answers <- errors.New("the runtime is still starting")
	answers <- ErrOpen
	c := connect(t, socket, a, func(context.Context) error {
		select {
		case err := <-answers:
			return err
		default:
			t.Error("probed after an answer")
			return nil
		}
	})
	c.until(t, func(err error) bool {
		return errors.Is(err, ErrUnproven) && strings.Contains(err.Error(), "still starting")
	})
	c.until(t, func(err error) bool { return errors.Is(err, ErrOpen) })
}
