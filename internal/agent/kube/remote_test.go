package kube

import (
	"context"
	"errors"
	"log/slog"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/agent/dra/pool"
)

func remoteSpec(t *testing.T, fault *pool.Fault) *resourcev1.ResourceSliceSpec {
	t.Helper()
	spec, err := pool.RemoteSpec(pool.Host{Node: "n1", Address: netip.MustParseAddrPort("10.0.0.7:7117")}, []pool.GPU{{UUID: formed, Memory: 1 << 30, Form: pool.Remote, Fault: fault}})
	if err != nil {
		t.Fatal(err)
	}
	return spec
}

// remoteCluster runs the writer against an API server until the test ends.
type remoteCluster struct {
	*fake.Clientset
	pool *remotePool
	away error
	t    *testing.T
}

func newRemoteCluster(t *testing.T) *remoteCluster {
	c := &remoteCluster{Clientset: fake.NewClientset(&resourcev1.DeviceClass{ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.ClassRemote, UID: "class"}}), t: t}
	c.PrependReactor("*", "*", func(clienttesting.Action) (bool, runtime.Object, error) { return c.away != nil, nil, c.away })
	c.pool = newRemotePool("n1", c.Clientset, slog.New(slog.DiscardHandler))
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = c.pool.run(ctx)
	}()
	t.Cleanup(func() { cancel(); <-done })
	return c
}

// slice is what is published, nil for nothing.
func (c *remoteCluster) slice() *resourcev1.ResourceSlice {
	c.t.Helper()
	synctest.Wait()
	s, err := c.ResourceV1().ResourceSlices().Get(c.t.Context(), "remote.divvy.dev-n1", metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		c.t.Fatal(err)
	}
	return s
}

func TestRemotePoolIsWritten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newRemoteCluster(t)
		if c.slice() != nil || len(c.Actions()) != 1 {
			t.Fatalf("nobody has said what there is: %v", c.Actions())
		}
		c.pool.set(nil)
		if c.slice() != nil {
			t.Fatal("published nothing")
		}
		c.pool.set(remoteSpec(t, nil))
		made := c.slice()
		if made == nil || made.Spec.NodeName != nil || made.Spec.AllNodes == nil || len(made.Spec.Devices) != 1 || made.Spec.Pool.Generation != 1 {
			t.Fatalf("published %+v", made)
		}
		if owners := made.OwnerReferences; len(owners) != 1 || owners[0].Kind != "DeviceClass" || owners[0].UID != "class" {
			t.Errorf("it is owned by %v", owners)
		}
		c.pool.set(remoteSpec(t, &pool.Fault{Reason: "xid-79", Lost: true}))
		sick := c.slice()
		if taints := sick.Spec.Devices[0].Taints; len(taints) != 1 || taints[0].Effect != resourcev1.DeviceTaintEffectNoExecute || sick.Spec.Pool.Generation != 2 {
			t.Fatalf("published %+v", sick.Spec)
		}
		c.pool.set(nil)
		if s := c.slice(); s != nil {
			t.Errorf("left %+v", s)
		}
	})
}

// What somebody else did to the slice is undone, but for what the controller says of the host and the API server of taints.
func TestRemotePoolIsKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newRemoteCluster(t)
		c.pool.set(remoteSpec(t, &pool.Fault{Reason: "xid-79", Lost: true}))
		s := c.slice()
		now := metav1.Now()
		s.Spec.Devices[0].Taints[0].TimeAdded = &now
		s.Spec.Devices[0].Taints = append(s.Spec.Devices[0].Taints, resourcev1.DeviceTaint{Key: v1alpha1.HostTaint, Value: "not-ready", Effect: resourcev1.DeviceTaintEffectNoExecute})
		if _, err := c.ResourceV1().ResourceSlices().Update(t.Context(), s, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
		if s = c.slice(); s.Spec.Pool.Generation != 1 || len(s.Spec.Devices[0].Taints) != 2 {
			t.Fatalf("the agent wrote %+v", s.Spec)
		}
		s.Spec.Devices[0].Attributes[v1alpha1.AttributeHost] = s.Spec.Devices[0].Attributes[v1alpha1.AttributeAddress]
		if _, err := c.ResourceV1().ResourceSlices().Update(t.Context(), s, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
		s = c.slice()
		if host := s.Spec.Devices[0].Attributes[v1alpha1.AttributeHost]; *host.StringValue != "n1" || s.Spec.Pool.Generation != 2 || len(s.Spec.Devices[0].Taints) != 2 || s.Spec.Devices[0].Taints[0].TimeAdded == nil {
			t.Fatalf("left %+v", s.Spec)
		}
		if err := c.ResourceV1().ResourceSlices().Delete(t.Context(), s.Name, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		if c.slice() == nil {
			t.Error("a slice that somebody removed is not made again")
		}
	})
}

func TestRemotePoolWithoutAnAPIServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newRemoteCluster(t)
		failed := 0
		c.pool.failed = func() { failed++ }
		c.away = errors.New("away")
		c.pool.set(remoteSpec(t, nil))
		time.Sleep(3*pause + time.Second)
		c.away = nil
		if failed != 4 || c.slice() != nil {
			t.Errorf("tried %d times in three pauses and a second", failed)
		}
		time.Sleep(pause)
		if c.slice() == nil {
			t.Error("it is back, and nothing is published")
		}
	})
}

// A node's labels say whether its GPUs are others', and nothing is changed before they are known.
func TestPooledForms(t *testing.T) {
	node := func(set map[string]string) *corev1.Node {
		return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1", Labels: set}, Status: corev1.NodeStatus{
			Addresses: []corev1.NodeAddress{{Type: corev1.NodeHostName, Address: "n1"}, {Type: corev1.NodeInternalIP, Address: "10.0.0.7"}},
		}}
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	g := &giver{}
	writer := newRemotePool("n1", fake.NewClientset(), slog.New(slog.DiscardHandler))
	p := newPooled(ctx, g, Pool{GPUs: []string{AllGPUs}, Hosts: "example.org/pool=true"}, "n1", writer, slog.New(slog.DiscardHandler))
	form := func() v1alpha1.Backend {
		given, _ := p.Given()
		return given[formed].Backend
	}
	select {
	case <-p.seen:
		t.Error("the node was read before it was")
	default:
	}
	p.saw(node(map[string]string{"example.org/pool": "true"}))
	<-p.seen
	if form() != v1alpha1.BackendRemote {
		t.Errorf("given %q", form())
	}
	_, changed := p.Given()
	p.saw(node(nil))
	<-changed
	if form() != "" {
		t.Errorf("not a host any more, given %q", form())
	}
	p.saw(node(map[string]string{"example.org/pool": "true"}))
	g.given = v1alpha1.BackendMPS
	if form() != v1alpha1.BackendMPS {
		t.Errorf("its form is mps, given %q", form())
	}
	g.given, g.division.On = "", true
	if form() != "" {
		t.Errorf("it is in MIG mode, given %q", form())
	}
	own, _, err := p.publish([]pool.GPU{{UUID: formed, Memory: 1 << 30, Form: pool.Remote}, {UUID: formed + "0", Form: pool.Shared}})
	want, known, _ := writer.get()
	if err != nil || len(own) != 1 || !known || len(want.Devices) != 1 || *want.Devices[0].Attributes[v1alpha1.AttributeAddress].StringValue != "10.0.0.7:7117" {
		t.Errorf("own %v, others %v, %v", own, want, err)
	}
}

// A GPU that others are to reach, or reach no longer, is nobody's in between.
func TestGPUChangesPool(t *testing.T) {
	c := newFormCluster(t)
	c.looks("nothing is given", published{form: pool.Shared})
	c.publish()
	c.claim(pool.Shared, false)
	c.given = v1alpha1.BackendRemote
	c.looks("a claim has it", published{form: pool.Shared, next: pool.Remote})
	c.claim("", false)
	c.looks("nobody has it", published{form: pool.Shared, next: pool.Remote, withdrawn: true})
	c.publish()
	c.looks("the API has it no more", published{form: pool.Remote})
	c.publishRemote()
	c.publish()
	c.restart()
	c.looks("another agent", published{form: pool.Remote})
	c.claimOf("remote/n1", pool.Remote)
	c.given = ""
	c.looks("a pod of another node has it", published{form: pool.Remote, next: pool.Shared})
	c.claimOf("remote/n2", pool.Remote)
	c.looks("another host's is no matter", published{form: pool.Remote, next: pool.Shared, withdrawn: true})
	c.looks("its slice is there", published{form: pool.Remote, next: pool.Shared, withdrawn: true})
	if err := c.ResourceV1().ResourceSlices().Delete(t.Context(), "remote.divvy.dev-n1", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	c.looks("its slice is gone", published{form: pool.Shared})
}

// publishRemote writes the slice of GPUs that others reach.
func (c *formCluster) publishRemote() {
	c.t.Helper()
	c.put("resourceslices", &resourcev1.ResourceSlice{ObjectMeta: metav1.ObjectMeta{Name: "remote.divvy.dev-n1"}, Spec: *remoteSpec(c.t, nil)})
}

// claimOf has a claim have the GPU of a pool.
func (c *formCluster) claimOf(from string, form pool.Form) {
	c.t.Helper()
	claim := &resourcev1.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "a"}}
	claim.Status.Allocation = &resourcev1.AllocationResult{Devices: resourcev1.DeviceAllocationResult{Results: []resourcev1.DeviceRequestAllocationResult{
		{Driver: v1alpha1.Driver, Pool: from, Device: pool.Name(formed, form)},
	}}}
	c.put("resourceclaims", claim)
}

func TestPoolOptions(t *testing.T) {
	for _, c := range []struct {
		told Pool
		want string // in the error, "" for none
	}{
		{Pool{}, ""},
		{Pool{GPUs: []string{"all"}, Hosts: "a=b", Selector: "zone in (x,y)", Address: "10.0.0.1:7000"}, ""},
		{Pool{GPUs: []string{"0", "GPU-8dd5f44a-1b64-4d3a-9a4f-0d4b4a0a3a3e"}, Address: "fd00::1"}, ""},
		{Pool{Selector: "a=b"}, "need --pool"},
		{Pool{GPUs: []string{"all", "0"}}, "either all or names"},
		{Pool{GPUs: []string{"01"}}, `"01" is neither`},
		{Pool{GPUs: []string{"0", "0"}}, "named twice"},
		{Pool{GPUs: []string{"0"}, Hosts: "a=="}, ""},
		{Pool{GPUs: []string{"0"}, Hosts: "=a"}, "--pool-hosts"},
		{Pool{GPUs: []string{"0"}, Selector: "a in b"}, "--pool-selector"},
		{Pool{GPUs: []string{"0"}, Address: "gpu-1:7117"}, "--pool-address"},
		{Pool{GPUs: []string{"0"}, Address: "0.0.0.0"}, "--pool-address"},
	} {
		err := c.told.validate()
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: %v, want %q", c.told, err, c.want)
		}
	}
	if err := (&Options{Node: "n", KubeletDir: "/k", Mode: ModeSlots, Pool: Pool{GPUs: []string{AllGPUs}}}).Validate(); !errors.Is(err, errSlotPool) {
		t.Errorf("mode slots: %v", err)
	}
}

var _ givers = (*pooled)(nil)

// localOf are the GPUs of the node's own pool.
func localOf(gpus []pool.GPU) []pool.GPU { return slices.DeleteFunc(gpus, isRemote) }
