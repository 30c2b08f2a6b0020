package reclaim

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/queue"
)

// victims names who ends.
func victims(s *scene) string {
	p, refusal := Find(s.inv, s.book, &s.demander, s.candidates, s.options)
	if refusal != nil {
		return "refused: " + refusal.Text
	}
	var all []string
	for _, v := range p.Victims {
		all = append(all, fmt.Sprintf("%s%v", s.candidates[v.Candidate].ID[5:], v.Members))
	}
	return strings.Join(all, " ")
}

// eight is one node with eight GPUs, of which queue b holds all in pods of so many, and a asks for members of so many.
func eight(t *testing.T, each, members, gpus int, change func(i int, c *Candidate)) *scene {
	t.Helper()
	return large(t, 1, each, members, gpus, change)
}

func TestWhoEnds(t *testing.T) {
	nobody := "refused: no queue is above its entitlement with pods that may end"
	nowhere := "refused: the demander fits nowhere even if all end that may"
	for _, c := range []struct {
		name          string
		each, m, gpus int
		change        func(i int, c *Candidate)
		want          string
	}{
		{"as few as are needed", 1, 2, 1, nil, "0[0] 1[0]"},
		{"no more than are guaranteed", 1, 5, 1, nil, "refused: its queue would be above its entitlement, and no pod there has a lower priority"},
		{"one large one rather than two", 2, 2, 1, nil, "0[0]"},
		{"opportunistic first", 1, 1, 1, func(i int, c *Candidate) {
			if i == 5 {
				c.Quota = v1alpha1.QuotaOpportunistic
			}
		}, "5[0]"},
		{"then the lowest priority", 1, 1, 1, func(i int, c *Candidate) { c.Priority = int32(9 - i) }, "7[0]"},
		{"then the newest", 1, 1, 1, func(i int, c *Candidate) { c.Start = c.Start.Add(time.Duration(i%5) * time.Second) }, "4[0]"},
		{"none that is guaranteed", 1, 1, 1, func(i int, c *Candidate) {
			if i != 6 {
				c.Quota = v1alpha1.QuotaGuaranteed
			}
		}, "6[0]"},
		{"none for whom places were taken back", 1, 1, 1, func(_ int, c *Candidate) { c.TookFrom = []queue.Node{0, 1, 2, 3} }, nobody},
		{"none that ends already is a victim", 1, 2, 1, func(i int, c *Candidate) { c.Ending = i > 5 }, ""},
		{"none where nothing helps", 1, 1, 4, func(i int, c *Candidate) {
			if i > 2 {
				c.Quota = v1alpha1.QuotaGuaranteed
			}
		}, nowhere},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := victims(eight(t, c.each, c.m, c.gpus, c.change)); got != c.want {
				t.Errorf("%s, want %s", got, c.want)
			}
		})
	}
}

// A gang loses members above its minimum first, and ends as a whole where that is not enough.
func TestGangsEndWholeOrInSurplus(t *testing.T) {
	gangOf := func(minimum, asks int) *scene {
		s := eight(t, 1, asks, 1, nil)
		first := &s.candidates[0]
		first.Minimum = minimum
		for i := 1; i < 8; i++ {
			first.Members = append(first.Members, s.candidates[i].Members...)
			s.book.End(s.candidates[i].ID)
		}
		s.candidates = s.candidates[:1]
		var held []queue.Charge
		for range 8 {
			held = append(held, chargeOf(1, 4)...)
		}
		s.book.Hold(first.ID, held)
		return s
	}
	for want, s := range map[string]*scene{
		"0[0 1]":             gangOf(4, 2),
		"0[0 1 2 3]":         gangOf(4, 4),
		"0[0 1 2 3 4 5 6 7]": gangOf(6, 4),
	} {
		if got := victims(s); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
}

func TestMinimumRunTime(t *testing.T) {
	s := eight(t, 1, 1, 1, nil)
	run := v1alpha1.Duration(2 * time.Hour)
	s.book.SetQueues([]queue.Spec{
		{Name: "a", QueueSpec: v1alpha1.QueueSpec{Resources: []v1alpha1.QueueShare{{Guaranteed: v1alpha1.Written("4")}}}},
		{Name: "b", QueueSpec: v1alpha1.QueueSpec{Resources: []v1alpha1.QueueShare{{Guaranteed: v1alpha1.Written("4")}}, MinimumRunTime: &run}},
	})
	if got := victims(s); !strings.HasPrefix(got, "refused") {
		t.Error(got)
	}
	s.options.Now = now.Add(time.Hour)
	if got := victims(s); got != "0[0]" {
		t.Error(got)
	}
}

// A member above the minimum of its gang has a minimum run time of its own; where the gang ends as a whole it has none.
func TestMinimumRunTimeOfMembers(t *testing.T) {
	for want, minimum := range map[string]int{"0[1]": 1, "0[0 1]": 2} {
		s := eight(t, 1, 1, 1, nil)
		run := v1alpha1.Duration(30 * time.Minute)
		s.book.SetQueues([]queue.Spec{
			{Name: "a", QueueSpec: v1alpha1.QueueSpec{Resources: []v1alpha1.QueueShare{{Guaranteed: v1alpha1.Written("4")}}}},
			{Name: "b", QueueSpec: v1alpha1.QueueSpec{Resources: []v1alpha1.QueueShare{{Guaranteed: v1alpha1.Written("4")}}, MinimumRunTime: &run}},
		})
		first := &s.candidates[0]
		first.Members, first.Minimum = append(first.Members, s.candidates[1].Members...), minimum
		first.Members[0].Start = now
		for i := 1; i < 8; i++ {
			s.candidates[i].Quota = v1alpha1.QuotaGuaranteed
		}
		s.candidates = slices.Delete(s.candidates, 1, 2)
		if got := victims(s); got != want {
			t.Errorf("of a gang with minimum %d there end %s, want %s", minimum, got, want)
		}
	}
}

// Inside a queue a pod with a higher priority takes from lower ones, also where the limit alone is in its way.
func TestPriorityInsideAQueue(t *testing.T) {
	s := eight(t, 1, 1, 1, func(i int, c *Candidate) { c.Priority = int32(i) })
	s.demander.Queue, s.demander.Priority = s.candidates[0].Queue, 3
	if got := victims(s); got != "0[0]" {
		t.Error(got)
	}
	s.demander.Priority = 0
	if got := victims(s); !strings.HasPrefix(got, "refused") {
		t.Error(got)
	}
	s.demander.Priority = 3
	for _, m := range s.candidates[7].Members {
		s.inv.Unreserve(m.Assignments[0])
	}
	s.book.End(s.candidates[7].ID)
	s.candidates = s.candidates[:7]
	if got := victims(s); got != "" {
		t.Error(got)
	}
	s.book.SetQueues([]queue.Spec{{Name: "b", QueueSpec: v1alpha1.QueueSpec{Resources: []v1alpha1.QueueShare{{Limit: v1alpha1.Written("7")}}}}})
	s.demander.Queue, _ = s.book.Tree().Find("b")
	for i := range s.candidates {
		s.candidates[i].Queue = s.demander.Queue
	}
	if got := victims(s); got != "0[0]" {
		t.Error(got)
	}
}

func TestDisruptionBudgets(t *testing.T) {
	s := eight(t, 1, 3, 1, func(i int, c *Candidate) {
		if i < 6 {
			c.Members[0].Budgets = []int{0}
		}
	})
	s.options.Budgets = []int{1}
	if got := victims(s); got != "0[0] 6[0] 7[0]" {
		t.Error(got)
	}
	s.options.Budgets = []int{0}
	if got := victims(s); !strings.HasPrefix(got, "refused") {
		t.Error(got)
	}
}
