package e2e

import (
	"fmt"
	"slices"
	"strings"

	resourcev1 "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/agent/control"
	"github.com/divvy-gpu/divvy/internal/agent/dra/pool"
	"github.com/divvy-gpu/divvy/test/e2e/cluster"
)

// published waits until a node publishes just these devices, and fails the test if any of them takes counters.
func (l *lab) published(n *cluster.Machine, want ...string) {
	l.t.Helper()
	l.eventually(fmt.Sprintf("%s publishes %v", n.Name, want), func() string {
		list, err := l.Client().ResourceV1().ResourceSlices().List(l.ctx, metav1.ListOptions{FieldSelector: "spec.nodeName=" + n.Name})
		if err != nil {
			return err.Error()
		}
		var got []string
		for i := range list.Items {
			spec := &list.Items[i].Spec
			for _, d := range spec.Devices {
				got = append(got, d.Name)
				if len(d.ConsumesCounters)+len(spec.SharedCounters) > 0 {
					l.t.Fatalf("%s of node %s takes counters", d.Name, n.Name)
				}
			}
		}
		if !slices.Equal(got, want) {
			return fmt.Sprintf("it publishes %v", got)
		}
		return ""
	})
}

// wholeByHand writes the claims of whole GPUs itself, with and without amounts.
func wholeByHand(l *lab) {
	l.only(1)
	byHand := func(name, rest string) string {
		return fmt.Sprintf("{apiVersion: resource.k8s.io/v1, kind: ResourceClaim, metadata: {namespace: %s, name: %s}, "+
			"spec: {devices: {requests: [{name: gpu, exactly: {deviceClassName: %s%s}}]}}}", l.namespace, name, v1alpha1.ClassWhole, rest)
	}
	err := l.ApplyText(l.ctx, byHand("less", `, capacity: {requests: {memory: 4Gi}}`))
	if err == nil || !strings.Contains(err.Error(), "must not set amounts") {
		l.t.Errorf("4Gi of a whole GPU: %v", err)
	}
	l.run(plain("share", "1Gi", ""))
	l.must(l.ApplyText(l.ctx, byHand("one", "")))
	l.run(uses(plain("one", "", ""), "one"))
	listing, err := l.listing(l.Nodes[1])
	l.must(err)
	l.limited("one", "main", listing.GPUs[0].Capacity, 1)
	if got := l.nvml("one", "main")[0].UUID; got == l.nvml("share", "main")[0].UUID {
		l.t.Errorf("GPU %s has a share and is given as a whole", got)
	}
	l.agree()
	l.must(l.ApplyText(l.ctx, byHand("both", ", count: 2")))
	l.create(uses(plain("both", "", ""), "both"))
	l.event("both", "NoShareFits")
	l.pending("both")
	l.remove("one")
	l.pending("both")
	l.remove("share")
	l.running("both")
	if got := l.nvml("both", "main"); len(got) != 2 || got[0].UUID == got[1].UUID {
		l.t.Errorf("two GPUs are %+v", got)
	}
	l.agree()
}

// earlierWhole has a pod get a whole GPU through the slices that earlier versions published: the scheduler allocates the
// device that stands for all of the GPU. The agent that comes then prepares it and keeps the GPU for it, also through a
// rollback of the slices and another upgrade, and until it ends.
func earlierWhole(l *lab) {
	l.only(0)
	n := l.Nodes[0]
	listing, err := l.listing(n)
	l.must(err)
	gpu := listing.GPUs[0]
	old, shared := pool.Name(gpu.UUID, pool.Whole), pool.Name(gpu.UUID, pool.Shared)

	l.withoutAgents()
	defer l.withAgents() // also after a failure: what comes next needs them
	l.publishEarlier(n, &gpu)
	l.create(whole("old", 1))
	l.eventually("the pod is placed by earlier slices", func() string {
		l.publishEarlier(n, &gpu) // again, because a kubelet removes slices of a driver that is away
		p, err := l.Client().CoreV1().Pods(l.namespace).Get(l.ctx, "old", metav1.GetOptions{})
		if err == nil && p.Spec.NodeName == "" {
			return "it has no node"
		}
		return reason(err)
	})
	l.has("old", old)
	l.withAgents()
	l.running("old")
	l.published(n, old)
	l.limited("old", "main", gpu.Capacity, 1)
	l.agree()
	l.create(plain("share", "1Gi", ""))
	l.event("share", "NoShareFits")
	l.pending("share")

	l.withoutAgents()
	l.publishEarlier(n, &gpu)
	l.limited("old", "main", gpu.Capacity, 1)
	l.pending("share")
	l.withAgents()
	l.published(n, old)
	l.has("old", old)
	l.limited("old", "main", gpu.Capacity, 1)
	l.agree()
	l.pending("share")

	l.remove("old")
	l.published(n, shared)
	l.running("share")
	l.limited("share", "main", gib, 1)
	l.agree()
}

// withoutAgents takes the agents away, and withAgents brings them back.
func (l *lab) withoutAgents() {
	l.t.Helper()
	l.kubectl("patch", "-n", system, "daemonset/divvy-agent", "--type=merge", "-p", `{"spec":{"template":{"spec":{"nodeSelector":{"nowhere":"yes"}}}}}`)
	for _, n := range l.Nodes {
		l.gone(n)
	}
}

func (l *lab) withAgents() {
	l.t.Helper()
	l.kubectl("patch", "-n", system, "daemonset/divvy-agent", "--type=merge", "-p", `{"spec":{"template":{"spec":{"nodeSelector":{"nowhere":null}}}}}`)
	l.serving()
}

// claimOf is a pod's one claim.
func (l *lab) claimOf(pod string) *resourcev1.ResourceClaim {
	l.t.Helper()
	p, err := l.Client().CoreV1().Pods(l.namespace).Get(l.ctx, pod, metav1.GetOptions{})
	l.must(err)
	if len(p.Spec.ResourceClaims) != 1 {
		l.t.Fatalf("pod %s has the claims %+v", pod, p.Spec.ResourceClaims)
	}
	name := ptr.Deref(p.Spec.ResourceClaims[0].ResourceClaimName, "")
	for _, s := range p.Status.ResourceClaimStatuses { // of a template
		name = ptr.Deref(s.ResourceClaimName, name)
	}
	c, err := l.Client().ResourceV1().ResourceClaims(l.namespace).Get(l.ctx, name, metav1.GetOptions{})
	l.must(err)
	if c.Status.Allocation == nil {
		l.t.Fatalf("claim %s of pod %s is not allocated", name, pod)
	}
	return c
}

// has checks which device the pod's one claim has.
func (l *lab) has(pod, want string) {
	l.t.Helper()
	if a := l.claimOf(pod).Status.Allocation; len(a.Devices.Results) != 1 || a.Devices.Results[0].Device != want {
		l.t.Fatalf("pod %s has %+v, want device %s", pod, a, want)
	}
}

// publishEarlier puts the slices of an earlier version in the place of a node's: the GPU as two devices, a shared and a
// whole one, that take the same counter. What is there already stays.
func (l *lab) publishEarlier(n *cluster.Machine, gpu *control.GPU) {
	l.t.Helper()
	api := l.Client().ResourceV1().ResourceSlices()
	const label = "e2e.divvy.dev/earlier"
	l.must(api.DeleteCollection(l.ctx, metav1.DeleteOptions{}, metav1.ListOptions{FieldSelector: "spec.nodeName=" + n.Name + ",spec.driver=" + v1alpha1.Driver, LabelSelector: "!" + label}))
	one := map[string]resourcev1.Counter{"gpu": {Value: *resource.NewQuantity(1, resource.DecimalSI)}}
	set := pool.Name(gpu.UUID, pool.Whole)
	device := func(form pool.Form, capacity resourcev1.DeviceCapacity) resourcev1.Device {
		return resourcev1.Device{
			Name: pool.Name(gpu.UUID, form),
			Attributes: map[resourcev1.QualifiedName]resourcev1.DeviceAttribute{
				v1alpha1.AttributeUUID: {StringValue: &gpu.UUID}, v1alpha1.AttributeForm: {StringValue: ptr.To(string(form))},
				v1alpha1.AttributeIndex: {IntValue: ptr.To(int64(gpu.Index))},
			},
			Capacity:                 map[resourcev1.QualifiedName]resourcev1.DeviceCapacity{v1alpha1.CapacityMemory: capacity},
			ConsumesCounters:         []resourcev1.DeviceCounterConsumption{{CounterSet: set, Counters: one}},
			AllowMultipleAllocations: ptr.To(form == pool.Shared),
		}
	}
	memory := *resource.NewQuantity(int64(gpu.Capacity), resource.BinarySI)
	specs := []resourcev1.ResourceSliceSpec{
		{SharedCounters: []resourcev1.CounterSet{{Name: set, Counters: one}}},
		{Devices: []resourcev1.Device{
			device(pool.Shared, resourcev1.DeviceCapacity{Value: memory, RequestPolicy: &resourcev1.CapacityRequestPolicy{Default: &memory}}),
			device(pool.Whole, resourcev1.DeviceCapacity{Value: memory}),
		}},
	}
	for i, spec := range specs {
		spec.Driver, spec.NodeName = v1alpha1.Driver, &n.Name
		spec.Pool = resourcev1.ResourcePool{Name: n.Name, Generation: 1, ResourceSliceCount: int64(len(specs))}
		_, err := api.Create(l.ctx, &resourcev1.ResourceSlice{
			ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("%s-earlier-%d", n.Name, i), Labels: map[string]string{label: ""}}, Spec: spec,
		}, metav1.CreateOptions{})
		if !apierrors.IsAlreadyExists(err) {
			l.must(err)
		}
	}
}
