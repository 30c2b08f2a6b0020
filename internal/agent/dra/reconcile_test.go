package dra

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/utils/ptr"
)

func TestLostSpecificationComesBack(t *testing.T) {
	claim, pod := apart()
	m := newMachine(t, claim, pod)
	r := m.start()
	m.mustPrepare(r, claim)
	path := filepath.Join(m.cdiDir, "divvy.dev-"+string(uidA)+".json")
	before, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.RemoveAll(m.cdiDir); err != nil {
		t.Fatal(err)
	}
	r.stop()
	r = m.start()
	newReconciler(r.driver).specifications(t.Context())
	if after, err := os.ReadFile(path); err != nil || string(after) != string(before) {
		t.Errorf("%s became %s, %v", before, after, err)
	}
	// One that nobody knows goes.
	stray := filepath.Join(m.cdiDir, "divvy.dev-"+string(uidB)+".json")
	foreign := filepath.Join(m.cdiDir, "nic.example.com-"+string(uidB)+".json")
	for _, name := range []string{stray, foreign} {
		if err := os.WriteFile(name, []byte("{}"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	newReconciler(r.driver).specifications(t.Context())
	if _, err := os.Stat(stray); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the stray is left: %v", err)
	}
	if _, err := os.Stat(foreign); err != nil {
		t.Error(err)
	}
}

// forget deletes claim team/a and its pod, and looks often enough that what nobody knows any more is taken back. What is prepared must
// still be there before.
func (m *machine) forget(r *running, pod *corev1.Pod, there func() bool) {
	m.t.Helper()
	watch := m.watched(r)
	rec := newReconciler(r.driver)
	now := time.Now()
	rec.now = func() time.Time { return now }
	looks := func() {
		for range 4 {
			now = now.Add(reconcileInterval)
			rec.look(m.t.Context())
		}
	}
	if looks(); !there() {
		m.t.Fatal("taken from a claim that is there")
	}
	if err := m.client.Tracker().Delete(resourcev1.SchemeGroupVersion.WithResource("resourceclaims"), "team", "a"); err != nil {
		m.t.Fatal(err)
	}
	m.removePod(watch, pod)
	looks()
}

// The share of a claim that is gone, and that the kubelet has forgotten, is taken
// back, but not from somebody who uses it, nor while nothing is known.
func TestForgottenClaims(t *testing.T) {
	claim, pod := simple()
	m := newMachine(t, claim, pod)
	r := m.start()
	m.mustPrepare(r, claim)
	now := time.Now()
	watch := m.watched(r)
	rec := newReconciler(r.driver)
	rec.now = func() time.Time { return now }
	look := func() { now = now.Add(reconcileInterval); rec.look(t.Context()) }
	held := func() bool { first, _ := m.held(r); return first != 0 }
	for range 10 {
		look()
	}
	if !held() {
		t.Fatal("taken from a claim that is there")
	}
	away := true
	m.client.PrependReactor("get", "resourceclaims", func(clienttesting.Action) (bool, runtime.Object, error) {
		return away, nil, context.DeadlineExceeded
	})
	if err := m.client.Tracker().Delete(resourcev1.SchemeGroupVersion.WithResource("resourceclaims"), "team", "a"); err != nil {
		t.Fatal(err)
	}
	m.removePod(watch, pod)
	for range 10 {
		look()
	}
	if !held() {
		t.Fatal("taken while the API server was away")
	}
	away = false
	look()
	if !held() {
		t.Fatal("taken at once")
	}
	end := m.live(r, "team/a")
	for range 10 {
		look()
	}
	if !held() {
		t.Fatal("taken from a process that uses it")
	}
	end()
	look()
	m.mustBeEmpty(r)
}

// A claim of the same name that came later is another one.
func TestReplacedClaim(t *testing.T) {
	claim, pod := simple()
	m := newMachine(t, claim, pod)
	r := m.start()
	m.mustPrepare(r, claim)
	later := claim.DeepCopy()
	later.UID = uidB
	if err := m.client.Tracker().Update(resourcev1.SchemeGroupVersion.WithResource("resourceclaims"), later, "team"); err != nil {
		t.Fatal(err)
	}
	there, other, err := newReconciler(r.driver).there(t.Context(), uidA, r.agent.Tenancies()[0])
	if err != nil || there != nil || other == nil || other.UID != uidB {
		t.Errorf("there %v, and %v later, %v", there, other, err)
	}
	later.UID, later.Status.Allocation = uidA, nil
	if err := m.client.Tracker().Update(resourcev1.SchemeGroupVersion.WithResource("resourceclaims"), later, "team"); err != nil {
		t.Fatal(err)
	}
	if there, other, err := newReconciler(r.driver).there(t.Context(), uidA, r.agent.Tenancies()[0]); err != nil || there != nil || other != nil {
		t.Errorf("deallocated: there %v, and %v later, %v", there, other, err)
	}
}

// The specifications name what a lost checkpoint does not.
func TestKeysAfterALostCheckpoint(t *testing.T) {
	claim, pod := apart()
	m := newMachine(t, claim, pod)
	r := m.start()
	devices := m.mustPrepare(r, claim)
	want := r.agent.Tenancies()
	r.stop()
	if err := os.WriteFile(filepath.Join(m.dir, "tenants.json"), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	r = m.start()
	newReconciler(r.driver).specifications(t.Context())
	for i, tenancy := range r.agent.Tenancies() {
		if tenancy.Key != want[i].Key || tenancy.Namespace != "team" || tenancy.Claim != "a" {
			t.Errorf("%+v became %+v", want[i], tenancy)
		}
	}
	if again := m.mustPrepare(r, claim); !reflect.DeepEqual(again, devices) {
		t.Errorf("%+v became %+v", devices, again)
	}
	if err := m.unprepare(r, claim); err != nil {
		t.Error(err)
	}
	m.mustBeEmpty(r)
}

// The kubelet asks for a claim once: who comes later and names other parts of it is
// told what it gets, once.
func TestLaterPodsAreToldOfTheDivision(t *testing.T) {
	claim := claimWith(result("r", firstID, "4Gi", "0"), result("s", otherID, "4Gi", "0"))
	first := podOf("first", map[string][]ref{"main": {{"a", ""}}})
	same := podOf("same", map[string][]ref{"main": {{"a", "r"}, {"a", "s"}}})
	part := podOf("part", map[string][]ref{"main": {{"a", "s"}}})
	reserve(claim, first)
	m := newMachine(t, claim, first)
	r := m.start()
	m.mustPrepare(r, claim)
	watch := m.watched(r)
	rec := newReconciler(r.driver)
	rec.look(t.Context())
	later := claim.DeepCopy()
	reserve(later, same, part)
	if err := m.client.Tracker().Update(resourcev1.SchemeGroupVersion.WithResource("resourceclaims"), later, "team"); err != nil {
		t.Fatal(err)
	}
	m.addPod(watch, same)
	m.addPod(watch, part)
	for range 3 {
		rec.look(t.Context())
	}
	want := "Warning PreparedOtherwise claim cannot be served: container main of pod part names s and is given r and s, " +
		"as it is prepared for pods that use it already: give the pod a claim of its own"
	select {
	case got := <-m.events.Events:
		if got != want {
			t.Errorf("told %q", got)
		}
	default:
		t.Error("nobody is told")
	}
	if len(m.events.Events) > 0 {
		t.Errorf("told again: %q", <-m.events.Events)
	}
	// A claim that was made for one pod has no other, and is not looked at.
	owned := later.DeepCopy()
	owned.OwnerReferences = []metav1.OwnerReference{{Kind: "Pod", Name: "part", Controller: ptr.To(true)}}
	clear(rec.told)
	rec.beside(t.Context(), owned)
	if len(rec.told) > 0 || len(m.events.Events) > 0 {
		t.Errorf("told %v", rec.told)
	}
}
