package nri

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/containerd/nri/pkg/api"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/agent"
	"github.com/divvy-gpu/divvy/internal/edits"
)

func newPlugin(ctx context.Context, a *tenants) *plugin {
	return &plugin{work: ctx, tenants: a, log: slog.New(slog.NewTextHandler(io.Discard, nil)), retry: firstRelease, pods: make(map[string]*pod)}
}

// inBubble runs a test on a clock of its own, which moves when all wait.
func inBubble(t *testing.T, test func(t *testing.T, ctx context.Context, p *plugin, a *tenants)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		a := newTenants()
		p := newPlugin(t.Context(), a)
		test(t, t.Context(), p, a)
		synctest.Wait()
		if p.mu.Lock(); len(p.pods) > 0 && len(a.Tenancies()) == 0 {
			t.Errorf("%d pods are remembered and none has shares", len(p.pods))
		}
		p.mu.Unlock()
	})
}

// give has the runtime start a sandbox and make its container.
func give(t *testing.T, ctx context.Context, p *plugin, sandbox *api.PodSandbox) {
	t.Helper()
	if err := p.RunPodSandbox(ctx, sandbox); err != nil {
		t.Fatal(err)
	}
	if _, _, err := p.CreateContainer(ctx, sandbox, &api.Container{Name: "main"}); err != nil {
		t.Fatal(err)
	}
}

func TestShareLivesAsLongAsASandbox(t *testing.T) {
	inBubble(t, func(t *testing.T, ctx context.Context, p *plugin, a *tenants) {
		first, second := sandboxOf("s1", "u1"), sandboxOf("s2", "u1")
		give(t, ctx, p, first)
		give(t, ctx, p, second)
		for _, end := range []func(context.Context, *api.PodSandbox) error{p.StopPodSandbox, p.RemovePodSandbox} {
			if err := end(ctx, first); err != nil {
				t.Fatal(err)
			}
		}
		synctest.Wait()
		if len(a.Tenancies()) != 1 {
			t.Fatal("the first sandbox's end took the share of the second")
		}
		for range 2 { // again is nothing
			if err := p.StopPodSandbox(ctx, second); err != nil {
				t.Fatal(err)
			}
		}
		synctest.Wait()
		a.expect(t, "+pod/u1/main", "-pod/u1/main")
		give(t, ctx, p, sandboxOf("s3", "u1"))
		a.expect(t, "+pod/u1/main")
	})
}

func TestReleaseWaitsForProcesses(t *testing.T) {
	inBubble(t, func(t *testing.T, ctx context.Context, p *plugin, a *tenants) {
		var text strings.Builder
		p.log = slog.New(slog.NewTextHandler(&text, nil))
		give(t, ctx, p, sandboxOf("s1", "u1"))
		a.inUse = 5
		if err := p.StopPodSandbox(ctx, sandboxOf("s1", "u1")); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute) // of the bubble's clock: what retries has had its time, none passes
		a.expect(t, "+pod/u1/main", "-pod/u1/main")
		if strings.Count(text.String(), "not released yet") != 1 {
			t.Errorf("said %s", text.String())
		}
	})
}

// TestSandboxAgainWhileReleasing has a pod come back before its share is gone:
// it then has it still.
func TestSandboxAgainWhileReleasing(t *testing.T) {
	inBubble(t, func(t *testing.T, ctx context.Context, p *plugin, a *tenants) {
		give(t, ctx, p, sandboxOf("s1", "u1"))
		a.inUse = 1
		if err := p.StopPodSandbox(ctx, sandboxOf("s1", "u1")); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		give(t, ctx, p, sandboxOf("s2", "u1"))
		time.Sleep(time.Minute) // of the bubble's clock: what retries has had its time, none passes
		if len(a.Tenancies()) != 1 {
			t.Error("the share is gone though its pod runs")
		}
	})
}

// TestSandboxAgainWhileShareEnds has a pod come back when its share, which no
// container has used yet, is half gone.
func TestSandboxAgainWhileShareEnds(t *testing.T) {
	inBubble(t, func(t *testing.T, ctx context.Context, p *plugin, a *tenants) {
		first, second := sandboxOf("s1", "u1"), sandboxOf("s2", "u1")
		if err := p.RunPodSandbox(ctx, first); err != nil {
			t.Fatal(err)
		}
		a.expect(t, "+pod/u1/main")
		a.midway = func() {
			if err := p.RunPodSandbox(ctx, second); err != nil {
				t.Error(err)
			}
		}
		if err := p.StopPodSandbox(ctx, first); err != nil {
			t.Fatal(err)
		}
		a.expect(t, "-pod/u1/main")
		if _, _, err := p.CreateContainer(ctx, second, &api.Container{Name: "main"}); err != nil {
			t.Fatal(err)
		}
		if len(a.Tenancies()) != 1 {
			t.Error("the container was given a share that is gone")
		}
	})
}

// TestStopDuringPreparation has a pod deleted before its share is made.
func TestStopDuringPreparation(t *testing.T) {
	inBubble(t, func(t *testing.T, ctx context.Context, p *plugin, a *tenants) {
		a.hold = make(chan struct{})
		sandbox := sandboxOf("s1", "u1")
		if err := p.RunPodSandbox(ctx, sandbox); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if err := p.StopPodSandbox(ctx, sandbox); err != nil {
			t.Fatal(err)
		}
		close(a.hold)
		a.expect(t, "+pod/u1/main", "-pod/u1/main")
	})
}

func TestFailedPreparationIsTriedAgain(t *testing.T) {
	inBubble(t, func(t *testing.T, ctx context.Context, p *plugin, a *tenants) {
		a.fail = func(agent.Tenancy) error { return errors.New("GPU 0 has 1Gi free") }
		sandbox := sandboxOf("s1", "u1")
		if err := p.RunPodSandbox(ctx, sandbox); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if _, _, err := p.CreateContainer(ctx, sandbox, &api.Container{Name: "main"}); err == nil || !strings.Contains(err.Error(), "1Gi free") {
			t.Fatal(err)
		}
		a.set(func() { a.fail = nil })
		give(t, ctx, p, sandbox)
		a.expect(t, "+pod/u1/main")
	})
}

// TestFoundPodEndsWithItsContainers has a runtime that was restarted, which tells
// of the ends of containers only.
func TestFoundPodEndsWithItsContainers(t *testing.T) {
	inBubble(t, func(t *testing.T, ctx context.Context, p *plugin, a *tenants) {
		sandbox := sandboxOf("s1", "u1")
		give(t, ctx, p, sandbox)
		a.expect(t, "+pod/u1/main")
		ends := func(id string) {
			t.Helper()
			if _, err := p.StopContainer(ctx, &api.PodSandbox{Id: "s1"}, &api.Container{Id: id}); err != nil {
				t.Fatal(err)
			}
			if err := p.RemoveContainer(ctx, nil, &api.Container{Id: id}); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
		}
		ends("")
		if len(a.Tenancies()) != 1 {
			t.Fatal("the share ended with a container, though its sandbox is listened to")
		}
		if _, err := p.Synchronize(ctx, []*api.PodSandbox{sandbox}, []*api.Container{{Id: "c1", PodSandboxId: "s1", Name: "main"}, {Id: "c2", PodSandboxId: "s1", Name: "other"}}); err != nil {
			t.Fatal(err)
		}
		ends("c1")
		if len(a.Tenancies()) != 1 {
			t.Fatal("the share ended though a container of the pod runs")
		}
		ends("c2")
		a.expect(t, "-pod/u1/main")
		if _, _, err := p.CreateContainer(ctx, sandbox, &api.Container{Id: "c3", Name: "main"}); err != nil {
			t.Fatal(err)
		}
		a.expect(t, "+pod/u1/main")
		ends("c3")
		a.expect(t, "-pod/u1/main")
	})
}

func TestSynchronize(t *testing.T) {
	inBubble(t, func(t *testing.T, ctx context.Context, p *plugin, a *tenants) {
		for _, key := range []string{"pod/runs/main", "pod/between/main", "pod/stopped/main", "pod/unlisted/main", "pod/gone/main", "claim-of-somebody"} {
			a.held[key] = agent.Tenancy{Key: key}
		}
		stopped, unlisted := sandboxOf("s2", "stopped"), sandboxOf("s3", "unlisted")
		stopped.Pid, unlisted.Pid = 0, 0
		between := sandboxOf("s5", "between")
		sandboxes := []*api.PodSandbox{sandboxOf("s1", "runs"), stopped, unlisted, {Id: "s4", Uid: "other"}, between}
		if _, err := p.Synchronize(ctx, sandboxes, []*api.Container{{Id: "b", PodSandboxId: "s1", Name: "main"}, {Id: "c", PodSandboxId: "s3", Name: "main"}}); err != nil {
			t.Fatal(err)
		}
		// The end of a sandbox without containers may never be told.
		a.expect(t, "-pod/stopped/main", "-pod/gone/main", "-pod/between/main")
		if !slices.Equal(a.adopted, []string{"pod/runs/main", "pod/stopped/main", "pod/unlisted/main", "pod/between/main"}) {
			t.Errorf("adopted %q", a.adopted)
		}
		if _, _, err := p.CreateContainer(ctx, between, &api.Container{Id: "d", Name: "main"}); err != nil {
			t.Fatal(err)
		}
		a.expect(t, "+pod/between/main")
		if _, err := p.StopContainer(ctx, nil, &api.Container{Id: "d"}); err != nil {
			t.Fatal(err)
		}
		a.expect(t, "-pod/between/main")
		// What it took up ends with its sandbox, and what ended while nobody listened with the next look.
		if err := p.StopPodSandbox(ctx, sandboxes[0]); err != nil {
			t.Fatal(err)
		}
		a.expect(t, "-pod/runs/main")
		if _, err := p.Synchronize(ctx, nil, nil); err != nil {
			t.Fatal(err)
		}
		a.expect(t, "-pod/unlisted/main")
		if len(a.Tenancies()) != 1 {
			t.Errorf("left are %v", a.Tenancies())
		}
	})
}

func TestSeveralSharesHaveNamesOfTheirOwn(t *testing.T) {
	const two = `,{"name":"side","containers":["side"],"gpus":[{"uuid":"GPU-bbbb","memory":1}],"whole":true}]}`
	sandbox := sandboxOf("s", "u")
	sandbox.Annotations[v1alpha1.RequestAnnotation] = strings.TrimSuffix(askText, "]}") + `,{"name":"side","containers":["side"],"gpus":1,"whole":true}]}`
	sandbox.Annotations[v1alpha1.AssignmentAnnotation] = strings.TrimSuffix(sandbox.Annotations[v1alpha1.AssignmentAnnotation], "]}") + two
	d, err := decide(sandbox)
	if err != nil {
		t.Fatal(err)
	}
	all := d.tenancies(sandbox)
	if len(all) != 2 || all[0].Name != "lab/p/main" || all[1].Key != "pod/u/side" || !all[1].Shares[0].Whole || all[1].Shares[0].Config != (v1alpha1.ShareConfig{}) {
		t.Errorf("%+v", all)
	}
}

// TestAdjustmentGolden compares with what is recorded. UPDATE=1 records anew.
func TestAdjustmentGolden(t *testing.T) {
	adjust, err := adjustment(edits.Edits{
		Mounts:  []edits.Mount{{Source: "/a", Target: "/run/divvy/share", Options: edits.ReadOnly}, {Source: "/a/state", Target: "/run/divvy/share/state", Options: edits.ReadWrite}},
		Devices: []edits.Device{{Path: "/dev/nvidia0", Source: "/host/dev/nvidia0", Major: 195, Minor: 0}},
		Hooks: []edits.Hook{
			{Path: "/usr/local/libexec/divvy/hook", Args: []string{"hook", "x"}},
			{Path: "/usr/local/libexec/divvy/hook", Args: []string{"hook", "y"}, Outside: true},
		},
		Env: []edits.Env{{Name: "NVIDIA_VISIBLE_DEVICES", Value: "void"}},
	})
	if err != nil {
		t.Fatal(err)
	}
	got, err := json.MarshalIndent(adjust, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	const golden = "testdata/adjustment.json"
	if os.Getenv("UPDATE") != "" {
		if err := os.WriteFile(golden, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if want, err := os.ReadFile(golden); err != nil || string(want) != string(got) {
		t.Errorf("%v, got\n%s", err, got)
	}
	for name, e := range map[string]edits.Edits{
		"bind":          {Binds: []edits.Bind{{Source: "/a", Target: "/b"}}},
		"relative path": {Mounts: []edits.Mount{{Source: "a", Target: "/b"}}},
		"prepended":     {Env: []edits.Env{{Name: "A", Value: "b", Prepend: true}}},
		"no name":       {Env: []edits.Env{{Name: "A=B", Value: "b"}}},
	} {
		if adjust, err := adjustment(e); err == nil {
			t.Errorf("%s: %v", name, adjust)
		}
	}
}
