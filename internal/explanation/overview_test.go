package explanation

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/utils/ptr"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/overview"
)

// published is a slice of a node's pool.
func published(node string, generation int64, devices ...resourcev1.Device) *resourcev1.ResourceSlice {
	return &resourcev1.ResourceSlice{
		ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint(node, "-", generation, "-", len(devices))},
		Spec: resourcev1.ResourceSliceSpec{
			Driver: v1alpha1.Driver, NodeName: &node, Devices: devices, Pool: resourcev1.ResourcePool{Name: node, Generation: generation, ResourceSliceCount: 1},
		},
	}
}

func gpuDevice(index int64, memory string, taints ...resourcev1.DeviceTaint) resourcev1.Device {
	return resourcev1.Device{
		Name: fmt.Sprintf("gpu-%d-shared", index), Taints: taints,
		Attributes: map[resourcev1.QualifiedName]resourcev1.DeviceAttribute{
			v1alpha1.AttributeIndex: {IntValue: ptr.To(index)}, v1alpha1.AttributeUUID: {StringValue: ptr.To(fmt.Sprintf("GPU-%d", index))},
			v1alpha1.AttributeModel: {StringValue: ptr.To("A100\x1b[31m")}, v1alpha1.AttributeForm: {StringValue: ptr.To(v1alpha1.FormShared)},
		},
		Capacity: map[resourcev1.QualifiedName]resourcev1.DeviceCapacity{v1alpha1.CapacityMemory: {Value: resource.MustParse(memory)}},
	}
}

func instanceDevice(place string, counters bool) resourcev1.Device {
	d := gpuDevice(7, "10Gi")
	d.Name = "gpu-7-mig-1g10gb-" + place
	d.Attributes[v1alpha1.AttributeForm] = resourcev1.DeviceAttribute{StringValue: ptr.To(v1alpha1.FormMIG)}
	d.Attributes[v1alpha1.AttributeProfile] = resourcev1.DeviceAttribute{StringValue: ptr.To("1g.10gb")}
	d.Attributes[v1alpha1.AttributeUUID] = resourcev1.DeviceAttribute{StringValue: ptr.To("MIG-" + place)}
	if counters {
		d.ConsumesCounters = []resourcev1.DeviceCounterConsumption{{CounterSet: "a"}}
	}
	return d
}

// claimed is a claim of namespace ns that has of devices what is written of them: DEVICE=MEMORY,CORES.
func claimed(name, class, node string, pods []string, devices ...string) *resourcev1.ResourceClaim {
	c := &resourcev1.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name}, Spec: resourcev1.ResourceClaimSpec{Devices: resourcev1.DeviceClaim{
		Requests: []resourcev1.DeviceRequest{{Name: "gpu", Exactly: &resourcev1.ExactDeviceRequest{DeviceClassName: class}}},
	}}}
	if len(devices) > 0 {
		c.Status.Allocation = &resourcev1.AllocationResult{AllocationTimestamp: &noon}
	}
	for _, text := range devices {
		device, amounts, _ := strings.Cut(text, "=")
		memory, cores, _ := strings.Cut(amounts, ",")
		r := resourcev1.DeviceRequestAllocationResult{Request: "gpu", Driver: v1alpha1.Driver, Pool: node, Device: device}
		if memory != "" {
			r.ConsumedCapacity = map[resourcev1.QualifiedName]resource.Quantity{v1alpha1.CapacityMemory: resource.MustParse(memory), v1alpha1.CapacityCores: resource.MustParse(cores)}
		}
		c.Status.Allocation.Devices.Results = append(c.Status.Allocation.Devices.Results, r)
	}
	for _, pod := range pods {
		c.Status.ReservedFor = append(c.Status.ReservedFor, resourcev1.ResourceClaimConsumerReference{Resource: "pods", Name: pod})
	}
	return c
}

// lines are an overview as a test compares it.
func lines(o *overview.Overview) []string {
	var all []string
	for i := range o.Nodes {
		n := &o.Nodes[i]
		for k := range n.GPUs {
			g := &n.GPUs[k]
			all = append(all, fmt.Sprintf("%s %d %s %s %s%s has %s, gives %s and %d in %d %s", n.Name, *g.Index, g.UUID, g.Model, g.Form, g.Profile,
				v1alpha1.FormatBytes(g.Capacity), v1alpha1.FormatBytes(g.Granted), g.Cores, g.Count, g.Fault))
			for _, s := range g.Shares {
				all = append(all, fmt.Sprintf("  %s/%s %v %s %s %d %v %s%s", s.Namespace, s.Name, s.Pods, s.Container, v1alpha1.FormatBytes(s.Memory), s.Cores, s.Whole, s.Policy, s.Class))
			}
		}
		all = append(all, n.Notes...)
	}
	for _, w := range o.Waiting {
		all = append(all, fmt.Sprintf("%s/%s waits: %s", w.Namespace, w.Name, w.Reason))
	}
	if o.Hidden != "" {
		all = append(all, "hidden: "+o.Hidden)
	}
	return all
}

func expectLines(t *testing.T, o *overview.Overview, want ...string) {
	t.Helper()
	if got := lines(o); !slices.Equal(got, want) {
		t.Errorf("got\n  %s\nwant\n  %s", strings.Join(got, "\n  "), strings.Join(want, "\n  "))
	}
}

// A cluster as a test knows it: two nodes with claims, one that counts slots, pods that wait.
func busyCluster() []runtime.Object {
	admin := claimed("monitor", v1alpha1.ClassShare, "a", nil, "gpu-0-shared=0,0")
	admin.Status.Allocation.Devices.Results[0].AdminAccess = ptr.To(true)
	other := claimed("other", "gpu.example.com", "a", nil, "gpu-0-shared=1Gi,0")
	other.Status.Allocation.Devices.Results[0].Driver = "gpu.example.com"
	elsewhere := claimed("far", v1alpha1.ClassShare, "b", nil, "gpu-0-shared=2Gi,0")
	elsewhere.Namespace = "elsewhere"
	assignment, err := v1alpha1.PodAssignment{Pod: "slotted", Shares: []v1alpha1.ShareAssigned{{
		Name: "main", Containers: []string{"main"}, GPUs: []v1alpha1.GPUAssigned{{UUID: "GPU-5", Memory: 3 << 30, Cores: 20}},
		Config: &v1alpha1.ShareConfig{Policy: v1alpha1.PolicyFixed, Class: v1alpha1.ClassOnline, Weight: 1, Backend: v1alpha1.BackendSlice},
	}}}.Text()
	if err != nil {
		panic(err)
	}
	gpus, err := v1alpha1.NodeGPUs{GPUs: []v1alpha1.NodeGPU{{UUID: "GPU-5", Index: 5, Model: "T4", Memory: 15 << 30, Fault: "xid-79"}}}.Text()
	if err != nil {
		panic(err)
	}
	slots := corev1.ResourceList{v1alpha1.SlotResource: resource.MustParse("64"), "nvidia.com/gpu": resource.MustParse("0")}
	return []runtime.Object{
		&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "a"}}, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "none"}},
		&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "old", Annotations: map[string]string{v1alpha1.GPUsAnnotation: gpus}}, Status: corev1.NodeStatus{Allocatable: slots}},
		published("a", 1, gpuDevice(9, "1Gi")),
		published("a", 2, gpuDevice(1, "40Gi", resourcev1.DeviceTaint{Key: v1alpha1.UnhealthyTaint, Value: "lost", Effect: resourcev1.DeviceTaintEffectNoExecute}), gpuDevice(0, "40Gi")),
		published("b", 1, gpuDevice(0, "80Gi"), instanceDevice("0", true), instanceDevice("1", true), instanceDevice("2", false)),
		claimed("train", v1alpha1.ClassShare, "a", []string{"z", "p"}, "gpu-0-shared=4Gi,30"), claimed("whole", v1alpha1.ClassWhole, "a", nil, "gpu-1-shared=40Gi,100"),
		claimed("gone", v1alpha1.ClassShare, "a", nil, "gpu-8-shared=4Gi,30"), claimed("part", v1alpha1.ClassMIG, "b", []string{"m"}, "gpu-7-mig-1g10gb-1="),
		claimed("wanted", v1alpha1.ClassShare, "", nil), claimed("theirs", "gpu.example.com", "", nil), admin, other, elsewhere,
		podWith("slotted", func(p *corev1.Pod) {
			p.Spec.NodeName, p.Annotations[v1alpha1.AssignmentAnnotation] = "old", assignment
			p.Spec.Containers = []corev1.Container{{Name: "main", Resources: corev1.ResourceRequirements{Limits: corev1.ResourceList{v1alpha1.SlotResource: resource.MustParse("1")}}}}
		}),
		podWith("copied", func(p *corev1.Pod) {
			p.Spec.NodeName, p.Annotations[v1alpha1.AssignmentAnnotation] = "old", assignment
		}),
		podWith("waits", func(p *corev1.Pod) {
			p.Spec.SchedulerName = corev1.DefaultSchedulerName
			p.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "gpu", ResourceClaimName: ptr.To("wanted")}}
			p.Status = condition(corev1.ConditionFalse, corev1.PodReasonUnschedulable, "cannot allocate all claims")
		}),
		podWith("asks", func(p *corev1.Pod) {
			p.Annotations[v1alpha1.RequestAnnotation], p.CreationTimestamp = "x", metav1.NewTime(noon.Add(-1))
			p.Status = condition(corev1.ConditionFalse, corev1.PodReasonUnschedulable, "no node has\n8Gi free")
		}),
		podWith("plain", nil),
		podWith("others", func(p *corev1.Pod) {
			p.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "gpu", ResourceClaimName: ptr.To("theirs")}}
		}),
		event("waits", "waits", "NoShareFits", "older", 0), event("waits", "waits", "NoShareFits", "no GPU has 8Gi free", 1),
	}
}

func TestOverviewOfACluster(t *testing.T) {
	o, err := reader(busyCluster()...).Overview(t.Context(), "", "ns", noon.Time)
	if err != nil {
		t.Fatal(err)
	}
	expectLines(t, o,
		"a 0 GPU-0 A100\\x1b[31m slice has 40Gi, gives 4Gi and 30 in 1 ",
		"  ns/train [p z]  4Gi 30 false ",
		"a 1 GPU-1 A100\\x1b[31m slice has 40Gi, gives 40Gi and 100 in 1 lost",
		"  ns/whole []  40Gi 100 true ",
		"b 0 GPU-0 A100\\x1b[31m slice has 80Gi, gives 2Gi and 0 in 1 ",
		"  elsewhere/far []  2Gi 0 false ",
		"b 7 MIG-1 A100\\x1b[31m mig1g.10gb has 10Gi, gives 10Gi and 0 in 1 ",
		"  ns/part [m]  10Gi 0 false ",
		"b 7 MIG-2 A100\\x1b[31m mig1g.10gb has 10Gi, gives 0 and 0 in 0 ",
		"old 5 GPU-5 T4 slice has 15Gi, gives 3Gi and 20 in 1 xid-79",
		"  ns/main [slotted] main 3Gi 20 false fixedonline",
		"extended resource divvy.dev/shares: the node has 64, its pods have 1",
		"ns/asks waits: no node has 8Gi free",
		"ns/waits waits: no GPU has 8Gi free",
	)
}

// notAllowed refuses a verb, in all namespaces or in one.
func notAllowed(client *fake.Clientset, verb, what, namespace string) {
	client.PrependReactor(verb, what, func(action clienttesting.Action) (bool, runtime.Object, error) {
		if action.GetNamespace() != namespace {
			return false, nil, nil
		}
		return true, nil, apierrors.NewForbidden(schema.GroupResource{Resource: what}, "", errors.New("no"))
	})
}

// Devices for virtual machines are no GPUs for programs, and who has one has no share.
func TestOverviewLeavesOutMachines(t *testing.T) {
	card := resourcev1.Device{Name: "passthrough-0000-3b-00-0", Attributes: map[resourcev1.QualifiedName]resourcev1.DeviceAttribute{v1alpha1.AttributeForm: {StringValue: ptr.To(v1alpha1.FormPassthrough)}}}
	with := func(objects ...runtime.Object) []string {
		t.Helper()
		o, err := reader(objects...).Overview(t.Context(), "", "ns", noon.Time)
		if err != nil {
			t.Fatal(err)
		}
		return lines(o)
	}
	share := claimed("train", v1alpha1.ClassShare, "a", []string{"p"}, "gpu-0-shared=8Gi,0")
	machine := claimed("vm", v1alpha1.ClassPassthrough, "a", []string{"virt-launcher"}, "passthrough-0000-3b-00-0")
	got, want := with(published("a", 1, gpuDevice(0, "16Gi"), card), share, machine), with(published("a", 1, gpuDevice(0, "16Gi")), share)
	if !slices.Equal(got, want) || len(want) < 2 {
		t.Errorf("with a virtual machine:\n%s\nwithout:\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// What may not be read is named, and the rest is there.
func TestOverviewWithoutRights(t *testing.T) {
	const allA = "a 1 GPU-1 A100\\x1b[31m slice has 40Gi, gives 0 and 0 in 0 lost"
	for name, c := range map[string]struct {
		refuse [][3]string
		want   []string
	}{
		"nodes": {[][3]string{{"get", "nodes", ""}}, []string{
			"a 0 GPU-0 A100\\x1b[31m slice has 40Gi, gives 4Gi and 30 in 1 ", "  ns/train [p z]  4Gi 30 false ",
			"a 1 GPU-1 A100\\x1b[31m slice has 40Gi, gives 40Gi and 100 in 1 lost", "  ns/whole []  40Gi 100 true ",
			"hidden: extended resources of nodes (you may not read nodes)",
		}},
		"claims": {[][3]string{{"list", "resourceclaims", ""}, {"list", "resourceclaims", "ns"}}, []string{
			"a 0 GPU-0 A100\\x1b[31m slice has 40Gi, gives 0 and 0 in 0 ", allA, "hidden: claims (you may not list them)",
		}},
		"claims of others": {[][3]string{{"list", "resourceclaims", ""}, {"list", "pods", ""}}, []string{
			"a 0 GPU-0 A100\\x1b[31m slice has 40Gi, gives 4Gi and 30 in 1 ", "  ns/train [p z]  4Gi 30 false ",
			"a 1 GPU-1 A100\\x1b[31m slice has 40Gi, gives 40Gi and 100 in 1 lost", "  ns/whole []  40Gi 100 true ",
			"hidden: claims of other namespaces than ns (you may not list them); pods of other namespaces than ns (you may not list them)",
		}},
	} {
		r := reader(busyCluster()...)
		for _, refused := range c.refuse {
			notAllowed(r.Client.(*fake.Clientset), refused[0], refused[1], refused[2])
		}
		o, err := r.Overview(t.Context(), "a", "ns", noon.Time)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		t.Run(name, func(t *testing.T) { expectLines(t, o, c.want...) })
	}
	r := reader(busyCluster()...)
	notAllowed(r.Client.(*fake.Clientset), "list", "resourceslices", "")
	if _, err := r.Overview(t.Context(), "a", "ns", noon.Time); !errors.Is(err, ErrMayNotLook) {
		t.Errorf("without slices: %v", err)
	}
	for node, want := range map[string]error{"nowhere": ErrNoNode, "none": ErrNoGPUs} {
		if _, err := reader(busyCluster()...).Overview(t.Context(), node, "ns", noon.Time); !errors.Is(err, want) {
			t.Errorf("node %s: %v", node, err)
		}
	}
}

// A list is read in pieces, to its end.
func TestOverviewReadsAllPages(t *testing.T) {
	r := reader(busyCluster()...)
	asked := 0
	r.Client.(*fake.Clientset).PrependReactor("list", "resourceclaims", func(clienttesting.Action) (bool, runtime.Object, error) {
		asked++
		list := &resourcev1.ResourceClaimList{Items: []resourcev1.ResourceClaim{*claimed(fmt.Sprint("c", asked), v1alpha1.ClassShare, "a", nil, "gpu-0-shared=1Gi,0")}}
		if asked < 3 {
			list.Continue = "more"
		}
		return true, list, nil
	})
	o, err := r.Overview(t.Context(), "a", "ns", noon.Time)
	if err != nil || o.Nodes[0].GPUs[0].Count != 3 {
		t.Errorf("%v, %v after %d requests", lines(o), err, asked)
	}
}

// RDMA cards of the same pool are no GPUs, and who has a part of one has nothing of a GPU.
func TestOverviewLeavesOutCards(t *testing.T) {
	card := resourcev1.Device{Name: "nic-0000-11-00-0-shared", Attributes: map[resourcev1.QualifiedName]resourcev1.DeviceAttribute{v1alpha1.AttributeForm: {StringValue: ptr.To(v1alpha1.FormNIC)}}}
	with := func(objects ...runtime.Object) []string {
		t.Helper()
		o, err := reader(objects...).Overview(t.Context(), "", "ns", noon.Time)
		if err != nil {
			t.Fatal(err)
		}
		return lines(o)
	}
	claim := claimed("both", v1alpha1.ClassShare, "a", []string{"p"}, "gpu-0-shared=8Gi,0", "nic-0000-11-00-0-shared")
	alone := claimed("both", v1alpha1.ClassShare, "a", []string{"p"}, "gpu-0-shared=8Gi,0")
	got, want := with(published("a", 1, gpuDevice(0, "16Gi"), card), claim), with(published("a", 1, gpuDevice(0, "16Gi")), alone)
	if !slices.Equal(got, want) || len(want) < 2 {
		t.Errorf("with a card:\n%s\nwithout:\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// GPUs that other nodes reach are shown where they are, with the claims that have them, beside those of the node's own.
func TestOverviewOfReachedGPUs(t *testing.T) {
	device := gpuDevice(3, "40Gi")
	device.Name = "gpu-3-remote"
	device.Attributes[v1alpha1.AttributeForm] = resourcev1.DeviceAttribute{StringValue: ptr.To(v1alpha1.FormRemote)}
	remote := published("g1", 7, device)
	remote.Name, remote.Spec.NodeName, remote.Spec.AllNodes, remote.Spec.Pool.Name = v1alpha1.RemoteSlice("g1"), nil, ptr.To(true), v1alpha1.RemotePool("g1")
	client := fake.NewClientset(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "g1"}}, published("g1", 2, gpuDevice(1, "80Gi")), remote,
		claimed("far", v1alpha1.ClassRemote, v1alpha1.RemotePool("g1"), []string{"p"}, "gpu-3-remote=4Gi,10"))
	for _, node := range []string{"", "g1"} {
		seen, err := Reader{Client: client}.Overview(t.Context(), node, "", time.Now())
		if err != nil {
			t.Fatal(err)
		}
		var shown []string
		for _, n := range seen.Nodes {
			for _, g := range n.GPUs {
				shown = append(shown, fmt.Sprintf("%s %s %s %d", n.Name, g.UUID, g.Form, len(g.Shares)))
			}
		}
		if want := []string{"g1 GPU-1 slice 0", "g1 GPU-3 remote 1"}; !slices.Equal(shown, want) {
			t.Errorf("looking at node %q: %q, want %q", node, shown, want)
		}
	}
}

// Who is suspended has nothing of a GPU, and says for whom.
func TestOverviewOfSuspended(t *testing.T) {
	claim := claimed("out", v1alpha1.ClassShare, "a", []string{"p"}, "gpu-0-shared=8Gi,30")
	claim.Annotations = map[string]string{v1alpha1.SuspendAnnotation: `{"version":1,"order":1,"for":"speech/b"}`}
	claim.Status.Devices = []resourcev1.AllocatedDeviceStatus{{Driver: v1alpha1.Driver, Conditions: []metav1.Condition{v1alpha1.SuspensionAnswer(1, v1alpha1.SuspendedReason, "", noon)}}}
	o, err := reader(published("a", 1, gpuDevice(0, "16Gi")), claim, claimed("in", v1alpha1.ClassShare, "a", []string{"q"}, "gpu-0-shared=12Gi,60")).Overview(t.Context(), "", "ns", noon.Time)
	if err != nil || len(o.Nodes) != 1 || len(o.Nodes[0].GPUs) != 1 {
		t.Fatalf("it is %+v, %v", o, err)
	}
	g := o.Nodes[0].GPUs[0]
	if g.Granted != 12<<30 || g.Cores != 60 || len(g.Shares) != 2 || !slices.Equal(g.Shares[1].Notes, []string{"suspended for pod speech/b: its memory is in the node's host memory"}) {
		t.Errorf("its GPU is %+v", g)
	}
}
