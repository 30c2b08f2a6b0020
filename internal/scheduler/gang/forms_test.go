package gang

import (
	"errors"
	"reflect"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	schedulingv1alpha2 "k8s.io/api/scheduling/v1alpha2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
)

// objects are PodGroups by form and name.
type objects map[Form]map[string]PodGroup

func (o objects) PodGroup(form Form, _, name string) (PodGroup, bool) {
	g, ok := o[form][name]
	return g, ok
}

// podWith makes a pod: annotations as key=value, labels as "label key=value".
func podWith(name string, lines ...string) *corev1.Pod {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: name, Annotations: map[string]string{}, Labels: map[string]string{}}}
	for _, line := range lines {
		in := pod.Annotations
		if rest, ok := strings.CutPrefix(line, "label "); ok {
			in, line = pod.Labels, rest
		}
		key, value, _ := strings.Cut(line, "=")
		in[key] = value
	}
	return pod
}

func TestForms(t *testing.T) {
	minimum := func(n int) map[string]any { return map[string]any{"spec": map[string]any{"minMember": int64(n)}} }
	hard := map[string]any{"spec": map[string]any{"minMember": float64(4), "networkTopology": map[string]any{"mode": "hard"}}}
	o := objects{
		FormCoscheduling: {"pg": FromObject(FormCoscheduling, minimum(3)), "none": FromObject(FormCoscheduling, nil), "many": FromObject(FormCoscheduling, minimum(5000))},
		FormSIGs:         {"pg": FromObject(FormSIGs, minimum(5))},
		FormVolcano:      {"job": FromObject(FormVolcano, minimum(4)), "hard": FromObject(FormVolcano, hard)},
	}
	const koordinator = "gang.scheduling.koordinator.sh/"
	for name, c := range map[string]struct {
		lines []string
		want  Gang
		none  bool
		fault string
	}{
		"no gang": {none: true},
		"ours":    {lines: []string{"divvy.dev/gang=train", "divvy.dev/gang-size=8"}, want: Gang{Name: "train", Size: 8, Minimum: 8}},
		"ours, all of it": {
			lines: []string{
				"divvy.dev/gang=train", "divvy.dev/gang-size=8", "divvy.dev/gang-minimum=6", "divvy.dev/gang-share-gpus=true",
				"divvy.dev/gang-topology=example.com/zone=required, example.com/rack=preferred",
			},
			want: Gang{Name: "train", Size: 8, Minimum: 6, ShareGPUs: true, Topology: []Level{{"example.com/zone", true}, {"example.com/rack", false}}},
		},
		"ours beside another's":  {lines: []string{"divvy.dev/gang=a", "divvy.dev/gang-size=2", "scheduling.k8s.io/group-name=job"}, want: Gang{Name: "a", Size: 2, Minimum: 2}},
		"no size":                {lines: []string{"divvy.dev/gang=a"}, fault: "annotation divvy.dev/gang-size is missing"},
		"no name":                {lines: []string{"divvy.dev/gang-size=8"}, fault: "annotation divvy.dev/gang-size needs divvy.dev/gang", none: true},
		"an empty name":          {lines: []string{"divvy.dev/gang=", "divvy.dev/gang-size=8"}, fault: `"" is no name`},
		"two lines":              {lines: []string{"divvy.dev/gang=a\nb", "divvy.dev/gang-size=8"}, fault: `"a\nb" is no name`},
		"a size of none":         {lines: []string{"divvy.dev/gang=a", "divvy.dev/gang-size=0"}, fault: "is no number from 1 to 4096"},
		"too large":              {lines: []string{"divvy.dev/gang=a", "divvy.dev/gang-size=4097"}, fault: "is no number from 1 to 4096"},
		"no number":              {lines: []string{"divvy.dev/gang=a", "divvy.dev/gang-size=99999999999999999999"}, fault: "is no number from 1 to 4096"},
		"a minimum above":        {lines: []string{"divvy.dev/gang=a", "divvy.dev/gang-size=4", "divvy.dev/gang-minimum=5"}, fault: `gang-minimum: "5" is no number from 1 to 4`},
		"a level of another way": {lines: []string{"divvy.dev/gang=a", "divvy.dev/gang-size=4", "divvy.dev/gang-topology=rack"}, fault: `"rack" is not LABEL=required or LABEL=preferred`},
		"a level twice":          {lines: []string{"divvy.dev/gang=a", "divvy.dev/gang-size=4", "divvy.dev/gang-topology=rack=required,rack=preferred"}, fault: "names rack twice"},
		"neither true nor false": {lines: []string{"divvy.dev/gang=a", "divvy.dev/gang-size=4", "divvy.dev/gang-share-gpus=yes"}, fault: `"yes" is neither true nor false`},
		"coscheduling":           {lines: []string{"label scheduling.x-k8s.io/pod-group=pg"}, want: Gang{Name: "coscheduling/pg", Minimum: 3}},
		"with our topology":      {lines: []string{"label scheduling.x-k8s.io/pod-group=pg", "divvy.dev/gang-topology=rack=required"}, want: Gang{Name: "coscheduling/pg", Minimum: 3, Topology: []Level{{"rack", true}}}},
		"a PodGroup that is not there": {
			lines: []string{"label scheduling.x-k8s.io/pod-group=gone"}, fault: `PodGroup "gone" of scheduling.x-k8s.io/v1alpha1 does not exist in namespace team`,
		},
		"a PodGroup without a minimum":  {lines: []string{"label scheduling.x-k8s.io/pod-group=none"}, fault: `PodGroup "none" has no spec.minMember`},
		"a PodGroup for too many":       {lines: []string{"label scheduling.x-k8s.io/pod-group=many"}, fault: "has spec.minMember 5000: give 1 to 4096"},
		"coscheduling's older object":   {lines: []string{"label pod-group.scheduling.sigs.k8s.io=pg"}, want: Gang{Name: "sigs/pg", Minimum: 5}},
		"coscheduling's labels":         {lines: []string{"label pod-group.scheduling.sigs.k8s.io/name=pg", "label pod-group.scheduling.sigs.k8s.io/min-available=7"}, want: Gang{Name: "labels/pg", Minimum: 7}},
		"labels without a minimum":      {lines: []string{"label pod-group.scheduling.sigs.k8s.io/name=pg"}, fault: `min-available: "" is no number`},
		"Volcano":                       {lines: []string{"scheduling.k8s.io/group-name=job"}, want: Gang{Name: "volcano/job", Minimum: 4}},
		"Volcano's newer word":          {lines: []string{"scheduling.volcano.sh/group-name=job"}, want: Gang{Name: "volcano/job", Minimum: 4}},
		"Volcano's HyperNodes":          {lines: []string{"scheduling.k8s.io/group-name=hard"}, fault: "knows no HyperNodes"},
		"Koordinator":                   {lines: []string{koordinator + "name=g", koordinator + "min-available=2", koordinator + "total-number=4"}, want: Gang{Name: "koordinator/g", Minimum: 2, Size: 4}},
		"Koordinator, no total":         {lines: []string{koordinator + "name=g", koordinator + "min-available=2"}, want: Gang{Name: "koordinator/g", Minimum: 2}},
		"Koordinator, a total too few":  {lines: []string{koordinator + "name=g", koordinator + "min-available=3", koordinator + "total-number=2"}, fault: "2 is less than the 3"},
		"Koordinator's groups of gangs": {lines: []string{koordinator + "name=g", koordinator + "min-available=3", koordinator + `groups=["team/a","team/b"]`}, fault: "koordinator.sh/groups is not understood"},
	} {
		g, ok, err := Of(podWith("p", c.lines...), o)
		switch {
		case c.fault != "":
			if err == nil || !errors.Is(err, ErrGang) || !strings.Contains(err.Error(), c.fault) || strings.Contains(err.Error(), "\n") || ok == c.none {
				t.Errorf("%s: got %v %v, want %s", name, ok, err, c.fault)
			}
		case err != nil || ok == c.none:
			t.Errorf("%s: got %v, %v", name, ok, err)
		case ok:
			if c.want.Namespace = "team"; !reflect.DeepEqual(g, c.want) {
				t.Errorf("%s: got %+v, want %+v", name, g, c.want)
			}
		}
	}
}

func TestPodGroupOfKubernetes(t *testing.T) {
	group := func(change func(*schedulingv1alpha2.PodGroupSpec)) PodGroup {
		o := &schedulingv1alpha2.PodGroup{}
		o.Spec.SchedulingPolicy.Gang = &schedulingv1alpha2.GangSchedulingPolicy{MinCount: 4}
		change(&o.Spec)
		return FromKubernetes(o)
	}
	o := objects{FormKubernetes: {
		"gang": group(func(s *schedulingv1alpha2.PodGroupSpec) {
			s.SchedulingConstraints = &schedulingv1alpha2.PodGroupSchedulingConstraints{Topology: []schedulingv1alpha2.TopologyConstraint{{Key: "rack"}}}
		}),
		"basic": group(func(s *schedulingv1alpha2.PodGroupSpec) { s.SchedulingPolicy.Gang = nil }),
		"zero":  group(func(s *schedulingv1alpha2.PodGroupSpec) { s.SchedulingPolicy.Gang.MinCount = 0 }),
		"claims": group(func(s *schedulingv1alpha2.PodGroupSpec) {
			s.ResourceClaims = make([]schedulingv1alpha2.PodGroupResourceClaim, 1)
		}),
	}}
	of := func(name string) (Gang, bool, error) {
		pod := podWith("p")
		pod.Spec.SchedulingGroup = &corev1.PodSchedulingGroup{PodGroupName: &name}
		return Of(pod, o)
	}
	g, ok, err := of("gang")
	if want := (Gang{Namespace: "team", Name: "podgroup/gang", Minimum: 4, Topology: []Level{{"rack", true}}}); !ok || err != nil || !reflect.DeepEqual(g, want) {
		t.Errorf("got %+v, %v, %v", g, ok, err)
	}
	if _, ok, err := of("basic"); ok || err != nil {
		t.Errorf("a basic group is a gang: %v", err)
	}
	for name, want := range map[string]string{"zero": "minCount 0: give 1 to 4096", "claims": "has resourceClaims", "gone": "does not exist"} {
		if _, _, err := of(name); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v", name, err)
		}
	}
}

// Whatever annotations say, the answer is a gang within bounds or one line.
func FuzzOf(f *testing.F) {
	f.Add("train", "8", "6", "rack=required,zone=preferred", "true")
	f.Add("a\n", "-1", "1e3", "=,=required,", "TRUE")
	f.Add("x", "4096", "4096", strings.Repeat("a=required,", 9), "")
	f.Fuzz(func(t *testing.T, name, size, minimum, topology, share string) {
		for _, prefix := range []string{v1alpha1.GangAnnotation, "gang.scheduling.koordinator.sh/"} {
			pod := podWith("p", "divvy.dev/gang-topology="+topology, "divvy.dev/gang-share-gpus="+share)
			pod.Annotations[strings.TrimSuffix(prefix, "/")] = name
			pod.Annotations[prefix+"name"] = name
			pod.Annotations[prefix+"-size"], pod.Annotations[prefix+"-minimum"] = size, minimum
			pod.Annotations[prefix+"total-number"], pod.Annotations[prefix+"min-available"] = size, minimum
			g, ok, err := Of(pod, nil)
			if err != nil && strings.ContainsAny(err.Error(), "\n\r") {
				t.Fatalf("%q is no line", err)
			}
			if ok && err == nil && (g.Minimum < 1 || g.Minimum > 4096 || g.Size != 0 && g.Size < g.Minimum || g.Size > 4096 || len(g.Topology) > mostLevels) {
				t.Fatalf("%+v", g)
			}
		}
	})
}
