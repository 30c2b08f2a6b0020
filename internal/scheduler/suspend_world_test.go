package scheduler

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/ptr"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/agent/dra/pool"
	"github.com/divvy-gpu/divvy/internal/queue"
)

// suspending is a cluster of one node in a test: what the API has, what a leader has seen of it, and what its agent does.
type suspending struct {
	t       *testing.T
	e       *Engine
	now     time.Time
	version int
	// api has the claims, and seen those of which events were delivered; pods likewise.
	api, seen claimsByName
	// before are claims as they were before the last event of them, and looks counts who asked for one.
	before   claimsByName
	looks    int
	pods     map[string]*corev1.Pod
	seenPods cache.Indexer
	events   []func()
	writes   []func()
	// out are claims that the agent has in host memory.
	out map[string]bool
	// tight are pods that are not let onto a node unless a pod ends there.
	tight map[types.UID]bool
	said  []Said
	// without leaves out the queues.
	without bool
}

const (
	// suspendingGPU is what each GPU has for shares that do not swap, suspendingHost what it has of the host, in GiB.
	suspendingGPU, suspendingHost = 76, 50
)

// newSuspending makes a node with two GPUs, and queues a and b that are guaranteed one each.
func newSuspending(t *testing.T) *suspending {
	t.Helper()
	w := &suspending{
		t: t, now: time.Unix(1_000_000, 0), api: claimsByName{}, pods: map[string]*corev1.Pod{},
		out: map[string]bool{}, tight: map[types.UID]bool{},
	}
	w.lead()
	return w
}

// lead has a new leader begin, which knows the objects alone.
func (w *suspending) lead() {
	w.t.Helper()
	w.events, w.writes, w.seen, w.before = nil, nil, claimsByName{}, claimsByName{}
	w.seenPods = cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc})
	e := engineOf(w.t, 0, w)
	w.e, e.clock, e.pods = e, func() time.Time { return w.now }, corelisters.NewPodLister(w.seenPods)
	node := &corev1.Node{}
	node.Name = "n0"
	node.Status.Allocatable = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("64"), corev1.ResourceMemory: resource.MustParse("512Gi")}
	e.setNode(nil, node)
	var gpus []pool.GPU
	for k := range 2 {
		gpus = append(gpus, pool.GPU{
			UUID: fmt.Sprintf("GPU-00000000-0000-0000-0000-00000000000%d", k), Index: k, Model: "H100", Memory: 80 * gib, Capability: "9.0", Suspends: true,
		})
	}
	pool.Divide(gpus, 2*suspendingHost*gib, v1alpha1.Percent(5))
	resources, err := pool.Resources(node.Name, gpus)
	if err != nil {
		w.t.Fatal(err)
	}
	for j, s := range resources.Pools[node.Name].Slices {
		slice := &resourcev1.ResourceSlice{Spec: resourcev1.ResourceSliceSpec{
			Driver: v1alpha1.Driver, NodeName: &node.Name, Devices: s.Devices, SharedCounters: s.SharedCounters,
			Pool: resourcev1.ResourcePool{Name: node.Name, Generation: 1, ResourceSliceCount: int64(len(resources.Pools[node.Name].Slices))},
		}}
		slice.Name = fmt.Sprint(node.Name, "-", j)
		e.setSlice(nil, slice)
	}
	if !w.without {
		for _, name := range []string{"a", "b"} {
			e.queues.specs[name] = queue.Spec{Name: name, QueueSpec: v1alpha1.QueueSpec{
				Namespaces: []string{name}, Resources: []v1alpha1.QueueShare{{Guaranteed: v1alpha1.Written("1")}},
			}}
		}
		e.queues.specsStale = true
	}
	for _, key := range slices.Sorted(maps.Keys(w.api)) {
		w.seen[key] = w.api[key]
		e.onClaim(nil, w.api[key], w.room)
	}
	for _, key := range slices.Sorted(maps.Keys(w.pods)) {
		_ = w.seenPods.Add(w.pods[key])
		e.onPod(nil, w.pods[key], func(*corev1.Pod) {}, func(*corev1.Pod) {})
	}
	w.cycle()
}

// Get implements Claims. It hears of claims by itself, and so before the leader or after it: of two looks one is behind.
func (w *suspending) Get(namespace, name string) (*resourcev1.ResourceClaim, error) {
	if w.looks++; w.looks%2 == 0 && w.before[namespace+"/"+name] != nil {
		return w.before.Get(namespace, name)
	}
	return w.seen.Get(namespace, name)
}

func (w *suspending) room() {
	w.e.freed.Add(1)
	w.e.tell(w.e.line)
}

// cycle is what a scheduler does between two pods.
func (w *suspending) cycle() {
	w.t.Helper()
	w.e.Drain()
	w.e.Rouse()
	all := w.e.Changes()
	w.said = append(w.said, all.Said...)
	for i := range all.Ends {
		w.writes = append(w.writes, func() { w.write(&all.Ends[i], nil) })
	}
	for i := range all.Evictions {
		w.end(all.Evictions[i].Victims)
	}
}

// end has victims end, or orders them out.
func (w *suspending) end(victims []Victim) {
	for i := range victims {
		v := &victims[i]
		for k := range v.Orders {
			w.writes = append(w.writes, func() { w.write(&v.Orders[k], nil) })
		}
		if len(v.Orders) == 0 {
			w.writes = append(w.writes, func() { w.delete(keyOf(v.Pod)) })
		}
	}
}

// write is what a Writer does with an order.
func (w *suspending) write(o *Order, refuse error) {
	fresh := w.api[o.key()]
	err := refuse
	if fresh == nil {
		err = errors.New("it has gone")
	}
	done := false
	if err == nil {
		if done, err = o.holds(fresh); !done && err == nil {
			after := fresh.DeepCopy()
			delete(after.Annotations, v1alpha1.SuspendAnnotation)
			if o.Suspension != nil {
				text, err := o.Suspension.Text()
				if err != nil {
					w.t.Fatal(err)
				}
				after.Annotations = map[string]string{v1alpha1.SuspendAnnotation: text}
			}
			w.put(o.key(), after)
		}
	}
	w.e.Ordered(o, err)
}

// put writes a claim; nil is one that goes.
func (w *suspending) put(key string, after *resourcev1.ResourceClaim) {
	if after != nil {
		w.version++
		after.ResourceVersion = fmt.Sprint(w.version)
		w.api[key] = after
	} else {
		delete(w.api, key)
	}
	w.events = append(w.events, func() {
		before := w.seen[key]
		if w.before[key] = before; before == nil || before.Status.Allocation == nil {
			delete(w.before, key) // whoever plans a pod gets what is so
		}
		if after != nil {
			w.seen[key] = after
		} else {
			delete(w.seen, key)
		}
		if before != nil || after != nil {
			w.e.onClaim(before, after, w.room)
		}
	})
}

func (w *suspending) putPod(key string, after *corev1.Pod) {
	before := w.pods[key]
	if after != nil {
		w.pods[key] = after
	} else {
		delete(w.pods, key)
	}
	w.events = append(w.events, func() {
		if after != nil {
			_ = w.seenPods.Add(after)
		} else {
			_ = w.seenPods.Delete(before)
		}
		w.e.onPod(before, after, func(*corev1.Pod) {}, func(*corev1.Pod) {})
	})
}

// create makes a pod that waits, with a claim.
func (w *suspending) create(namespace, name string, gibibytes int) *corev1.Pod {
	claim := &resourcev1.ResourceClaim{}
	claim.Namespace, claim.Name, claim.UID = namespace, name, types.UID("claim "+namespace+"/"+name)
	claim.Spec.Devices.Requests = []resourcev1.DeviceRequest{{Name: "gpu", Exactly: &resourcev1.ExactDeviceRequest{
		DeviceClassName: "shares", AllocationMode: resourcev1.DeviceAllocationModeExactCount, Count: 1,
		Capacity: &resourcev1.CapacityRequirements{Requests: map[resourcev1.QualifiedName]resource.Quantity{
			v1alpha1.CapacityMemory: *resource.NewQuantity(int64(gibibytes)*gib, resource.BinarySI),
		}},
	}}}
	w.put(namespace+"/"+name, claim)
	p := &corev1.Pod{}
	p.Namespace, p.Name, p.UID = namespace, name, types.UID(namespace+"/"+name)
	w.now = w.now.Add(time.Millisecond)
	p.CreationTimestamp = metav1.NewTime(w.now)
	p.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "gpu", ResourceClaimName: ptr.To(name)}}
	w.putPod(namespace+"/"+name, p)
	return p
}

// deliver has the leader hear of everything, and take it in.
func (w *suspending) deliver() {
	w.t.Helper()
	for len(w.events) > 0 {
		w.events[0]()
		w.events = w.events[1:]
	}
	w.cycle()
}

// Lets implements Filters.
func (w *suspending) Lets(*corev1.Pod, string, []*corev1.Pod) bool { return true }

// LetsAll implements Filters.
func (w *suspending) LetsAll(pods []*corev1.Pod, _ string, ended []*corev1.Pod) bool {
	return len(ended) > 0 || !slices.ContainsFunc(pods, func(p *corev1.Pod) bool { return w.tight[p.UID] })
}

// try is a pod's turn: it is bound, waits, or has others end.
func (w *suspending) try(key string) {
	w.t.Helper()
	w.cycle()
	pod, _ := w.e.pods.Pods(w.pods[key].Namespace).Get(w.pods[key].Name)
	if pod == nil || w.pods[key].Spec.NodeName != "" { // it is bound, and the leader may not have heard of it yet
		return
	}
	w.e.First(pod)
	w.e.Popped(pod)
	if t, ready := w.e.Taking(pod); t != nil && !ready {
		return
	}
	u, err := w.e.Read(pod)
	if err == nil {
		err = w.e.Quota(u)
	}
	if err == nil {
		err = w.e.Choose(u, nil, func(string) bool { return !w.tight[pod.UID] || w.roomy() })
	}
	if err == nil {
		err = w.e.Reserve(u)
	}
	if err == nil {
		w.e.Waiting.Remove(pod.UID)
		claim := w.api[key].DeepCopy()
		claim.Status.Allocation = u.Allocations[0].Result
		claim.Status.ReservedFor = []resourcev1.ResourceClaimConsumerReference{{Resource: "pods", Name: pod.Name, UID: pod.UID}}
		w.put(key, claim)
		bound := pod.DeepCopy()
		bound.Spec.NodeName, bound.Status.Phase = u.Place.Name, corev1.PodRunning
		w.putPod(key, bound)
		return
	}
	if u == nil {
		return
	}
	w.e.Waiting.Add(pod, u.Shape())
	if errors.Is(err, ErrRoom) {
		if t, err := w.e.TakeBack(u, w, w.now); err == nil {
			w.end(slices.Clone(t.Victims))
		}
	}
}

// roomy reports whether no pod but one is on the node: a tight pod needs the processors of the others.
func (w *suspending) roomy() bool {
	n := 0
	for _, p := range w.pods {
		if p.Spec.NodeName != "" {
			n++
		}
	}
	return n < 2
}

// delete has a pod end at once, and its claim be cleared and collected.
func (w *suspending) delete(key string) {
	if w.pods[key] == nil {
		return
	}
	w.putPod(key, nil)
	if claim := w.api[key].DeepCopy(); claim.Status.Allocation != nil {
		claim.Status = resourcev1.ResourceClaimStatus{}
		w.put(key, claim)
	}
	w.put(key, nil)
	delete(w.out, key)
}

// some is one of the keys of a map.
func some[T any](random *rand.Rand, m map[string]T) string {
	keys := slices.Sorted(maps.Keys(m))
	if len(keys) == 0 {
		return ""
	}
	return keys[random.IntN(len(keys))]
}
