package nri

import (
	"context"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/containerd/nri/pkg/api"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/agent"
)

// given are the mounts that a container gets, and freed says whether it may start.
func given(adjust *api.ContainerAdjustment) []*api.Mount {
	return slices.DeleteFunc(slices.Clone(adjust.GetMounts()), func(m *api.Mount) bool { return strings.HasPrefix(m.Destination, "-") })
}

func freed(adjust *api.ContainerAdjustment) bool {
	return slices.ContainsFunc(adjust.GetMounts(), func(m *api.Mount) bool { return m.Destination == api.MarkForRemoval(v1alpha1.Stopper) })
}

func TestContainerGetsItsShare(t *testing.T) {
	socket, a := filepath.Join(t.TempDir(), "nri.sock"), newTenants()
	r := startRuntime(t, socket, nil, nil)
	defer r.end()
	connect(t, socket, a).until(t, up)
	sandbox := sandboxOf("s1", "u1")
	if err := r.RunPodSandbox(context.Background(), &api.RunPodSandboxRequest{Pod: sandbox}); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"first", "main", "main"} {
		adjust, err := r.create(sandbox, name)
		if err != nil {
			t.Fatal(err)
		}
		if got := given(adjust); len(got) != 1 || !freed(adjust) || got[0].Source != "/dev/shm/pod/u1/main" || got[0].Destination != "/run/divvy/share" {
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

// A container that is made while the plugin is away keeps what stops it from starting, and
// loses it together with getting its share.
func TestAway(t *testing.T) {
	socket, a := filepath.Join(t.TempDir(), "nri.sock"), newTenants()
	r := startRuntime(t, socket, nil, nil)
	defer r.end()
	c := connect(t, socket, a)
	c.until(t, up)
	c.stop()
	if reason, err := c.plugin.Guard().Down(); err == nil {
		t.Errorf("the guard is up without a plugin: %v", reason)
	}
	sandbox := sandboxOf("s1", "u1")
	// A call that begins before the runtime has seen the end of the connection may be refused for that.
	adjust, err := r.create(sandbox, "main")
	for limit := time.Now().Add(timeout); err != nil && time.Now().Before(limit); {
		adjust, err = r.create(sandbox, "main")
	}
	if err != nil || len(adjust.GetMounts()) > 0 {
		t.Errorf("while the plugin is away a container gets %v, %v", adjust, err)
	}
	connect(t, socket, a).until(t, up)
	if adjust, err := r.create(sandbox, "main"); err != nil || len(given(adjust)) != 1 || !freed(adjust) {
		t.Errorf("with the plugin back it gets %v, %v", adjust, err)
	}
}

// A container that has a slot and no share to have is refused by name, instead of being stopped by the mount.
func TestUnasked(t *testing.T) {
	inBubble(t, func(t *testing.T, ctx context.Context, p *plugin, _ *tenants) {
		beside := &api.Container{Name: "beside", Mounts: []*api.Mount{{Destination: v1alpha1.Stopper}}}
		for name, sandbox := range map[string]*api.PodSandbox{"of a pod that asks": sandboxOf("s1", "u1"), "of another": plain("s2", "u2")} {
			if _, _, err := p.CreateContainer(ctx, sandbox, beside); !errors.Is(err, errUnasked) {
				t.Errorf("a container with a slot %s: %v", name, err)
			}
		}
		if adjust, _, err := p.CreateContainer(ctx, sandboxOf("s1", "u1"), &api.Container{Name: "beside"}); err != nil || adjust != nil {
			t.Errorf("a container without one: %v, %v", adjust, err)
		}
		if err := p.StopPodSandbox(ctx, sandboxOf("s1", "u1")); err != nil {
			t.Fatal(err)
		}
	})
}

// What is wrong with the connection says what to switch on.
func TestReasons(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "nri.sock")
	c := connect(t, socket, newTenants())
	c.until(t, func(err error) bool { return errors.Is(err, ErrOff) })
	listener, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			conn.Close()
		}
	}()
	defer listener.Close()
	c.until(t, func(err error) bool { return errors.Is(err, ErrApart) && !errors.Is(err, ErrOff) })
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
	connect(t, socket, a).until(t, up)
	for name, test := range map[string]struct {
		change func(map[string]string)
		want   string
	}{
		"never bound by us":     {func(n map[string]string) { delete(n, v1alpha1.AssignmentAnnotation) }, "no annotation divvy.dev/assignment"},
		"never asked":           {func(n map[string]string) { delete(n, v1alpha1.RequestAnnotation) }, "but not divvy.dev/request"},
		"request is no request": {func(n map[string]string) { n[v1alpha1.RequestAnnotation] = "{}" }, "invalid annotation divvy.dev/request"},
		"assignment is none":    {func(n map[string]string) { n[v1alpha1.AssignmentAnnotation] = "{}" }, "invalid annotation divvy.dev/assignment"},
		"assignment of another": {func(n map[string]string) {
			n[v1alpha1.AssignmentAnnotation] = strings.Replace(givenText, "UID", "other", 1)
		}, "made for pod other"},
		"assignment is larger": {func(n map[string]string) {
			n[v1alpha1.AssignmentAnnotation] = strings.Replace(n[v1alpha1.AssignmentAnnotation], "4294967296", "8589934592", 1)
		}, "the request 4294967296 bytes"},
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
	r := startRuntimeThatWaits(t, socket, 10*time.Second, nil, nil) // the answer comes in half of that
	defer r.end()
	c := connect(t, socket, a)
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
	if adjust, err := r.create(sandbox, "main"); err != nil || len(given(adjust)) != 1 {
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
	c := connect(t, socket, a)
	for i := range 3 {
		c.until(t, func(err error) bool { return err != nil })
		r := startRuntime(t, socket, nil, nil)
		c.until(t, up)
		if _, err := r.create(sandboxOf("s1", "u1"), "main"); err != nil {
			t.Errorf("start %d: %v", i, err)
		}
		r.end()
	}
}
