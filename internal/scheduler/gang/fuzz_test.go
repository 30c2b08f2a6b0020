package gang

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	schedulingv1alpha2 "k8s.io/api/scheduling/v1alpha2"
	"k8s.io/apimachinery/pkg/types"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
)

// read makes the PodGroups of all forms of one text, as the API server would give them.
func read(text string) objects {
	o := objects{}
	var content map[string]any
	if json.Unmarshal([]byte(text), &content) != nil {
		return o
	}
	for _, form := range []Form{FormCoscheduling, FormSIGs, FormVolcano} {
		o[form] = map[string]PodGroup{"pg": FromObject(form, content)}
	}
	var typed schedulingv1alpha2.PodGroup
	if json.Unmarshal([]byte(text), &typed) == nil {
		o[FormKubernetes] = map[string]PodGroup{"pg": FromKubernetes(&typed)}
	}
	return o
}

// Whatever a pod and its PodGroup say: a gang has a minimum in range, or there is one line that says what is wrong.
func FuzzForms(f *testing.F) {
	for _, lines := range []string{
		"divvy.dev/gang=train\ndivvy.dev/gang-size=8\ndivvy.dev/gang-minimum=6\ndivvy.dev/gang-topology=a/b=required, c=preferred\ndivvy.dev/gang-share-gpus=true",
		"label scheduling.x-k8s.io/pod-group=pg", "label pod-group.scheduling.sigs.k8s.io=pg", "scheduling.k8s.io/group-name=pg",
		"label pod-group.scheduling.sigs.k8s.io/name=a\nlabel pod-group.scheduling.sigs.k8s.io/min-available=3",
		"gang.scheduling.koordinator.sh/name=k\ngang.scheduling.koordinator.sh/min-available=2\ngang.scheduling.koordinator.sh/total-number=4\ngang.scheduling.koordinator.sh/groups=[\"a\"]",
		"divvy.dev/gang-size=8", "group=pg",
	} {
		f.Add(lines, `{"spec":{"minMember":3,"networkTopology":{"mode":"hard"},"subGroupPolicy":[{}]}}`)
		f.Add(lines, `{"spec":{"schedulingPolicy":{"gang":{"minCount":4}},"schedulingConstraints":{"topology":[{"key":"rack"}]}}}`)
	}
	f.Fuzz(func(t *testing.T, lines, group string) {
		pod := podWith("p0", strings.Split(lines, "\n")...)
		if name, ok := pod.Annotations["group"]; ok {
			pod.Spec.SchedulingGroup = &corev1.PodSchedulingGroup{PodGroupName: &name}
		}
		all := read(group)
		g, in, err := Of(pod, all)
		switch {
		case err != nil && (!errors.Is(err, ErrGang) || strings.ContainsAny(err.Error(), "\n\r") || len(err.Error()) > 2000):
			t.Fatalf("%v", err)
		case err == nil && !in && g.Minimum != 0:
			t.Fatalf("in none, and it is %+v", g)
		}
		if err != nil || !in {
			return
		}
		if g.Namespace != "team" || g.Name == "" || g.Minimum < 1 || g.Minimum > v1alpha1.MostGangMembers ||
			g.Size != 0 && g.Size < g.Minimum || g.Size > v1alpha1.MostGangMembers || len(g.Topology) > mostLevels || strings.ContainsAny(g.String(), "\n ") {
			t.Fatalf("%+v", g)
		}
		if again, _, _ := Of(named(pod), all); !reflect.DeepEqual(again, g) {
			t.Fatalf("%+v, and of what is kept of the pod %+v", g, again)
		}
		if len(g.Topology) > 0 && pod.Annotations[v1alpha1.GangTopologyAnnotation] != "" {
			if same, err := levels(text(g.Topology)); err != nil || !slices.Equal(same, g.Topology) {
				t.Fatalf("%v becomes %v: %v", g.Topology, same, err)
			}
		}
	})
}

// Whatever happens to pods and PodGroups, in whatever order: what is known of a gang is what a registry knows that is told the
// last of each alone, and nothing is left of pods that have gone.
func FuzzMembers(f *testing.F) {
	f.Add([]byte{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21})
	f.Add([]byte("\x00\x10\x20\x31\x42\x53\x64\x75\x86\x97\xa8\xb9\xca\xdb\xec\xfd"))
	f.Fuzz(func(t *testing.T, data []byte) {
		o := objects{FormCoscheduling: {}}
		m := NewMembers(o)
		last := map[string]*corev1.Pod{}
		for len(data) >= 3 {
			op, which, what := data[0]%6, int(data[1]%6), int(data[2])
			data = data[3:]
			key := fmt.Sprint("team/p", which)
			switch op {
			case 0, 1:
				pod := drawn(which, what)
				if before := last[key]; before != nil && before.UID == pod.UID && before.Spec.NodeName != "" {
					pod.Spec.NodeName, pod.Annotations, pod.Labels = before.Spec.NodeName, before.Annotations, before.Labels // as in the API
				}
				m.Set(pod)
				last[key] = pod
			case 2:
				m.Remove("team", fmt.Sprint("p", which))
				delete(last, key)
			case 3:
				m.Assume(key, "n1")
				m.Forget(key)
			case 4:
				o[FormCoscheduling]["pg"] = PodGroup{Minimum: 1 + what%4}
				m.Changed(FormCoscheduling, "team", "pg")
			case 5:
				m.Assume(key, "n1")
			}
			for id := range m.gangs { // what is remembered of a gang is what it is
				if got, want := m.State(id), m.state(id); !reflect.DeepEqual(got, want) {
					t.Fatalf("%s: %+v, and is %+v", id, got, want)
				}
			}
		}
		for which := range 6 {
			m.Forget(fmt.Sprint("team/p", which))
		}
		fresh := NewMembers(o)
		for _, pod := range last {
			fresh.Set(pod)
		}
		for _, id := range []string{"team/train", "team/other", "team/coscheduling/pg"} {
			got, want := m.State(id), fresh.State(id)
			if !reflect.DeepEqual(got, want) {
				t.Fatalf("%s: %+v, and anew %+v", id, got, want)
			}
		}
		for which := range 6 {
			m.Remove("team", fmt.Sprint("p", which))
		}
		if len(m.pods)+len(m.gangs)+len(m.states) != 0 {
			t.Fatal("something is left of pods that have gone")
		}
	})
}

// drawn is a pod by a number of 0 to 255.
func drawn(which, what int) *corev1.Pod {
	lines := [][]string{
		{"divvy.dev/gang=train", "divvy.dev/gang-size=3", "divvy.dev/gang-minimum=2"},
		{"divvy.dev/gang=train", "divvy.dev/gang-size=4"},
		{"divvy.dev/gang=other", "divvy.dev/gang-size=1"},
		{"divvy.dev/gang=train", "divvy.dev/gang-size=x"},
		{"label scheduling.x-k8s.io/pod-group=pg"},
		{"label scheduling.x-k8s.io/pod-group=pg", "divvy.dev/gang-topology=rack=required"},
		{},
		{"divvy.dev/gang-size=3"},
	}[what%8]
	pod := podWith(fmt.Sprint("p", which), lines...)
	pod.UID = types.UID(fmt.Sprint(which, "-", what/128))
	if what&16 != 0 {
		pod.Spec.NodeName = "n0"
	}
	pod.Status.Phase = []corev1.PodPhase{corev1.PodPending, corev1.PodRunning, corev1.PodSucceeded, corev1.PodFailed}[what/32%4]
	return pod
}

// bytesFirst is a source of numbers that begins with bytes that were given.
type bytesFirst struct {
	data []byte
	rest rand.Source
}

func (b *bytesFirst) Uint64() uint64 {
	if len(b.data) < 2 {
		return b.rest.Uint64()
	}
	// Small and large numbers alike come from the upper bits.
	n := uint64(binary.BigEndian.Uint16(b.data)) << 48
	b.data = b.data[2:]
	return n
}

// Whatever nodes there are and gangs ask: a plan keeps the rules, a refusal is one line, and neither leaves a trace.
func FuzzPlace(f *testing.F) {
	for i := range 16 {
		f.Add([]byte{byte(i), byte(i * 37)})
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		if len(data) > 4096 {
			return
		}
		h := fnv.New64()
		h.Write(data)
		random := rand.New(&bytesFirst{data, rand.NewPCG(h.Sum64(), 1)})
		inv, l := odd(t, random, 2+random.IntN(12))
		for range 3 {
			g, m, placed := oddGang(t, random, inv)
			plan, refusal := place(t, inv, g, m, l)
			for _, p := range plan.Placements {
				if lets := p.Member.Lets; lets != nil && !lets(p.Assignment.Node) {
					t.Fatalf("%s is where it is not let", p.Member.Key)
				}
			}
			if again, second := place(t, inv, g, m, l); (refusal == nil) != (second == nil) || len(again.Placements) != len(plan.Placements) {
				t.Fatalf("%v, and again %v", refusal, second)
			}
			for _, a := range placed {
				inv.Unreserve(a)
			}
		}
	})
}
