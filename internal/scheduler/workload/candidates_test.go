package workload

import (
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/alloc"
	"github.com/divvy-gpu/divvy/internal/queue/reclaim"
)

// viewAt is a view of a cluster with one node, so many seconds after the first pod.
func viewAt(second int) View {
	return View{
		Now: morning.Add(time.Duration(second) * time.Second), Held: func(string) []alloc.Assignment { return []alloc.Assignment{{Name: "n"}} },
		Budgets: func(*corev1.Pod) []int { return nil },
	}
}

// runs has a pod run on a node with a claim of its own for one GPU.
func (s *Set) runs(p *corev1.Pod) {
	p.Spec.NodeName = "n"
	s.SetPod(p)
	s.SetClaim(p.Namespace+"/"+p.Name, Claim{Charges: gpus(1), Pods: []types.UID{p.UID}})
}

// A pod that its owner deletes with a longer grace than its queue gives is no pod that ends: others would wait for it as long as it likes.
func TestLongGrace(t *testing.T) {
	for _, c := range []struct {
		until  int // seconds
		ending bool
	}{{120, true}, {3600, false}} {
		s := newSet(1, department("a", 1, "a"))
		p := podOf("a", "p", "", 0)
		at := metav1.NewTime(morning.Add(time.Duration(c.until) * time.Second))
		p.DeletionTimestamp = &at
		s.runs(p)
		all, _ := s.Candidates(viewAt(100))
		if len(all) != 1 || all[0].Ending != c.ending {
			t.Errorf("a pod that has %d seconds left is %+v", c.until-100, all)
		}
		s.release(p.UID, true)
		if all, _ = s.Candidates(viewAt(100)); len(all) != 1 || !all[0].Ending {
			t.Errorf("once it ends for others it is %+v", all)
		}
	}
}

// A gang begins its minimum run time with its first member, and members above its minimum each have their own: members that come and go
// keep nobody's loan.
func TestStarts(t *testing.T) {
	s := newSet(1, department("a", 1, "a"))
	for i, second := range []int{0, 0, 500} {
		p := podOf("a", fmt.Sprint("p", i), "", second)
		p.Labels["gang"] = "g"
		s.runs(p)
	}
	all, _ := s.Candidates(viewAt(510))
	if len(all) != 1 || !all[0].Start.Equal(morning) {
		t.Fatalf("a gang whose last member is young is %+v", all)
	}
	if m := all[0].Members; !m[0].Start.Equal(morning) || !m[2].Start.Equal(morning.Add(500*time.Second)) {
		t.Errorf("its members began at %v and %v", m[0].Start, m[2].Start)
	}
	shares, joins := podOf("a", "shares", "", 0), podOf("a", "shares-too", "", 505)
	joins.Spec.NodeName = "n"
	s.SetPod(joins)
	s.runs(shares)
	s.SetClaim("a/shares", Claim{Charges: gpus(1), Pods: []types.UID{shares.UID, joins.UID}})
	all, _ = s.Candidates(viewAt(510))
	if len(all) != 2 || !all[0].Start.Equal(morning) {
		t.Errorf("sharers of which one is young are %+v", all)
	}
}

// A workload that took back keeps it from those who gave it only as long as its own queue wants no more than then.
func TestTookAndGrew(t *testing.T) {
	s := newSet(1, department("a", 4, "a"), department("b", 4, "b"))
	for i := range 8 {
		s.runs(podOf("a", fmt.Sprint("p", i), "", i))
	}
	d := podOf("b", "d", "", 9)
	s.SetPod(d)
	s.Ask(d.UID, gpus(4))
	ends := []types.UID{"a/p0", "a/p1", "a/p2", "a/p3"}
	if refusal := s.Agree(s.ID(d.UID), gpus(4), ends, ends); refusal != nil {
		t.Fatal(refusal)
	}
	s.Drop(s.ID(d.UID))
	for _, uid := range ends {
		s.RemovePod(uid)
		s.SetClaim(string(uid), Claim{})
	}
	d.Spec.NodeName = "n"
	s.SetPod(d)
	s.SetClaim("b/d", Claim{Charges: gpus(4), Pods: []types.UID{d.UID}})
	of := func() *reclaim.Candidate {
		all, _ := s.Candidates(viewAt(60))
		for i := range all {
			if all[i].ID == s.ID(d.UID) {
				return &all[i]
			}
		}
		t.Fatal("the demander is no candidate")
		return nil
	}
	if len(of().TookFrom) != 1 {
		t.Error("what came back to b may be taken at once")
	}
	for i := range 4 { // a lies idle, and b fills what is a's with pods that never end
		s.RemovePod(types.UID(fmt.Sprint("a/p", 4+i)))
		s.SetClaim(fmt.Sprint("a/p", 4+i), Claim{})
		p := podOf("b", fmt.Sprint("for-ever-", i), "", 50)
		p.Labels[v1alpha1.QuotaLabel] = string(v1alpha1.QuotaGuaranteed)
		s.runs(p)
	}
	if len(of().TookFrom) != 0 {
		t.Error("b uses twice what it is entitled to, and none of it may be taken back")
	}
}

// A gang whose members disagree about their quota is as protected, and counts, as one that borrows.
func TestMixedQuota(t *testing.T) {
	for _, oldest := range []v1alpha1.Quota{v1alpha1.QuotaGuaranteed, v1alpha1.QuotaOpportunistic} {
		s := newSet(1, department("a", 1, "a"))
		for i, quota := range []v1alpha1.Quota{oldest, v1alpha1.QuotaBorrowing} {
			p := podOf("a", fmt.Sprint("p", i), "", i)
			p.Labels["gang"], p.Labels[v1alpha1.QuotaLabel] = "g", string(quota)
			s.runs(p)
		}
		all, _ := s.Candidates(viewAt(60))
		if len(all) != 1 || all[0].Quota != v1alpha1.QuotaBorrowing || s.use(t, "a").Used != 2000 {
			t.Errorf("a gang whose oldest member is %s is %+v, and counts %d", oldest, all, s.use(t, "a").Used)
		}
	}
}
