package scheduler

import (
	"errors"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/scheduler/demand"
)

// conflicts has a fake API server refuse updates of claims that are not of the last revision, and count revisions, which it does
// not do by itself.
func conflicts(client *fake.Clientset) {
	client.PrependReactor("update", "resourceclaims", func(action clienttesting.Action) (bool, runtime.Object, error) {
		update, ok := action.(clienttesting.UpdateAction)
		if !ok {
			return false, nil, nil
		}
		claim, ok := update.GetObject().(*resourcev1.ResourceClaim)
		if !ok {
			return false, nil, nil
		}
		there, err := client.Tracker().Get(resourcev1.SchemeGroupVersion.WithResource("resourceclaims"), claim.Namespace, claim.Name)
		if known, ok := there.(*resourcev1.ResourceClaim); err == nil && ok && known.ResourceVersion != claim.ResourceVersion {
			return true, nil, apierrors.NewConflict(resourcev1.Resource("resourceclaims"), claim.Name, errors.New("changed"))
		}
		claim.ResourceVersion += "0"
		return false, nil, nil
	})
}

// answers has a fake API server answer the first updates of claims with errors and leave them undone. What it returns gives the
// first of them, or nil.
func answers(client *fake.Clientset, errs ...error) (first func() *resourcev1.ResourceClaim) {
	var claim *resourcev1.ResourceClaim
	client.PrependReactor("update", "resourceclaims", func(action clienttesting.Action) (bool, runtime.Object, error) {
		update, ok := action.(clienttesting.UpdateAction)
		if !ok || len(errs) == 0 {
			return false, nil, nil
		}
		if claim == nil {
			claim, _ = update.GetObject().DeepCopyObject().(*resourcev1.ResourceClaim)
		}
		err := errs[0]
		errs = errs[1:]
		return true, nil, err
	})
	return func() *resourcev1.ResourceClaim { return claim }
}

// A pod that joins others in a claim does not give the claim its devices again when the last of them has ended meanwhile: the
// devices are somebody else's by then.
func TestJoinsNoClaimThatWasCleared(t *testing.T) {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "late", UID: "late"}}
	known := &resourcev1.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "claim", UID: "claim", ResourceVersion: "1", Finalizers: []string{resourcev1.Finalizer}}}
	known.Status.ReservedFor = []resourcev1.ResourceClaimConsumerReference{{Resource: "pods", Name: "early", UID: "early"}}
	known.Status.Allocation = &resourcev1.AllocationResult{Devices: resourcev1.DeviceAllocationResult{Results: []resourcev1.DeviceRequestAllocationResult{
		{Request: "gpu", Driver: v1alpha1.Driver, Pool: "node", Device: "gpu-0"},
	}}}
	cleared := known.DeepCopy()
	cleared.ResourceVersion, cleared.Status = "2", resourcev1.ResourceClaimStatus{}
	joined := known.DeepCopy()
	joined.ResourceVersion = "2"
	for name, test := range map[string]struct {
		there *resourcev1.ResourceClaim
		want  error
	}{"cleared": {cleared, errClaim}, "changed": {joined, nil}, "as it was": {known, nil}} {
		client := fake.NewClientset(test.there)
		conflicts(client)
		w := &Writer{Client: client}
		err := w.Write(t.Context(), &Unit{Pod: pod, Existing: map[string]*resourcev1.ResourceClaim{"a/claim": known}})
		if !errors.Is(err, test.want) {
			t.Errorf("%s: %v, want %v", name, err, test.want)
		}
		got, err := client.ResourceV1().ResourceClaims("a").Get(t.Context(), "claim", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if has(got) != (test.want == nil) {
			t.Errorf("%s: the claim has %+v", name, got.Status.Allocation)
		}
	}
}

// A pod whose claim has devices for it already, as far as is known, is not bound when the claim was cleared meanwhile: nothing is
// written for it that would fail.
func TestConfirmsWhatAClaimHas(t *testing.T) {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "pod", UID: "pod"}}
	known := claimAt("claim", "1")
	known.UID, known.Finalizers = "claim", []string{resourcev1.Finalizer}
	known.Status.ReservedFor = []resourcev1.ResourceClaimConsumerReference{{Resource: "pods", Name: "pod", UID: "pod"}}
	known.Status.Allocation = &resourcev1.AllocationResult{Devices: resourcev1.DeviceAllocationResult{Results: []resourcev1.DeviceRequestAllocationResult{
		{Request: "gpu", Driver: v1alpha1.Driver, Pool: "node", Device: "gpu-0"},
	}}}
	with := func(change func(c *resourcev1.ResourceClaim)) *resourcev1.ResourceClaim {
		c := known.DeepCopy()
		c.ResourceVersion = "2"
		change(c)
		return c
	}
	for name, test := range map[string]struct {
		there *resourcev1.ResourceClaim
		want  error
	}{
		"as it was":            {known, nil},
		"changed":              {with(func(c *resourcev1.ResourceClaim) { c.Labels = map[string]string{"a": "b"} }), nil},
		"cleared":              {with(func(c *resourcev1.ResourceClaim) { c.Status = resourcev1.ResourceClaimStatus{} }), errClaim},
		"with another device":  {with(func(c *resourcev1.ResourceClaim) { c.Status.Allocation.Devices.Results[0].Device = "gpu-1" }), errClaim},
		"for somebody else":    {with(func(c *resourcev1.ResourceClaim) { c.Status.ReservedFor[0].UID = "other" }), errClaim},
		"another of that name": {with(func(c *resourcev1.ResourceClaim) { c.UID = "other" }), errClaim},
	} {
		client := fake.NewClientset(test.there)
		w := &Writer{Client: client}
		if err := w.Write(t.Context(), &Unit{Pod: pod, Existing: map[string]*resourcev1.ResourceClaim{"a/claim": known}}); !errors.Is(err, test.want) {
			t.Errorf("%s: %v, want %v", name, err, test.want)
		}
		for _, action := range client.Actions() {
			if action.GetVerb() != "get" {
				t.Errorf("%s: %v", name, action)
			}
		}
	}
}

// A write that was not answered does nothing when it comes after the place was taken back, and one that was refused costs no
// write more. The next try gives the claim its devices, with the finalizer.
func TestTakesBackWhatMayYetCome(t *testing.T) {
	for name, test := range map[string]struct {
		answer error
		want   int // writes to take back
	}{
		"the connection is lost": {errors.New("connection lost"), 1},
		"the server gave up":     {apierrors.NewTimeoutError("slow", 1), 1},
		"it is refused":          {apierrors.NewForbidden(resourcev1.Resource("resourceclaims"), "claim", errors.New("no")), 0},
	} {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "pod", UID: "pod"}}
		claim := claimAt("claim", "1")
		claim.UID, claim.Finalizers = "claim", []string{resourcev1.Finalizer}
		client := fake.NewClientset(claim, pod)
		conflicts(client)
		late := answers(client, test.answer)
		w, claims := &Writer{Client: client}, client.ResourceV1().ResourceClaims("a")
		given := demand.Allocation{Claim: demand.Claim{Namespace: "a", Name: "claim"}, Result: &resourcev1.AllocationResult{
			Devices: resourcev1.DeviceAllocationResult{Results: []resourcev1.DeviceRequestAllocationResult{{Driver: v1alpha1.Driver, Pool: "node", Device: "gpu-0"}}},
		}}
		u := &Unit{Pod: pod, Allocations: []demand.Allocation{given}, Existing: map[string]*resourcev1.ResourceClaim{"a/claim": claim}}
		if err := w.Write(t.Context(), u); !errors.Is(err, test.answer) {
			t.Fatalf("%s: %v", name, err)
		}
		client.ClearActions()
		if !w.TakeBack(t.Context(), u) {
			t.Errorf("%s: it is not taken back", name)
		}
		writes := 0
		for _, action := range client.Actions() {
			if action.GetVerb() == "update" {
				writes++
			}
		}
		if writes != test.want {
			t.Errorf("%s: %d writes, want %d", name, writes, test.want)
		}
		if _, err := claims.UpdateStatus(t.Context(), late(), metav1.UpdateOptions{}); test.want > 0 && !apierrors.IsConflict(err) {
			t.Errorf("%s: the write that came late: %v", name, err)
		}
		fresh, err := claims.Get(t.Context(), "claim", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		again := &Unit{Pod: pod, Allocations: []demand.Allocation{given}, Existing: map[string]*resourcev1.ResourceClaim{"a/claim": fresh}}
		err = w.Write(t.Context(), again)
		got, getErr := claims.Get(t.Context(), "claim", metav1.GetOptions{})
		if err != nil || getErr != nil || !has(got) || !slices.Contains(got.Finalizers, resourcev1.Finalizer) {
			t.Errorf("%s: the next try: %v, %v, %+v", name, err, getErr, got)
		}
	}
}

// A reservation that was not answered is taken back from a claim that others use: they keep their devices, and the claim its
// finalizer, without which the devices go with the claim.
func TestTakesBackWhatJoinsOthers(t *testing.T) {
	lost := errors.New("connection lost")
	invalid := apierrors.NewInvalid(resourcev1.SchemeGroupVersion.WithKind("ResourceClaim").GroupKind(), "claim", nil)
	for name, test := range map[string]struct {
		answers []error
		refused bool // the late write, as one of an old revision; an invalid one is never done
	}{
		"once lost":         {[]error{lost}, true},
		"twice lost":        {[]error{lost, lost}, true},
		"lost, and invalid": {[]error{lost, invalid}, false},
	} {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "late", UID: "late"}}
		claim := claimAt("claim", "1")
		claim.UID, claim.Finalizers = "claim", []string{resourcev1.Finalizer}
		claim.Status.ReservedFor = []resourcev1.ResourceClaimConsumerReference{{Resource: "pods", Name: "early", UID: "early"}}
		claim.Status.Allocation = &resourcev1.AllocationResult{Devices: resourcev1.DeviceAllocationResult{Results: []resourcev1.DeviceRequestAllocationResult{
			{Request: "gpu", Driver: v1alpha1.Driver, Pool: "node", Device: "gpu-0"},
		}}}
		client := fake.NewClientset(claim, pod)
		conflicts(client)
		late := answers(client, test.answers...)
		w, claims := &Writer{Client: client}, client.ResourceV1().ResourceClaims("a")
		u := &Unit{Pod: pod, Existing: map[string]*resourcev1.ResourceClaim{"a/claim": claim}}
		if err := w.Write(t.Context(), u); !errors.Is(err, lost) {
			t.Fatalf("%s: %v", name, err)
		}
		if !w.TakeBack(t.Context(), u) {
			t.Errorf("%s: it is not taken back", name)
		}
		got, err := claims.Get(t.Context(), "claim", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(got.Finalizers, claim.Finalizers) || !equality.Semantic.DeepEqual(got.Status, claim.Status) {
			t.Errorf("%s: the claim has finalizers %v and status %+v", name, got.Finalizers, got.Status)
		}
		if _, err := claims.UpdateStatus(t.Context(), late(), metav1.UpdateOptions{}); apierrors.IsConflict(err) != test.refused {
			t.Errorf("%s: the write that came late: %v", name, err)
		}
	}
}
