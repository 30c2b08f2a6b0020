package nri

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/containerd/nri/pkg/api"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/agent"
)

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
	// A call that begins before the runtime has seen the end of the connection is refused for that.
	_, err := r.create(sandbox, "main")
	for range 100 {
		if err == nil || strings.Contains(err.Error(), `"divvy"`) {
			break
		}
		_, err = r.create(sandbox, "main")
	}
	if err == nil || !strings.Contains(err.Error(), `"divvy"`) {
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
