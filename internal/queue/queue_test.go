package queue

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
)

func p(v int64) *int64 { return &v }

// share is of all GPUs.
func share(guaranteed int64, limit, lending, weight *int64) v1alpha1.QueueSpec {
	of := func(n *int64) v1alpha1.Amount {
		if n == nil {
			return v1alpha1.Amount{}
		}
		return v1alpha1.AmountOf(*n, v1alpha1.UnitGPUs)
	}
	return v1alpha1.QueueSpec{Resources: []v1alpha1.QueueShare{{Guaranteed: of(&guaranteed), Limit: of(limit), LendingLimit: of(lending), Weight: weight}}}
}

func named(name, parent string, s v1alpha1.QueueSpec) Spec {
	s.Parent = parent
	return Spec{Name: name, QueueSpec: s}
}

func gpus(n int64) []Charge { return []Charge{{Models: []string{"NVIDIA H100 80GB HBM3"}, GPUs: n}} }

// bookOf has queues, a capacity, and for each name a workload that asks so much.
func bookOf(t *testing.T, capacity int64, specs []Spec, asks map[string]int64) *Book {
	t.Helper()
	b := NewBook()
	b.SetQueues(specs)
	b.SetCapacity(gpus(capacity))
	for name, n := range asks {
		b.Arrive(Workload{ID: name, Queue: name, Asks: gpus(n)})
	}
	return b
}

func entitled(t *testing.T, b *Book, want map[string]int64) {
	t.Helper()
	for name, n := range want {
		if all := b.Standing(name); len(all) != 1 || all[0].Entitled != n {
			t.Errorf("queue %s is %+v, want %d entitled", name, all, n)
		}
	}
}

func TestEntitlements(t *testing.T) {
	for _, c := range []struct {
		name       string
		specs      []Spec
		asks, want map[string]int64
	}{
		{"who asks gets the guarantee", []Spec{named("a", "", share(4000, nil, nil, nil)), named("b", "", share(4000, nil, nil, nil))},
			map[string]int64{"a": 8000, "b": 4000}, map[string]int64{"a": 4000, "b": 4000}},
		{"idle guarantees are lent", []Spec{named("a", "", share(4000, nil, nil, nil)), named("b", "", share(4000, nil, nil, nil))},
			map[string]int64{"a": 8000, "b": 1000}, map[string]int64{"a": 7000, "b": 1000}},
		{"up to the lending limit", []Spec{named("a", "", share(4000, nil, nil, nil)), named("b", "", share(4000, nil, p(1000), nil))},
			map[string]int64{"a": 8000}, map[string]int64{"a": 5000, "b": 0}},
		{"up to the limit", []Spec{named("a", "", share(4000, p(6000), nil, nil)), named("b", "", share(4000, nil, nil, nil))},
			map[string]int64{"a": 8000}, map[string]int64{"a": 6000}},
		{"by weight, to one unit", []Spec{named("a", "", share(0, nil, nil, p(1))), named("b", "", share(0, nil, nil, p(2))), named("c", "", share(0, nil, nil, p(4)))},
			map[string]int64{"a": 9000, "b": 9000, "c": 9000}, map[string]int64{"a": 1143, "b": 2286, "c": 4571}},
		{"of equal fractions the first by name", []Spec{named("a", "", share(0, nil, nil, p(1))), named("b", "", share(0, nil, nil, p(1))), named("c", "", share(0, nil, nil, p(1)))},
			map[string]int64{"a": 9000, "b": 9000, "c": 9000}, map[string]int64{"a": 2667, "b": 2667, "c": 2666}},
		{"without weight what is left", []Spec{named("a", "", share(0, nil, nil, p(0))), named("b", "", share(0, nil, nil, p(1)))},
			map[string]int64{"a": 9000, "b": 6000}, map[string]int64{"a": 2000, "b": 6000}},
		{"a weight that is left out is the guarantee in GPUs", []Spec{named("a", "", share(2000, nil, nil, nil)), named("b", "", share(0, nil, nil, p(2)))},
			map[string]int64{"a": 9000, "b": 9000}, map[string]int64{"a": 5000, "b": 3000}},
		{"guarantees above the capacity are scaled", []Spec{named("a", "", share(12000, nil, nil, nil)), named("b", "", share(4000, nil, nil, nil))},
			map[string]int64{"a": 16000, "b": 16000}, map[string]int64{"a": 6000, "b": 2000}},
		{"parts divide what the whole has", []Spec{named("up", "", share(4000, nil, nil, nil)), named("x", "up", share(3000, nil, nil, nil)), named("y", "up", share(1000, nil, nil, nil)), named("b", "", share(4000, nil, nil, nil))},
			map[string]int64{"x": 9000, "y": 9000, "b": 9000}, map[string]int64{"up": 4000, "x": 3000, "y": 1000, "b": 4000}},
		{"what a part withholds its sibling gets from outside", []Spec{named("up", "", share(4000, nil, nil, nil)), named("x", "up", share(4000, nil, p(0), nil)), named("y", "up", share(0, nil, nil, nil)), named("b", "", share(4000, nil, nil, nil))},
			map[string]int64{"y": 9000}, map[string]int64{"up": 8000, "x": 0, "y": 4000, "b": 0}},
	} {
		t.Run(c.name, func(t *testing.T) { entitled(t, bookOf(t, 8000, c.specs, c.asks), c.want) })
	}
}

// Q1 and Q2: limits of all ancestors hold in the step in which something starts; what is guaranteed is never refused.
func TestStart(t *testing.T) {
	b := bookOf(t, 8000, []Spec{
		named("up", "", share(4000, p(5000), nil, nil)), named("x", "up", share(4000, nil, nil, nil)), named("y", "up", share(0, p(2000), nil, nil)),
		named("keep", "", share(4000, nil, p(0), nil)),
	}, nil)
	start := func(id, queue string, quota v1alpha1.Quota, n int64, want Bound) {
		t.Helper()
		b.Arrive(Workload{ID: id, Queue: queue, Quota: quota, Asks: gpus(n)})
		err := b.Start(id, gpus(n))
		var refusal *Refusal
		if errors.As(err, &refusal) && refusal.Bound == want {
			b.End(id)
			return
		}
		if err != nil || want != "" {
			t.Errorf("%s starts: %v, want %q", id, err, want)
		}
	}
	start("y1", "y", v1alpha1.QuotaBorrowing, 3000, BoundLimit)
	start("y2", "y", v1alpha1.QuotaGuaranteed, 500, BoundGuarantee)
	start("y3", "y", v1alpha1.QuotaBorrowing, 2000, "")
	start("x1", "x", v1alpha1.QuotaGuaranteed, 2000, "")
	start("x2", "x", v1alpha1.QuotaBorrowing, 2000, BoundLimit) // of up
	start("x3", "x", v1alpha1.QuotaOpportunistic, 4000, "")
	start("o1", "", v1alpha1.QuotaBorrowing, 500, BoundLending)
	start("k1", "keep", v1alpha1.QuotaBorrowing, 4000, "")
	b.Hold("x1", nil)
	start("o2", "", v1alpha1.QuotaBorrowing, 2500, BoundLending)
	start("o3", "", v1alpha1.QuotaBorrowing, 2000, "")
	start("x4", "x", v1alpha1.QuotaBorrowing, 2000, "") // guaranteed to up, whoever has it
	if err := b.Start("nobody", gpus(1)); err == nil {
		t.Error("a workload starts that there is not")
	}
}

// Guaranteed quota is for GPUs that a queue names: elsewhere nothing is guaranteed, whoever says so.
func TestNothingIsGuaranteed(t *testing.T) {
	b := NewBook()
	b.SetQueues([]Spec{named("a", "", share(2000, nil, nil, nil)), {Name: "h", QueueSpec: v1alpha1.QueueSpec{
		Resources: []v1alpha1.QueueShare{{Model: "B200", Guaranteed: v1alpha1.Written("2")}},
	}}})
	b.SetCapacity(gpus(8000))
	for queue, want := range map[string]Bound{"a": "", "": BoundNothing, "h": BoundNothing} {
		b.Arrive(Workload{ID: "w", Queue: queue, Quota: v1alpha1.QuotaGuaranteed, Asks: gpus(1000)})
		var got Bound
		if refusal := b.Check("w", gpus(1000)); refusal != nil {
			got = refusal.Bound
		}
		if got != want {
			t.Errorf("in queue %q: %q, want %q", queue, got, want)
		}
	}
}

func TestConditions(t *testing.T) {
	negative := share(-1, nil, nil, nil)
	b := bookOf(t, 8000, []Spec{
		named("a", "b", share(1000, nil, nil, nil)), named("b", "c", share(0, nil, nil, nil)), named("c", "b", share(0, nil, nil, nil)),
		named("lost", "nowhere", share(4000, nil, nil, nil)), named("bad", "", negative), named("huge", "", share(1<<50, nil, nil, nil)),
		named("ok", "", share(10000, nil, nil, nil)), named("part", "ok", share(9000, nil, nil, nil)),
		{Name: "tpu", QueueSpec: v1alpha1.QueueSpec{Resources: []v1alpha1.QueueShare{{Model: "A100", Guaranteed: v1alpha1.Written("1m")}}, Namespaces: []string{"n"}}},
		{Name: "zoo", QueueSpec: v1alpha1.QueueSpec{Namespaces: []string{"n"}}},
	}, map[string]int64{"part": 9000, "a": 1000, "lost": 1000})
	var got []string
	for _, c := range b.Conditions() {
		got = append(got, c.Queue+" "+string(c.Type))
	}
	want := "bad Invalid, b Cycle, c Cycle, huge Invalid, lost NoParent, ok Scaled, part Scaled, tpu NoGPUs, zoo NamespaceTaken"
	slices.Sort(got)
	wants := strings.Split(want, ", ")
	slices.Sort(wants)
	if !slices.Equal(got, wants) {
		t.Errorf("%v, want %v", got, wants)
	}
	entitled(t, b, map[string]int64{"ok": 8000, "part": 8000})
	for _, id := range []string{"a", "lost"} {
		if err := b.Start(id, gpus(1000)); err == nil {
			t.Errorf("%s starts", id)
		}
		b.Hold(id, gpus(1000)) // what runs stays counted
	}
	if used := b.Used(Top, 0); used != 2000 {
		t.Errorf("%d used", used)
	}
	if err := b.Start("part", gpus(6000)); err != nil {
		t.Error(err)
	}
}

func TestOrder(t *testing.T) {
	b := bookOf(t, 8000, []Spec{named("a", "", share(4000, nil, nil, nil)), named("b", "", share(4000, nil, nil, nil))}, nil)
	at := time.Unix(1000, 0)
	add := func(id, queue string, quota v1alpha1.Quota, priority int32, age int) {
		b.Arrive(Workload{ID: id, Queue: queue, Quota: quota, Priority: priority, Since: at.Add(-time.Duration(age) * time.Second), Asks: gpus(1000)})
	}
	add("a-run", "a", "", 0, 0)
	add("b-run", "b", "", 0, 0)
	b.Hold("a-run", gpus(2000))
	b.Hold("b-run", gpus(1000))
	add("a1", "a", "", 9, 0)
	add("a2", "a", "", 9, 1)
	add("a3", "a", v1alpha1.QuotaOpportunistic, 10, 1)
	add("b1", "b", "", 1, 0)
	add("b2", "b", "", 2, 0)
	if got := fmt.Sprint(slices.Collect(b.Order())); got != "[b2 b1 a2 a1 a3]" {
		t.Error(got)
	}
	if ahead, all, ok := b.Place("a1"); ahead != 2 || all != 3 || !ok {
		t.Error(ahead, all, ok)
	}
	b.Hold("b1", gpus(3000))
	if got := fmt.Sprint(slices.Collect(b.Order())); got != "[a2 a1 b2 a3]" {
		t.Error(got)
	}
}

// Refusals and conditions have amounts as users write them.
func TestAmountsInWords(t *testing.T) {
	b := bookOf(t, 8000, []Spec{
		named("a", "", share(4000, p(4500), nil, nil)), named("big", "", share(12000, nil, p(0), nil)),
		{Name: "m", QueueSpec: v1alpha1.QueueSpec{Resources: []v1alpha1.QueueShare{{Unit: v1alpha1.UnitMemory, Limit: v1alpha1.Written("40Gi")}}}},
	}, map[string]int64{"a": 5000})
	b.Arrive(Workload{ID: "g", Queue: "a", Quota: v1alpha1.QuotaGuaranteed, Asks: gpus(2500)})
	b.Arrive(Workload{ID: "o"})
	b.Arrive(Workload{ID: "m", Queue: "m"})
	for id, want := range map[string]string{
		"a": "queue a is limited to 4.5 GPUs: it uses 0, and 5 more are asked for",
		"g": "queue a has 2 GPUs guaranteed: its pods with guaranteed quota use 0, and 2.5 more are asked for",
		"o": "5 more GPUs are asked for outside all queues, and only 2 may be lent",
		"m": "queue m is limited to 40Gi of GPU memory: it uses 0, and 48Gi more are asked for",
	} {
		held := Charge{GPUs: 5000, Memory: 48 << 10}
		if id == "g" {
			held.GPUs = 2500
		}
		if err := b.Start(id, []Charge{held}); err == nil || err.Error() != want {
			t.Errorf("%s: %v", id, err)
		}
	}
	want := "queue a: Scaled: 2 instead of 4 GPUs are guaranteed in effect: there are 8 for it and its siblings"
	if all := b.Conditions(); len(all) != 2 || all[0].String() != want {
		t.Error(all)
	}
}

// One GPU is one in each sentence, also of a model whose name has the word.
func TestRefusalOfOne(t *testing.T) {
	all := Dimension{Unit: v1alpha1.UnitGPUs}
	for want, r := range map[string]Refusal{
		"queue a is limited to 1 GPU: it uses 1, and 1 more is asked for":                              {Bound: BoundLimit, Queue: "a", Dimension: all, Used: 1000, Asked: 1000, Most: 1000},
		"queue a is limited to 1 GPU (GPUs): it uses 0.5, and 1.5 more are asked for":                  {Bound: BoundLimit, Queue: "a", Dimension: Dimension{Unit: v1alpha1.UnitGPUs, Model: "GPUs"}, Used: 500, Asked: 1500, Most: 1000},
		"queue a has 1 GPU guaranteed: its pods with guaranteed quota use 0, and 2 more are asked for": {Bound: BoundGuarantee, Queue: "a", Dimension: all, Asked: 2000, Most: 1000},
		"1 more GPU is asked for outside all queues, and only 0 may be lent":                           {Bound: BoundLending, Dimension: all, Asked: 1000},
		"1 more GPU than queue vision has guaranteed is asked for, and only 0 may be lent":             {Bound: BoundLending, Queue: "vision", Dimension: all, Asked: 1000},
		"1 more percent of GPU time are asked for outside all queues, and only 0 may be lent":          {Bound: BoundLending, Dimension: Dimension{Unit: v1alpha1.UnitCores}, Asked: 1},
	} {
		if got := r.Error(); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

// A pod that accepts several models is counted in the dimension of one of them when it has it.
func TestDimensions(t *testing.T) {
	tree := NewTree([]Spec{{Name: "q", QueueSpec: v1alpha1.QueueSpec{Resources: []v1alpha1.QueueShare{
		{Guaranteed: v1alpha1.Written("1")}, {Model: "H100", Guaranteed: v1alpha1.Written("1")}, {Model: "A100", Unit: v1alpha1.UnitMemory}, {Unit: v1alpha1.UnitCores},
	}}}})
	if got := fmt.Sprint(tree.Dimensions()); got != "[percent of GPU time GPUs of GPU memory (A100) GPUs (H100)]" {
		t.Error(got)
	}
	both := Charge{Models: []string{"NVIDIA H100 80GB HBM3", "NVIDIA A100-SXM4-80GB"}, GPUs: 500, Cores: 50, Memory: 7}
	if got := fmt.Sprint(tree.Vector([]Charge{both})); got != "[50 500 0 0]" {
		t.Error(got)
	}
	one := Share("NVIDIA A100-SXM4-80GB", 10<<30+1, 80<<30, 20)
	if got := fmt.Sprint(tree.Vector([]Charge{one, one})); got != "[40 400 20482 0]" {
		t.Error(got)
	}
}

func TestParting(t *testing.T) {
	tree := NewTree([]Spec{named("a", "", v1alpha1.QueueSpec{}), named("a1", "a", v1alpha1.QueueSpec{}), named("a2", "a", v1alpha1.QueueSpec{}), named("a21", "a2", v1alpha1.QueueSpec{}), named("b", "", v1alpha1.QueueSpec{})})
	for _, c := range [][4]string{{"a1", "a21", "a1", "a2"}, {"a21", "b", "a", "b"}, {"a1", "a1", "a1", "a1"}, {"a", "a1", "a", "a1"}} {
		x, _ := tree.Find(c[0])
		y, _ := tree.Find(c[1])
		if ofX, ofY := tree.Parting(x, y); tree.Name(ofX) != c[2] || tree.Name(ofY) != c[3] {
			t.Errorf("%v: %s and %s", c, tree.Name(ofX), tree.Name(ofY))
		}
	}
}
