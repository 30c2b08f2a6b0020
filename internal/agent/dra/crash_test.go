package dra

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/divvy-gpu/divvy/internal/agent/agenttest"
)

// crashing runs an agent until it crashes at a step of f, the nth time.
func (m *machine) crashing(step string, nth int, f func(*running)) (crashed bool) {
	m.step = agenttest.CrashAt(step, nth)
	r := m.start()
	m.step = nil
	defer r.stop()
	return agenttest.Crashes(step, func() { f(r) })
}

// An agent that dies after any step loses, doubles and leaks nothing: the kubelet
// asks the next one again for what it was not told to be done.
func TestCrashAfterEveryStep(t *testing.T) {
	for _, step := range []string{"prepare-entered", "prepare-made", "prepare-spec"} {
		for nth := 1; nth <= 2; nth++ {
			if step == "prepare-spec" && nth > 1 {
				continue // there is one specification for both
			}
			claim, pod := apart()
			die := func(t *testing.T) (*machine, *running) {
				m := newMachine(t, claim, pod)
				if !m.crashing(step, nth, func(r *running) { m.prepare(r, claim) }) {
					t.Fatal("there is no such step")
				}
				r := m.start()
				newReconciler(r.driver).specifications(t.Context())
				return m, r
			}
			t.Run(step+" and asked again", func(t *testing.T) {
				m, r := die(t)
				m.mustPrepare(r, claim)
				if first, _ := m.held(r); first != 6*gib || len(r.agent.Tenancies()) != 2 || len(m.specs()) != 1 {
					t.Errorf("%d bytes, %v, %v", first, r.agent.Tenancies(), m.specs())
				}
				if err := m.unprepare(r, claim); err != nil {
					t.Error(err)
				}
				m.mustBeEmpty(r)
			})
			t.Run(step+" and released", func(t *testing.T) {
				m, r := die(t)
				if err := m.unprepare(r, claim); err != nil {
					t.Error(err)
				}
				m.mustBeEmpty(r)
			})
		}
	}
	for _, step := range []string{"release-begun", "release-undone", "release-done"} {
		t.Run(step, func(t *testing.T) {
			claim, pod := apart()
			m := newMachine(t, claim, pod)
			if !m.crashing(step, 1, func(r *running) {
				m.mustPrepare(r, claim)
				_ = m.unprepare(r, claim)
			}) {
				t.Fatal("there is no such step")
			}
			r := m.start()
			newReconciler(r.driver).specifications(t.Context())
			if err := m.unprepare(r, claim); err != nil {
				t.Error(err)
			}
			m.mustBeEmpty(r)
		})
	}
}

// Nor does one that dies over a tenant that it made while it read the pods, also
// where these are refused in the end.
func TestCrashBeforePodsAreKnown(t *testing.T) {
	for _, step := range []string{"prepare-entered", "prepare-made", "prepare-spec"} {
		t.Run(step, func(t *testing.T) {
			claim, pod := simple()
			m := newMachine(t, claim, pod)
			if !m.crashing(step, 1, func(r *running) { m.prepare(r, claim) }) {
				t.Fatal("there is no such step")
			}
			r := m.start()
			newReconciler(r.driver).specifications(t.Context())
			m.mustPrepare(r, claim)
			if first, _ := m.held(r); first != 4*gib || len(r.agent.Tenancies()) != 1 || len(m.specs()) != 1 {
				t.Errorf("%d bytes, %v, %v", first, r.agent.Tenancies(), m.specs())
			}
			if err := m.unprepare(r, claim); err != nil {
				t.Error(err)
			}
			m.mustBeEmpty(r)
		})
	}
	claim, pod := simple()
	pod.Spec.Containers[0].SecurityContext = &corev1.SecurityContext{Privileged: ptr.To(true)}
	m := newMachine(t, claim, pod)
	if !m.crashing("prepare-made", 1, func(r *running) { m.prepare(r, claim) }) {
		t.Fatal("nothing is made before the pods are known")
	}
	r := m.start()
	newReconciler(r.driver).specifications(t.Context())
	if m.prepare(r, claim).Err == nil {
		t.Error("a privileged container was prepared for")
	}
	if err := m.unprepare(r, claim); err != nil {
		t.Error(err)
	}
	m.mustBeEmpty(r)
}

// A claim that was cut in half by a crash may be used otherwise afterwards.
func TestCrashThenAnotherPod(t *testing.T) {
	claim, pod := apart()
	claim.Status.Allocation.Devices.Results[0] = result("q", firstID, "4Gi", "0") // as the other
	m := newMachine(t, claim, pod)
	m.crashing("prepare-made", 1, func(r *running) { m.prepare(r, claim) })
	r := m.start()
	other := podOf("other", map[string][]ref{"main": {{"a", ""}}})
	if err := m.client.Tracker().Add(other); err != nil {
		t.Fatal(err)
	}
	claim.Status.ReservedFor = nil
	reserve(claim, other)
	m.mustPrepare(r, claim)
	if all := r.agent.Tenancies(); len(all) != 1 || all[0].Key != string(uidA) {
		t.Errorf("tenancies %+v", all)
	}
}
