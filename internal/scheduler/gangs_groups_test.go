package scheduler

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/scheduler/gang"
)

// serving is an API that serves PodGroups of some groups.
type serving []string

func (s serving) ServerResourcesForGroupVersion(version string) (*metav1.APIResourceList, error) {
	switch {
	case slices.Contains(s, "broken "+version):
		return nil, errors.New("the server is\nbroken")
	case slices.Contains(s, version):
		return &metav1.APIResourceList{APIResources: []metav1.APIResource{{Name: "podgroups"}}}, nil
	}
	return nil, apierrors.NewNotFound(schema.GroupResource{}, version)
}

// objectsOf is a client of an API with PodGroups of coscheduling, Volcano and Kubernetes.
func objectsOf(there ...runtime.Object) *fake.FakeDynamicClient {
	kinds := map[schema.GroupVersionResource]string{}
	for _, form := range groupForms {
		resource, _ := form.Resource()
		kinds[resource] = "PodGroupList"
	}
	return fake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), kinds, there...)
}

func groupNamed(version, name string, spec map[string]any) *unstructured.Unstructured {
	o := &unstructured.Unstructured{Object: map[string]any{"apiVersion": version, "kind": "PodGroup", "spec": spec}}
	o.SetNamespace("team")
	o.SetName(name)
	return o
}

// eventually waits for a condition.
func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	ticker := time.NewTicker(5 * time.Millisecond)
	defer ticker.Stop()
	for !holds() {
		select {
		case <-ticker.C:
		case <-ctx.Done():
			t.Fatal(what)
		}
	}
}

// namesGroup makes a pod that names a PodGroup of a form.
func namesGroup(name string, form gang.Form, group string) *corev1.Pod {
	pod := &corev1.Pod{}
	pod.Namespace, pod.Name = "team", name
	pod.Labels, pod.Annotations = map[string]string{}, map[string]string{}
	switch form {
	case gang.FormKubernetes:
		pod.Spec.SchedulingGroup = &corev1.PodSchedulingGroup{PodGroupName: &group}
	case gang.FormCoscheduling:
		pod.Labels["scheduling.x-k8s.io/pod-group"] = group
	case gang.FormSIGs:
		pod.Labels["pod-group.scheduling.sigs.k8s.io"] = group
	default:
		pod.Annotations["scheduling.k8s.io/group-name"] = group
	}
	return pod
}

// What of PodGroups is not served, or cannot be read, is a reason on the pods that name one, and keeps nothing else from
// starting; what is served is known.
func TestPodGroupsThatCannotBeRead(t *testing.T) {
	e := engineOf(t, 1, claimsByName{})
	client := objectsOf(
		groupNamed("scheduling.x-k8s.io/v1alpha1", "pg", map[string]any{"minMember": int64(1)}),
		groupNamed("scheduling.k8s.io/v1alpha2", "pg", map[string]any{"schedulingPolicy": map[string]any{"gang": map[string]any{"minCount": int64(2)}}}),
	)
	volcano, _ := gang.FormVolcano.Resource()
	client.PrependReactor("list", "podgroups", func(action clienttesting.Action) (bool, runtime.Object, error) {
		if action.GetResource() != volcano {
			return false, nil, nil
		}
		return true, nil, apierrors.NewForbidden(volcano.GroupResource(), "", errors.New("no right"))
	})
	hold := func(form gang.Form) string {
		_, err := e.Gangs.Hold(namesGroup("p-"+form.String(), form, "pg"))
		if err == nil {
			return ""
		}
		return err.Error()
	}
	if reason := hold(gang.FormCoscheduling); !strings.Contains(reason, "has not been read yet") {
		t.Errorf("before anything is read: %q", reason)
	}
	if !e.Synced() {
		t.Error("whoever does not follow PodGroups waits for them")
	}
	var told atomic.Int32
	e.FollowGroups(t.Context(), serving{"scheduling.x-k8s.io/v1alpha1", "broken scheduling.sigs.k8s.io/v1alpha1", "scheduling.volcano.sh/v1beta1", "scheduling.k8s.io/v1alpha2"}, client,
		func(pods ...*corev1.Pod) { told.Add(int32(len(pods))) })
	eventually(t, "what is there is never known", e.Synced)
	for form, want := range map[gang.Form]string{
		gang.FormCoscheduling: "",
		gang.FormKubernetes:   "1 of 2 are there",
		gang.FormSIGs:         `PodGroup "pg" cannot be read: the server is broken`,
		gang.FormVolcano:      `PodGroup "pg" cannot be read: failed to list scheduling.volcano.sh/v1beta1, Resource=podgroups: podgroups.scheduling.volcano.sh is forbidden: no right`,
	} {
		if reason := hold(form); want == "" && reason != "" || !strings.Contains(reason, want) {
			t.Errorf("%s: %q, want %q", form, reason, want)
		}
	}
	if told.Load() == 0 {
		t.Error("nobody was told that the group of a pod that waits has been read")
	}
}

// A PodGroup that changes has its gang planned anew, though nothing else has happened.
func TestPodGroupChangesWhileItsGangHasNoRoom(t *testing.T) {
	claims := claimsByName{}
	e := engineOf(t, 1, claims)
	e.Gangs.setFault(gang.FormCoscheduling, "")
	set := func(minimum int) {
		if waiting := e.Gangs.SetGroup(gang.FormCoscheduling, "team", "pg", &gang.PodGroup{Minimum: minimum}); len(waiting) != 3 {
			t.Fatalf("%d pods are told", len(waiting))
		}
	}
	pods := gangOf(e, claims, 3, nil)
	for _, pod := range pods {
		pod.Annotations, pod.Labels = nil, map[string]string{"scheduling.x-k8s.io/pod-group": "pg"}
		e.Gangs.Set(pod)
	}
	set(3)
	if _, err := e.PlanGang(pods[0], anywhere); !errors.Is(err, ErrRoom) {
		t.Fatal(err)
	}
	set(2)
	team, err := e.PlanGang(pods[0], anywhere)
	if err != nil || len(team.Units) != 2 {
		t.Fatal(team, err)
	}
	e.Drop(team.Units)
	e.Gangs.SetGroup(gang.FormCoscheduling, "team", "pg", nil)
	if _, err := e.PlanGang(pods[0], anywhere); !errors.Is(err, ErrWait) || !strings.Contains(err.Error(), `PodGroup "pg" of scheduling.x-k8s.io/v1alpha1 does not exist`) {
		t.Fatal(err)
	}
}

// A pod that is more than its gang has says so, and does not say that there is no room.
func TestMoreThanTheGang(t *testing.T) {
	claims := claimsByName{}
	e := engineOf(t, 2, claims)
	pods := gangOf(e, claims, 3, map[string]string{v1alpha1.GangSizeAnnotation: "2"})
	if _, err := e.PlanGang(pods[2], anywhere); !errors.Is(err, ErrWait) || !strings.Contains(err.Error(), "has all its members without this pod") {
		t.Fatal(err)
	}
	if team, err := e.PlanGang(pods[0], anywhere); err != nil || len(team.Units) != 2 {
		t.Fatal(team, err)
	}
}
