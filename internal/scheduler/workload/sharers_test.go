package workload

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/alloc"
)

// Pods that share a claim end together: neither a second pod nor its quota keeps what the claim has.
func TestSharers(t *testing.T) {
	s := newSet(1, department("a", 1, "a"))
	borrows, protects, alone := podOf("a", "borrows", "", 0), podOf("a", "protects", "", 1), podOf("a", "alone", "", 2)
	protects.Labels[v1alpha1.QuotaLabel] = string(v1alpha1.QuotaGuaranteed)
	for _, p := range []*corev1.Pod{borrows, protects, alone} {
		p.Spec.NodeName = "n"
		s.SetPod(p)
	}
	s.SetClaim("a/shared", Claim{Charges: gpus(2), Pods: []types.UID{borrows.UID, protects.UID}})
	s.SetClaim("a/own", Claim{Charges: gpus(1), Pods: []types.UID{alone.UID}})
	view := View{
		Now: morning.Add(time.Hour), Held: func(claim string) []alloc.Assignment {
			return []alloc.Assignment{{Name: "n", Memory: uint64(len(claim))}}
		},
		Budgets: func(*corev1.Pod) []int { return nil },
	}
	all, pods := s.Candidates(view)
	if len(all) != 2 || len(pods[1]) != 2 {
		t.Fatalf("%d candidates: %+v", len(all), all)
	}
	together := &all[1]
	if together.Quota != v1alpha1.QuotaBorrowing || together.Minimum != 2 || len(together.Members) != 2 {
		t.Errorf("sharers are %+v", together)
	}
	if sum := together.Members[0].Charge[0] + together.Members[1].Charge[0]; sum != 2000 {
		t.Errorf("their claim counts %d", sum)
	}
	if len(together.Members[0].Assignments) != 1 || len(together.Members[1].Assignments) != 0 {
		t.Errorf("what they share is held %v", together.Members)
	}
	s.SetClaim("a/own", Claim{Charges: gpus(1), Pods: []types.UID{alone.UID, protects.UID}})
	if all, pods = s.Candidates(view); len(all) != 1 || len(pods[0]) != 3 {
		t.Errorf("linked by two claims they are %d candidates of %v pods", len(all), pods)
	}
}

// Neither a member that waits nor a second node keeps a gang whose pods share a claim from ending for others.
func TestSharersOfAGang(t *testing.T) {
	s := newSet(3, department("a", 1, "a"))
	for i, node := range []string{"n", "n", "m", ""} {
		p := podOf("a", fmt.Sprint("p", i), "", i)
		p.Labels["gang"], p.Spec.NodeName = "g", node
		s.SetPod(p)
	}
	s.SetClaim("a/shared", Claim{Charges: gpus(2), Pods: []types.UID{"a/p0", "a/p1"}})
	s.SetClaim("a/own", Claim{Charges: gpus(1), Pods: []types.UID{"a/p2"}})
	nodes := map[string]string{"a/shared": "n", "a/own": "m"}
	all, pods := s.Candidates(View{
		Now: morning.Add(time.Hour), Held: func(claim string) []alloc.Assignment { return []alloc.Assignment{{Name: nodes[claim]}} },
		Budgets: func(*corev1.Pod) []int { return nil },
	})
	if len(all) != 1 || len(pods[0]) != 3 || all[0].Minimum != 3 {
		t.Fatalf("%d candidates: %+v", len(all), all)
	}
	for j, pod := range pods[0] {
		for _, a := range all[0].Members[j].Assignments {
			if a.Name != pod.Spec.NodeName {
				t.Errorf("pod %s of node %s has something of node %s", pod.Name, pod.Spec.NodeName, a.Name)
			}
		}
	}
	if got := []int64{all[0].Members[0].Charge[0], all[0].Members[1].Charge[0], all[0].Members[2].Charge[0]}; !slices.Equal(got, []int64{2000, 0, 1000}) {
		t.Errorf("the members count %v", got)
	}
}

// A pod cannot take over what another got by another quota or queue: it would count otherwise once that one has ended.
func TestMayShare(t *testing.T) {
	s := newSet(1, department("a", 4, "a"), department("b", 4, "a", "b"))
	first := podOf("a", "first", "", 0)
	first.Labels[v1alpha1.QuotaLabel] = string(v1alpha1.QuotaOpportunistic)
	s.SetPod(first)
	s.SetClaim("a/c", Claim{Charges: gpus(4), Pods: []types.UID{first.UID}})
	home := s.queueFor(first)
	for i, c := range []struct {
		queue string
		quota v1alpha1.Quota
		may   bool
	}{
		{"", v1alpha1.QuotaOpportunistic, true},
		{home, v1alpha1.QuotaOpportunistic, true},
		{"b", v1alpha1.QuotaOpportunistic, false},
		{"", "", false},
		{"", v1alpha1.QuotaGuaranteed, false},
	} {
		p := podOf("a", fmt.Sprint("p", i), c.queue, 1)
		p.Labels[v1alpha1.QuotaLabel] = string(c.quota)
		s.SetPod(p)
		if err := s.MayShare(p, "a/c"); (err == nil) != c.may || err != nil && !errors.Is(err, ErrQueue) {
			t.Errorf("a pod of queue %q with quota %q: %v", c.queue, c.quota, err)
		}
	}
	if err := s.MayShare(first, "a/c"); err != nil {
		t.Errorf("the pod that has it: %v", err)
	}
}
