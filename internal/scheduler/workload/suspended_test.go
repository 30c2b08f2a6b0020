package workload

import (
	"slices"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// A pod that is suspended uses nothing and demands what it had. It sleeps while it serves no plan, and is no victim; one that came back
// counts its time from then.
func TestSuspended(t *testing.T) {
	s := newSet(1, department("a", 2, "a"))
	p := podOf("a", "p", "", 0)
	s.runs(p)
	use := func(what string, used, demand int64, waiting int, sleepers ...string) {
		t.Helper()
		s.Settle()
		_, waits := s.Book.Counts("a")
		if got := s.use(t, "a"); got.Used != used || got.Demand != demand || waits != waiting || !slices.Equal(s.Sleepers(), sleepers) {
			t.Errorf("%s: %+v, %d wait, and %v sleep", what, got, waits, s.Sleepers())
		}
	}
	victims := func() (stay, end int) {
		all, _ := s.Candidates(viewAt(100))
		for i := range all {
			if all[i].Ending {
				end++
			} else {
				stay++
			}
		}
		return stay, end
	}
	use("it runs", 1000, 1000, 0)
	s.Agree("b/q", nil, []types.UID{p.UID}, nil)
	s.release(p.UID, true)
	s.Sleep(p.UID, true)
	use("it is to leave for others", 0, 1000, 1)
	claim := Claim{Charges: gpus(1), Pods: []types.UID{p.UID}, Away: true}
	s.SetClaim("a/p", claim)
	use("it is ordered out", 0, 1000, 1)
	if stay, end := victims(); stay != 0 || end != 1 {
		t.Errorf("while it leaves, %d may end and %d do", stay, end)
	}
	claim.Out = true
	s.SetClaim("a/p", claim)
	if stay, end := victims(); stay+end != 0 {
		t.Errorf("once it is out, %d may end and %d do", stay, end)
	}
	s.Return(p.UID)
	use("its place is somebody's", 0, 1000, 1, "a/p")
	if n := s.Suspended()["a"]; n != 1 || !s.Leaves(p.UID) || !slices.Equal(s.Asleep("a/p"), []string{"a/p"}) || !equalCharges(s.Back("a/p"), gpus(1)) {
		t.Errorf("%d are suspended; it takes %v with %v once it is back", n, s.Back("a/p"), s.Asleep("a/p"))
	}
	if refusal := s.Check("a/p", gpus(3)); refusal != nil {
		t.Errorf("its queue, which has no limit, refuses more: %v", refusal)
	}
	back := morning.Add(90 * time.Second)
	s.SetClaim("a/p", Claim{Charges: gpus(1), Pods: []types.UID{p.UID}, Back: back})
	use("it is back", 1000, 1000, 0)
	all, _ := s.Candidates(viewAt(100))
	if len(all) != 1 || !all[0].Start.Equal(back) || s.Leaves(p.UID) {
		t.Errorf("it has run since %v", all)
	}
	claim.Out = true
	s.SetClaim("a/p", claim)
	s.RemovePod(p.UID)
	use("its pod has gone", 0, 0, 0)
	s.SetClaim("a/p", Claim{})
	if len(s.Suspended())+len(s.away) != 0 {
		t.Error("it is suspended after its end")
	}
}

// Members of a gang sleep and come back together.
func TestSuspendedGang(t *testing.T) {
	s := newSet(2, department("a", 4, "a"))
	for _, name := range []string{"g1", "g2"} {
		p := podOf("a", name, "", 0)
		p.Labels["gang"] = "g"
		s.runs(p)
	}
	for _, key := range []string{"a/g1", "a/g2"} {
		c := s.claims[key].Claim
		c.Away, c.Out = true, true
		s.SetClaim(key, c)
	}
	s.Settle()
	ids := s.Sleepers()
	if len(ids) != 1 || len(s.Asleep(ids[0])) != 2 || s.use(t, "a").Used != 0 || s.use(t, "a").Demand != 2000 {
		t.Errorf("%v sleep, and the queue has %+v", ids, s.use(t, "a"))
	}
}
