package nri

import (
	"context"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/containerd/nri/pkg/api"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/agent"
)

// ofTwo has 16 GiB on GPU-a and 24 on GPU-b.
func ofTwo(uuid string) uint64 { return map[string]uint64{"GPU-a": 16 << 30, "GPU-b": 24 << 30}[uuid] }

func TestReplicaShares(t *testing.T) {
	const slicing, mps = v1alpha1.BackendTimeslice, v1alpha1.BackendMPS
	for name, c := range map[string]struct {
		given []v1alpha1.Replica
		want  []agent.TenancyShare
	}{
		"a quarter":  {[]v1alpha1.Replica{{UUID: "GPU-a", Of: 4, Backend: slicing}}, []agent.TenancyShare{{UUID: "GPU-a", Memory: 4 << 30, Config: v1alpha1.ShareConfig{Backend: slicing}}}},
		"a third":    {[]v1alpha1.Replica{{UUID: "GPU-b", Of: 3, Number: 2, Backend: mps}}, []agent.TenancyShare{{UUID: "GPU-b", Memory: 8 << 30, Cores: 33, Config: v1alpha1.ShareConfig{Backend: mps}}}},
		"one of one": {[]v1alpha1.Replica{{UUID: "GPU-a", Of: 1, Backend: mps}}, []agent.TenancyShare{{UUID: "GPU-a", Memory: 16 << 30, Config: v1alpha1.ShareConfig{Backend: mps}}}},
		"a whole instance": {
			[]v1alpha1.Replica{{UUID: "GPU-a", Instance: "MIG-1", Profile: "1g.10gb", Start: 2, Memory: 10 << 30}},
			[]agent.TenancyShare{{UUID: "GPU-a", Memory: 10 << 30, Config: v1alpha1.ShareConfig{Backend: v1alpha1.BackendMIG}, Instance: &agent.TenancyInstance{Profile: "1g.10gb", Start: 2}}},
		},
		"a part of an instance": {
			[]v1alpha1.Replica{{UUID: "GPU-c", Instance: "MIG-1", Profile: "1g.10gb", Memory: 10 << 30, Of: 4, Number: 1, Backend: mps}, {UUID: "GPU-c", Instance: "MIG-1", Profile: "1g.10gb", Memory: 10 << 30, Of: 4, Backend: mps}},
			[]agent.TenancyShare{{UUID: "GPU-c", Memory: 5 << 30, Cores: 50, Config: v1alpha1.ShareConfig{Backend: mps}, Instance: &agent.TenancyInstance{Profile: "1g.10gb"}}},
		},
		"a whole": {[]v1alpha1.Replica{{UUID: "GPU-b"}}, []agent.TenancyShare{{UUID: "GPU-b", Whole: true}}},
		"two of four, and another": {
			[]v1alpha1.Replica{{UUID: "GPU-a", Of: 4, Backend: mps}, {UUID: "GPU-b", Of: 2, Backend: slicing}, {UUID: "GPU-a", Of: 4, Number: 3, Backend: mps}},
			[]agent.TenancyShare{
				{UUID: "GPU-a", Memory: 8 << 30, Cores: 50, Config: v1alpha1.ShareConfig{Backend: mps}},
				{UUID: "GPU-b", Memory: 12 << 30, Config: v1alpha1.ShareConfig{Backend: slicing}},
			},
		},
	} {
		if got, err := replicaShares(c.given, ofTwo); err != nil || !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s: %+v, %v, not %+v", name, got, err, c.want)
		}
	}
	if _, err := replicaShares([]v1alpha1.Replica{{UUID: "GPU-c", Of: 2}}, ofTwo); err == nil || !strings.Contains(err.Error(), "GPU GPU-c is not here any more") {
		t.Errorf("of a GPU that is not here: %v", err)
	}
}

// plain is a sandbox of a pod that no webhook has seen, and counted a container of it that a device plugin gave replicas.
func plain(id, uid string) *api.PodSandbox {
	return &api.PodSandbox{Id: id, Uid: uid, Name: "p", Namespace: "lab", Pid: 1}
}

func counted(id, sandbox string) *api.Container {
	text := v1alpha1.ReplicasText([]v1alpha1.Replica{{UUID: "GPU-a", Of: 4, Number: 1, Backend: v1alpha1.BackendTimeslice}})
	return &api.Container{Id: id, PodSandboxId: sandbox, Name: "main", Annotations: map[string]string{v1alpha1.ReplicasAnnotation: text}}
}

func TestReplicasLiveAsLongAsTheirPod(t *testing.T) {
	inBubble(t, func(t *testing.T, ctx context.Context, p *plugin, a *tenants) {
		p.capacity = ofTwo
		sandbox := plain("s1", "u1")
		if err := p.RunPodSandbox(ctx, sandbox); err != nil {
			t.Fatal(err)
		}
		if adjust, _, err := p.CreateContainer(ctx, sandbox, &api.Container{Id: "c0", Name: "other"}); adjust != nil || err != nil {
			t.Errorf("a container without replicas gets %v, %v", adjust, err)
		}
		for _, id := range []string{"c1", "c2"} { // a container that starts again finds its share
			adjust, _, err := p.CreateContainer(ctx, sandbox, counted(id, "s1"))
			if err != nil || len(adjust.Mounts) != 1 {
				t.Fatalf("%v, %v", adjust, err)
			}
			if _, err := p.StopContainer(ctx, sandbox, &api.Container{Id: id}); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
		}
		a.expect(t, "+pod/u1/main")
		if got := a.Tenancies()[0]; got.Name != "lab/p/main" || got.Shares[0].Memory != 4<<30 || got.Shares[0].Config.Backend != "timeslice" {
			t.Errorf("the share is %+v", got)
		}
		if err := p.StopPodSandbox(ctx, sandbox); err != nil {
			t.Fatal(err)
		}
		a.expect(t, "-pod/u1/main")
		if err := p.RemovePodSandbox(ctx, sandbox); err != nil {
			t.Fatal(err)
		}
		if len(p.began) > 0 {
			t.Errorf("remembered are %v", p.began)
		}
	})
}

// Of a pod that ran before the connection only the ends of its containers are told.
func TestReplicasOfPodsThatAreFound(t *testing.T) {
	inBubble(t, func(t *testing.T, ctx context.Context, p *plugin, a *tenants) {
		p.capacity = ofTwo
		sandbox := plain("s1", "u1")
		a.held["pod/u1/main"], a.held["pod/u2/main"] = agent.Tenancy{Key: "pod/u1/main"}, agent.Tenancy{Key: "pod/u2/main"}
		if _, err := p.Synchronize(ctx, []*api.PodSandbox{sandbox}, []*api.Container{counted("c1", "s1")}); err != nil {
			t.Fatal(err)
		}
		a.expect(t, "-pod/u2/main") // which has gone
		if len(a.adopted) != 1 || a.adopted[0] != "pod/u1/main" {
			t.Errorf("adopted are %v", a.adopted)
		}
		if err := p.RemoveContainer(ctx, nil, &api.Container{Id: "c1"}); err != nil {
			t.Fatal(err)
		}
		a.expect(t, "-pod/u1/main")
	})
}

func TestReplicasThatAreRefused(t *testing.T) {
	inBubble(t, func(t *testing.T, ctx context.Context, p *plugin, _ *tenants) {
		p.capacity, p.kernels = ofTwo, v1alpha1.Kernels{"kata"}
		broken, own := counted("c", "s"), plain("s", "u")
		broken.Annotations[v1alpha1.ReplicasAnnotation] = "[]"
		own.RuntimeHandler = "kata"
		// CRI-O shows the pod's annotations at its containers.
		forged := plain("s", "u")
		forged.Annotations = counted("c", "s").Annotations
		for want, refused := range map[string]struct {
			sandbox   *api.PodSandbox
			container *api.Container
		}{
			"there are none":        {plain("s", "u"), broken},
			"a kernel of their own": {own, counted("c", "s")},
			"is written by Divvy":   {forged, counted("c", "s")},
			"use one of both":       {sandboxOf("s", "u"), counted("c", "s")},
		} {
			if _, _, err := p.CreateContainer(ctx, refused.sandbox, refused.container); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%v, not %s", err, want)
			}
		}
	})
}
