package ledger

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/alloc"
)

// The node that the policy wants most alone has the best score, and the others follow in its order.
func TestScoresAreInThePolicysOrder(t *testing.T) {
	l := newLedger(t, "bestfit")
	var names []string
	for i := range 25 {
		name := fmt.Sprint("n", i)
		names = append(names, name)
		l.SetNode(name, nodeOf(t, name, gpus(name, 1, 40*gib), nil))
		place(t, l, podOf(t, fmt.Sprint("uid", i), ask("main", 1, uint64(1+i)*gib, 0)), name)
	}
	names = append(names, "n99")
	scores, err := l.Prioritise(podOf(t, "b", ask("main", 1, 16*gib, 0)), names)
	if err != nil {
		t.Fatal(err)
	}
	inv := l.Inventory()
	choices, err := inv.PodChoices(&alloc.Pod{CPU: 2000, HostMemory: 4 * gib, Claims: [][]alloc.Request{{{Count: 1, Memory: v1alpha1.Bytes(16 * gib)}}}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	before, rank := MostScore+1, 0
	for a, ok := choices.Next(); ok; a, ok = choices.Next() {
		s := scores[slices.Index(names, a.Name)]
		if s != max(MostScore-rank, 0) {
			t.Errorf("place %d has score %d, the one before %d", rank, s, before)
		}
		before, rank = s, rank+1
	}
	if rank != 24 || before != 0 || scores[24] != 0 || scores[25] != 0 {
		t.Errorf("%d places: %v", rank, scores)
	}
}

// A whole GPU counts with all that it has, also when that changes.
func TestWholeCountsAll(t *testing.T) {
	l := newLedger(t, alloc.DefaultPolicy)
	all := gpus("n0", 1, 40*gib)
	l.SetNode("n0", nodeOf(t, "n0", all, nil))
	_, a := place(t, l, podOf(t, "a", whole("main", 1)), "n0")
	larger := gpus("n0", 1, 44*gib)
	l.SetNode("n0", nodeOf(t, "n0", larger, &v1alpha1.NodeHeld{Shares: heldFor(a)}))
	l.Advance(l.now.Add(2 * grace))
	if g := gpu(t, l, "n0", 0); g.Granted != 44*gib || g.Cores != 100 || g.Tenants != 1 || len(l.Fences()) != 0 {
		t.Errorf("%d of 44 GiB, %d cores, %d tenants, %+v", g.Granted/gib, g.Cores, g.Tenants, l.Fences())
	}
	check(t, l)
}

// What a pod asks of its GPUs beside amounts is kept.
func TestWishes(t *testing.T) {
	l := newLedger(t, "bestfit")
	a100, t4 := gpus("n0", 4, 40*gib), gpus("n1", 2, 16*gib)
	for i := range t4 {
		t4[i].Model, t4[i].Architecture, t4[i].DriverVersion = "Tesla T4", "turing", "535.104.5"
	}
	l.SetNode("n0", nodeOf(t, "n0", a100, nil))
	l.SetNode("n1", nodeOf(t, "n1", t4, nil))
	with := func(change func(p *corev1.Pod, s *v1alpha1.ShareRequired)) *corev1.Pod {
		s := ask("main", 1, 2*gib, 0)
		p := podOf(t, "a", s)
		change(p, &s)
		p.Annotations[v1alpha1.RequestAnnotation] = text(t, v1alpha1.PodRequest{Shares: []v1alpha1.ShareRequired{s}}.Text)
		return p
	}
	selecting := func(expressions ...string) *corev1.Pod {
		return with(func(_ *corev1.Pod, s *v1alpha1.ShareRequired) { s.Selectors = expressions })
	}
	const attributes = `device.attributes["divvy.dev"].`
	for name, c := range map[string]struct {
		pod  *corev1.Pod
		want []Kind
	}{
		"models of the pod": {with(func(p *corev1.Pod, _ *v1alpha1.ShareRequired) { p.Annotations[v1alpha1.ModelsAnnotation] = "T4" }), []Kind{Never, Fits}},
		"models of the share": {with(func(_ *corev1.Pod, s *v1alpha1.ShareRequired) {
			config := *sharing
			config.GPUModels = "A100"
			s.Config = &config
		}), []Kind{Fits, Never}},
		"model":                          {selecting(attributes + `model == "Tesla T4"`), []Kind{Never, Fits}},
		"architecture":                   {selecting(attributes+`architecture == "ampere"`, attributes+"index == 3"), []Kind{Fits, Never}},
		"two that contradict each other": {selecting(attributes+`model == "Tesla T4"`, attributes+`architecture == "ampere"`), []Kind{Never, Never}},
		"version":                        {selecting(attributes + `driverVersion.isGreaterThan(semver("535.0.0"))`), []Kind{Never, Fits}},
		"capacity":                       {selecting(`device.capacity["divvy.dev"].memory.compareTo(quantity("20Gi")) > 0`), []Kind{Fits, Never}},
		"UUID":                           {selecting(attributes + `uuid == "` + gpuOf("n1", 1) + `"`), []Kind{Never, Fits}},
		"not the UUID":                   {selecting("!(" + attributes + `uuid == "` + gpuOf("n1", 1) + `")`), []Kind{Fits, Fits}},
		"every key":                      {selecting(`device.attributes["divvy.dev"].exists(k, k == "uuid")`), []Kind{Fits, Fits}},
		"whole":                          {selecting(attributes + `whole && ` + attributes + `form == "shared" && device.driver == "divvy.dev"`), []Kind{Fits, Fits}},
		"suspends":                       {selecting(`has(` + attributes + `suspends)`), []Kind{Never, Never}},
		"half":                           {with(func(_ *corev1.Pod, s *v1alpha1.ShareRequired) { s.SetAmount(v1alpha1.PartOf(1, 2)) }), []Kind{Fits, Fits}},
		"two together":                   {with(func(_ *corev1.Pod, s *v1alpha1.ShareRequired) { s.GPUs, s.SameNUMA = 2, true }), []Kind{Fits, Fits}},
		"three together":                 {with(func(_ *corev1.Pod, s *v1alpha1.ShareRequired) { s.GPUs, s.SameNUMA = 3, true }), []Kind{Full, Never}},
	} {
		if got := verdicts(t, l, c.pod, "n0", "n1"); !slices.Equal(kindsOf(got), c.want) {
			t.Errorf("%s: %+v, want %v", name, got, c.want)
		}
	}
	q, err := l.ask(selecting(attributes + `model == "Tesla T4"`))
	if err != nil || q.pod.Claims[0][0].Models != "Tesla T4" {
		t.Errorf("the policy is told of the models %q, %v", q.pod.Claims[0][0].Models, err)
	}
	half := with(func(_ *corev1.Pod, s *v1alpha1.ShareRequired) { s.SetAmount(v1alpha1.PartOf(1, 2)) })
	if a, err := l.Reserve(half, "n1"); err != nil || a.Shares[0].GPUs[0].Memory != 8*gib {
		t.Errorf("%+v, %v", a, err)
	}
	l.Undo("a")
	// GPUs that come are asked about, and preferences decide between nodes.
	uuid := selecting(attributes + `uuid == "` + gpuOf("n2", 0) + `"`)
	if v := verdicts(t, l, uuid, "n0", "n1"); slices.Contains(kindsOf(v), Fits) {
		t.Errorf("%+v", v)
	}
	l.SetNode("n2", nodeOf(t, "n2", gpus("n2", 1, 40*gib), nil))
	if v := verdicts(t, l, uuid, "n0", "n2"); v[0].Kind == Fits || v[1].Kind != Fits {
		t.Errorf("%+v", v)
	}
	for prefer, best := range map[string]int{"T4": 1, string(v1alpha1.PreferLeastCapable): 1} {
		scores, err := l.Prioritise(with(func(p *corev1.Pod, _ *v1alpha1.ShareRequired) { p.Annotations[v1alpha1.PreferAnnotation] = prefer }), []string{"n0", "n1", "n2"})
		if err != nil || slices.Index(scores, MostScore) != best {
			t.Errorf("%s: %v, %v", prefer, scores, err)
		}
	}
	check(t, l)
}

// A selector that tells too many GPUs apart is refused, and one that leaves out a few of many is not.
func TestSelectorsOfManyGPUs(t *testing.T) {
	l := newLedger(t, alloc.DefaultPolicy)
	for i := range 2 * mostNamed / 8 {
		name := fmt.Sprint("n", i)
		l.SetNode(name, nodeOf(t, name, gpus(name, 16, 40*gib), nil))
	}
	s := ask("main", 1, gib, 0)
	s.Selectors = []string{`device.attributes["divvy.dev"].numaNode < 4`}
	if _, err := l.Filter(podOf(t, "a", s), nil); !errors.Is(err, ErrPod) || !strings.Contains(err.Error(), "1024 of 2048") {
		t.Error(err)
	}
	s.Selectors = []string{`!(device.attributes["divvy.dev"].uuid == "` + gpuOf("n3", 0) + `")`}
	if v := verdicts(t, l, podOf(t, "a", s), "n3"); v[0].Kind != Fits {
		t.Errorf("%+v", v)
	}
}

// A question that was answered and cannot be for the GPUs that came since is refused each time, and answered by the GPUs that there
// are once it can be again.
func TestRefusedForGPUsThatCame(t *testing.T) {
	l := newLedger(t, alloc.DefaultPolicy)
	name := func(i int) string { return fmt.Sprint("n", i) }
	for i := range mostNamed {
		l.SetNode(name(i), nodeOf(t, name(i), gpus(name(i), 2, 40*gib), nil))
	}
	s := ask("main", 1, gib, 0)
	s.Selectors = []string{`device.attributes["divvy.dev"].index == 0`}
	p := podOf(t, "a", s)
	last := name(mostNamed)
	if v := verdicts(t, l, p, "n0", last); v[0].Kind != Fits || v[1].Kind != Unknown {
		t.Fatalf("%+v", v)
	}
	l.SetNode(last, nodeOf(t, last, gpus(last, 2, 40*gib), nil))
	for i := range 3 {
		if v, err := l.Filter(p, []string{"n0", last}); !errors.Is(err, ErrPod) || !strings.Contains(err.Error(), "single GPUs apart") {
			t.Errorf("asked %d times: %+v, %v", i+1, v, err)
		}
		if l.FitsOn(p, []string{last}) {
			t.Errorf("looked %d times: it fits", i+1)
		}
		if a, err := l.Reserve(p, last); !errors.Is(err, ErrPod) {
			t.Fatalf("reserved %d times: %+v, %v", i+1, a, err)
		}
	}
	l.SetNode("n0", nil)
	a, err := l.Reserve(p, last)
	if err != nil || a.Shares[0].GPUs[0].UUID != gpuOf(last, 0) {
		t.Errorf("%+v, %v", a, err)
	}
	check(t, l)
}

// A pod has one place, whoever asks.
func TestOnePlace(t *testing.T) {
	l := newLedger(t, alloc.DefaultPolicy)
	for _, name := range []string{"n0", "n1"} {
		l.SetNode(name, nodeOf(t, name, gpus(name, 1, 40*gib), nil))
	}
	p := podOf(t, "a", ask("main", 1, gib, 0))
	l.SetPod("a", p)
	a, err := l.Reserve(p, "n0")
	if err != nil {
		t.Fatal(err)
	}
	edited := podOf(t, "a", ask("main", 1, 2*gib, 0))
	for _, c := range []struct {
		pod  *corev1.Pod
		node string
	}{{p, "n1"}, {edited, "n0"}} {
		if _, err := l.Reserve(c.pod, c.node); !errors.Is(err, ErrTaken) {
			t.Errorf("%s: %v", c.node, err)
		}
	}
	if v := verdicts(t, l, p, "n0", "n1"); v[0].Kind != Fits || v[1].Kind != Full {
		t.Errorf("%+v", v)
	}
	if scores, err := l.Prioritise(p, []string{"n1", "n0"}); err != nil || !slices.Equal(scores, []int{0, MostScore}) {
		t.Errorf("%v, %v", scores, err)
	}
	if all := l.Reservations(); len(all) != 1 || all[0].Pod != "a" || all[0].Node != "n0" || all[0].Name != "pod-a" || !all[0].Since.Equal(l.now) {
		t.Errorf("%+v", all)
	}
	// Bound elsewhere by another scheduler: what was reserved ends, and what is said there counts.
	l.SetPod("a", bound(t, p, "n1", v1alpha1.PodAssignment{Pod: "a", Shares: []v1alpha1.ShareAssigned{{
		Name: "main", Containers: []string{"main"}, Config: sharing, GPUs: []v1alpha1.GPUAssigned{{UUID: gpuOf("n1", 0), Memory: gib}},
	}}}))
	if gpu(t, l, "n0", 0).Granted != 0 || gpu(t, l, "n1", 0).Granted != gib {
		t.Errorf("%d and %d bytes", gpu(t, l, "n0", 0).Granted, gpu(t, l, "n1", 0).Granted)
	}
	if _, err := l.Reserve(p, "n0"); !errors.Is(err, ErrTaken) {
		t.Error(err)
	}
	check(t, l)
	l.SetPod(types.UID(a.Pod), nil)
	check(t, l)
}
