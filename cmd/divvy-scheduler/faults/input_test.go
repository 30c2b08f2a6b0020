package faults

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/test/bench/plane"
)

// said bounds how long a pod may be without a reason.
const said = 90 * time.Second

// input is what somebody does to the scheduler.
type input struct {
	// pods are made; others are what they need.
	pods []*corev1.Pod
	// change is done to them once they wait, if it is there.
	change func(w *world)
	// says is part of the reason that the last pod has.
	says string
}

// members are pods of one gang, each of which asks for a whole GPU and says another size where sizes differ.
func members(l *load, name string, sizes ...string) (all []*corev1.Pod) {
	for i, size := range sizes {
		p := l.described(fmt.Sprintf("%s-%d", name, i), share(0, 0, 1))
		p.Annotations[v1alpha1.GangAnnotation], p.Annotations[v1alpha1.GangSizeAnnotation] = name, size
		all = append(all, p)
	}
	return all
}

// with is a pod whose annotation or label is another one.
func with(p *corev1.Pod, annotation, value string) *corev1.Pod {
	p.Annotations[annotation] = value
	return p
}

// edit replaces an annotation of a pod.
func edit(name, annotation, value string) func(*world) {
	return func(w *world) {
		patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": map[string]string{annotation: value}}})
		w.must(err)
		_, err = w.client.CoreV1().Pods(namespace).Patch(w.t.Context(), name, types.MergePatchType, patch, metav1.PatchOptions{})
		w.must(err)
	}
}

// inputs are all that pods can say wrongly. The cluster has six GPUs.
func inputs(l *load) map[string]input {
	foreign := l.described("stranger", share(1, 1, 1))
	copied := l.described("copied", share(1, 1, 1))
	copied.Annotations[v1alpha1.ClaimsAnnotation] = foreign.Annotations[v1alpha1.ClaimsAnnotation]
	copied.Spec.ResourceClaims[0].ResourceClaimName = foreign.Spec.ResourceClaims[0].ResourceClaimName
	orphan := with(l.described("orphan", share(1, 1, 1)), v1alpha1.GangSizeAnnotation, "2")
	grouped := l.described("grouped", share(1, 1, 1))
	grouped.Labels["scheduling.x-k8s.io/pod-group"] = "gone"
	strange := share(1, 1, 1)
	strange.Devices.Requests[0].Exactly.DeviceClassName = "no-such-class.example.com"
	forged, err := json.Marshal(map[string]resourcev1.ResourceClaimSpec{"mine": share(1, 1, 1)})
	if err != nil {
		forged = nil
	}
	nobody := "nobody-makes-this"
	return map[string]input{
		"gang larger than the cluster":     {pods: members(l, "larger", "8", "8", "8", "8", "8", "8", "8", "8"), says: "only 6 of 8 members fit together"},
		"gang larger than any":             {pods: members(l, "giant", "5000"), says: v1alpha1.GangSizeAnnotation},
		"gang of no number":                {pods: members(l, "wordy", "two"), says: v1alpha1.GangSizeAnnotation},
		"members that disagree":            {pods: members(l, "torn", "2", "3"), says: "gang default/torn"},
		"size without a gang":              {pods: []*corev1.Pod{orphan}, says: "needs " + v1alpha1.GangAnnotation},
		"gang edited while it waits":       {pods: members(l, "edited", "7", "7", "7", "7", "7", "7", "7"), change: edit("edited-6", v1alpha1.GangSizeAnnotation, "0"), says: v1alpha1.GangSizeAnnotation},
		"annotation that is no JSON":       {pods: []*corev1.Pod{with(l.described("junk", share(1, 1, 1)), v1alpha1.ClaimsAnnotation, "{")}, says: "does not read"},
		"annotation edited while it waits": {pods: []*corev1.Pod{l.described("late", share(81, 1, 1))}, change: edit("late", v1alpha1.ClaimsAnnotation, `{"a":1}`), says: "does not read"},
		"forged name of a claim":           {pods: []*corev1.Pod{with(l.described("named", share(1, 1, 1)), v1alpha1.ClaimsAnnotation, string(forged))}, says: "never calls a claim"},
		"forged class":                     {pods: []*corev1.Pod{l.described("forged", strange)}, says: "never asks what"},
		"claim of another pod":             {pods: []*corev1.Pod{foreign, copied}, says: "was not made for this pod"},
		"more than any GPU has":            {pods: []*corev1.Pod{l.described("never-fits", share(81, 1, 1))}, says: "no room"},
		"models of no GPU":                 {pods: []*corev1.Pod{with(l.described("models", share(1, 1, 1)), v1alpha1.ModelsAnnotation, "ABC")}, says: "another model"},
		"models that do not read":          {pods: []*corev1.Pod{with(l.described("unread", share(1, 1, 1)), v1alpha1.ModelsAnnotation, ",,")}, says: v1alpha1.ModelsAnnotation},
		"PodGroup that is not there":       {pods: []*corev1.Pod{grouped}, says: "PodGroup"},
		"topology that nobody can read":    {pods: []*corev1.Pod{with(members(l, "lost", "1")[0], v1alpha1.GangTopologyAnnotation, "rack=maybe")}, says: v1alpha1.GangTopologyAnnotation},
		"topology that no node has":        {pods: []*corev1.Pod{with(members(l, "nowhere", "1")[0], v1alpha1.GangTopologyAnnotation, "example.com/rack=required")}, says: "no node has the labels"},
		"claim that nobody makes":          {pods: []*corev1.Pod{l.using("empty", corev1.PodResourceClaim{Name: "gpu", ResourceClaimName: &nobody})}, says: nobody},
	}
}

// What somebody writes into pods wrongly gets a reason of one line, and stops nobody.
func TestBadInput(t *testing.T) {
	w := newWorld(t, 3, 2)
	w.single = true
	w.start()
	l := &load{Rand: rand.New(rand.NewPCG(1, 1))} //nolint:gosec // names alone
	for name, in := range inputs(l) {
		t.Run(name, func(t *testing.T) {
			inner := *w
			inner.t = t
			inner.wrong(&in)
		})
	}
	if w.count.Load() != 1 || w.Process(replicas[0]).Alive() != nil {
		t.Errorf("the scheduler was started %d times", w.count.Load())
	}
	w.nothingLeft()
}

// wrong makes pods that wait, changes them, and looks what the last one says.
func (w *world) wrong(in *input) {
	w.t.Helper()
	ctx, pods := w.t.Context(), w.client.CoreV1().Pods(namespace)
	for i, p := range in.pods {
		_, err := pods.Create(ctx, p, metav1.CreateOptions{})
		w.must(err)
		if i == 0 && strings.Contains(in.says, "was not made") {
			w.until("the first pod is bound", said, func() (bool, string) {
				got, err := pods.Get(ctx, p.Name, metav1.GetOptions{})
				return err == nil && got.Spec.NodeName != "", fmt.Sprint(err)
			})
		}
	}
	last := in.pods[len(in.pods)-1].Name
	waits := func(text string) {
		w.until("pod "+last+" says "+text, said, func() (bool, string) {
			got, err := pods.Get(ctx, last, metav1.GetOptions{})
			if err != nil {
				return false, err.Error()
			}
			why := reasonOf(got)
			return why != "" && strings.Contains(why, text) && !strings.Contains(why, "\n"), why + " on " + got.Spec.NodeName
		})
	}
	if in.change != nil {
		waits("")
		in.change(w)
	}
	w.probe() // others are bound meanwhile, and when they end, who waits is tried again
	waits(in.says)
	now := int64(0)
	for _, p := range in.pods {
		w.must(pods.Delete(ctx, p.Name, metav1.DeleteOptions{GracePeriodSeconds: &now}))
	}
}

// nothingLeft waits until pods and claims agree and no claim has devices.
func (w *world) nothingLeft() {
	w.t.Helper()
	w.until("nothing is left", restLimit, func() (bool, string) {
		p, err := w.picture(w.t.Context())
		w.must(err)
		faults := p.restless()
		for i := range p.claims {
			if p.claims[i].Status.Allocation != nil {
				faults = append(faults, "claim "+p.claims[i].Name+" has devices")
			}
		}
		return len(faults) == 0, strings.Join(faults, "; ")
	})
}

// Pods that are made while the API server is in trouble are bound when that has ended, by the same process.
func TestTroubledServer(t *testing.T) {
	w := newWorld(t, 3, 2)
	w.single = true
	w.start()
	w.probe()
	l := &load{Rand: rand.New(rand.NewPCG(2, 2))} //nolint:gosec // names alone
	for _, trouble := range plane.Troubles {
		w.front.Set(trouble)
		before := w.front.Met()
		b := l.gang("gang", 3)
		b.pods = append(b.pods, l.described(l.name("single"), share(5, 5, 1)))
		var names []string
		for _, p := range b.pods {
			_, err := w.client.CoreV1().Pods(namespace).Create(t.Context(), p, metav1.CreateOptions{})
			w.must(err)
			names = append(names, p.Name)
		}
		w.until("the API server is "+string(trouble)+" to the scheduler", said, func() (bool, string) {
			return w.front.Met() >= before+4, fmt.Sprint(w.front.Met() - before)
		})
		w.front.Set(plane.Calm)
		w.until("all pods are bound after the API server was "+string(trouble), 2*said, func() (bool, string) {
			p, err := w.picture(t.Context())
			w.must(err)
			faults := p.restless()
			for i := range p.pods {
				if p.pods[i].Spec.NodeName == "" {
					faults = append(faults, p.pods[i].Name+" waits: "+reasonOf(&p.pods[i]))
				}
			}
			return len(faults) == 0, strings.Join(faults, "; ")
		})
		now := int64(0)
		for _, name := range names {
			w.must(w.client.CoreV1().Pods(namespace).Delete(t.Context(), name, metav1.DeleteOptions{GracePeriodSeconds: &now}))
		}
		w.nothingLeft()
	}
	if w.count.Load() != 1 || w.Process(replicas[0]).Alive() != nil {
		t.Errorf("the scheduler was started %d times", w.count.Load())
	}
}

// A lease of a scheduler whose clock is ten years ahead or behind holds nobody up for longer than a lease lasts.
func TestClocks(t *testing.T) {
	for name, ahead := range map[string]time.Duration{"ahead": 10 * 365 * 24 * time.Hour, "behind": -10 * 365 * 24 * time.Hour} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, 1, 1)
			holder, seconds, at := "gone", int32(3), metav1.NewMicroTime(time.Now().Add(ahead))
			_, err := w.client.CoordinationV1().Leases(namespace).Create(t.Context(), &coordinationv1.Lease{
				ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.SchedulerName},
				Spec:       coordinationv1.LeaseSpec{HolderIdentity: &holder, LeaseDurationSeconds: &seconds, RenewTime: &at, AcquireTime: &at},
			}, metav1.CreateOptions{})
			w.must(err)
			w.start()
			w.probe()
		})
	}
}
