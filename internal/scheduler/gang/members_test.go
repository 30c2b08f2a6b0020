package gang

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// trainee is a member of gang team/train.
func trainee(i int, size string, more ...string) *corev1.Pod {
	pod := podWith(fmt.Sprint("p", i), append([]string{"divvy.dev/gang=train", "divvy.dev/gang-size=" + size}, more...)...)
	pod.UID = types.UID(fmt.Sprint("uid", i))
	pod.CreationTimestamp = metav1.Unix(int64(1000+i), 0)
	return pod
}

func on(pod *corev1.Pod, node string) *corev1.Pod {
	pod.Spec.NodeName = node
	return pod
}

func TestMembers(t *testing.T) {
	m := NewMembers(nil)
	m.Set(trainee(0, "3", "divvy.dev/gang-minimum=2"))
	id, ok, err := m.Of("team/p0")
	if id != "team/train" || !ok || err != nil {
		t.Fatal(id, ok, err)
	}
	if s := m.State(id); s.Reason != "gang team/train waits for members: 1 of 2 are there" || s.Begun {
		t.Fatalf("%+v", s)
	}
	m.Set(podWith("p9", "divvy.dev/gang=train", "divvy.dev/gang-size=x"))
	if s := m.State(id); !strings.Contains(s.Reason, `1 of 2 are there; pod team/p9: invalid gang: annotation divvy.dev/gang-size: "x"`) {
		t.Fatalf("%+v", s)
	}
	m.Remove("team", "p9")
	for i := range 4 {
		m.Set(trainee(i, "3", "divvy.dev/gang-minimum=2"))
	}
	s := m.State(id)
	if s.Reason != "" || !reflect.DeepEqual(s.Waiting, []string{"team/p0", "team/p1", "team/p2"}) || !reflect.DeepEqual(s.Extra, []string{"team/p3"}) {
		t.Fatalf("%+v", s)
	}
	m.Remove("team", "p3")

	// Bound, one assumed first; what a pod says after that is not heard.
	m.Assume("team/p0", "n0")
	m.Set(trainee(0, "3", "divvy.dev/gang-minimum=2"))
	if s := m.State(id); len(s.Bound) != 1 || len(s.Waiting) != 2 || !s.Begun {
		t.Fatalf("%+v", s)
	}
	m.Set(on(trainee(0, "3", "divvy.dev/gang-minimum=2"), "n0"))
	m.Forget("team/p0")
	m.Set(on(trainee(0, "999"), "n0"))
	m.Assume("team/p1", "n1")
	m.Forget("team/p1")
	m.Set(on(trainee(1, "3", "divvy.dev/gang-minimum=2"), "n1"))
	if s := m.State(id); len(s.Bound) != 2 || len(s.Waiting) != 1 || s.Reason != "" {
		t.Fatalf("%+v", s)
	}

	// One ends well and one is lost: what is left to place is one less, and goes first.
	ended := on(trainee(0, "3"), "n0")
	ended.Status.Phase = corev1.PodSucceeded
	m.Set(ended)
	failed := on(trainee(1, "3"), "n1")
	failed.Status.Phase = corev1.PodFailed
	m.Set(failed)
	s = m.State(id)
	if s.Gang.Minimum != 1 || s.Gang.Size != 2 || len(s.Bound) != 0 || !reflect.DeepEqual(s.Waiting, []string{"team/p2"}) || !s.Begun || s.Reason != "" {
		t.Fatalf("%+v", s)
	}
	for i := range 3 {
		m.Remove("team", fmt.Sprint("p", i))
	}
	if len(m.pods)+len(m.gangs)+len(m.states) != 0 {
		t.Fatal("something is left of a gang that has gone")
	}
}

func TestMembersThatDisagree(t *testing.T) {
	for line, want := range map[string]string{
		"divvy.dev/gang-size=4":                  "its size: team/p0 says 3, team/p1 says 4",
		"divvy.dev/gang-minimum=1":               "its minimum: team/p0 says 3, team/p1 says 1",
		"divvy.dev/gang-share-gpus=true":         "its sharing of GPUs: team/p0 says false, team/p1 says true",
		"divvy.dev/gang-topology=rack=preferred": "its topology: team/p0 says nothing, team/p1 says rack=preferred",
	} {
		m := NewMembers(nil)
		m.Set(trainee(1, "3", line))
		m.Set(trainee(0, "3"))
		m.Set(trainee(2, "3"))
		if s := m.State("team/train"); !strings.HasSuffix(s.Reason, want) {
			t.Errorf("%s: %q", line, s.Reason)
		}
		m.Set(trainee(1, "3")) // corrected
		if s := m.State("team/train"); s.Reason != "" {
			t.Errorf("%s, corrected: %q", line, s.Reason)
		}
	}
}

// A PodGroup that vanishes is a reason for those that wait, and nothing to those that have nodes.
func TestPodGroupVanishes(t *testing.T) {
	o := objects{FormCoscheduling: {"pg": {Minimum: 2}}}
	m := NewMembers(o)
	for i := range 3 {
		pod := podWith(fmt.Sprint("p", i), "label scheduling.x-k8s.io/pod-group=pg")
		if i == 0 {
			on(pod, "n0")
		}
		m.Set(pod)
	}
	const id = "team/coscheduling/pg"
	if s := m.State(id); s.Reason != "" || len(s.Waiting) != 2 || len(s.Bound) != 1 {
		t.Fatalf("%+v", s)
	}
	delete(o[FormCoscheduling], "pg")
	if waiting := m.Changed(FormCoscheduling, "team", "pg"); len(waiting) != 2 {
		t.Fatal(waiting)
	}
	if _, ok, err := m.Of("team/p1"); !ok || err == nil {
		t.Fatal(ok, err)
	}
	if s := m.State(id); len(s.Bound) != 1 || len(s.Waiting) != 0 || !strings.Contains(s.Reason, `1 of 2 are there; pod team/p1: invalid gang: PodGroup "pg"`) {
		t.Fatalf("%+v", s)
	}
	o[FormCoscheduling]["pg"] = PodGroup{Minimum: 3}
	m.Changed(FormCoscheduling, "team", "pg")
	if s := m.State(id); len(s.Waiting) != 2 || s.Gang.Minimum != 3 || s.Reason != "" {
		t.Fatalf("%+v", s)
	}
}

// The state of a gang does not depend on the order of what was heard of its pods.
func TestOrderOfEventsIsIrrelevant(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 5))
	for range 200 {
		var pods []*corev1.Pod
		for i := range 2 + random.IntN(8) {
			pod := trainee(i, fmt.Sprint(4+random.IntN(8)/7), "divvy.dev/gang-minimum=3")
			if random.IntN(3) == 0 {
				on(pod, "n0")
			}
			if random.IntN(6) == 0 {
				pod.Status.Phase = []corev1.PodPhase{corev1.PodSucceeded, corev1.PodFailed}[random.IntN(2)]
			}
			pods = append(pods, pod)
		}
		var want State
		for round := range 3 {
			m := NewMembers(nil)
			random.Shuffle(len(pods), func(i, j int) { pods[i], pods[j] = pods[j], pods[i] })
			for _, pod := range pods {
				m.Set(pod)
			}
			if got := m.State("team/train"); round == 0 {
				want = got
			} else if !reflect.DeepEqual(got, want) {
				t.Fatalf("%+v\n%+v", got, want)
			}
		}
	}
}
