package main

import (
	"reflect"
	"slices"
	"testing"

	"github.com/divvy-gpu/divvy/internal/alloc/replay"
)

// The benchmark reads the traces of a fresh clone, whole.
func TestTracesOfTheRepository(t *testing.T) {
	b := &bench{data: "../../../testdata/openb"}
	for name, pods := range map[string]int{
		"default": 8152, "gpushare40": 8152, "multigpu20": 8324, "cpu050": 7439, "gpuspec10": 8152,
	} {
		trace, err := b.trace(name)
		if err != nil {
			t.Error(err)
			continue
		}
		if len(trace.Nodes) != 1213 || trace.GPUs() != 6212 || len(trace.Pods) != pods {
			t.Errorf("%s: %d nodes with %d GPUs, %d pods; want 1213 with 6212, %d",
				name, len(trace.Nodes), trace.GPUs(), len(trace.Pods), pods)
		}
	}
	for _, name := range traces {
		if _, ok := published[name]; !ok {
			t.Errorf("trace %s has no published figures", name)
		}
	}
}

// The mixes are what their names say, half of them at least are held out, and each is drawn the same way every time.
func TestMixes(t *testing.T) {
	b := &bench{data: "../../../testdata/openb"}
	held := 0
	for i := range mixes {
		m := &mixes[i]
		if m.held {
			held++
		}
		trace, err := b.trace(m.from)
		if err != nil {
			t.Fatal(err)
		}
		published := sums(trace.Pods)
		pods := m.pods(trace)
		if !reflect.DeepEqual(pods, m.pods(trace)) {
			t.Errorf("%s: drawn twice, it differs", m.name)
		}
		of := sums(pods)
		if off := of.demand - published.demand; off < -100_000 || off > 100_000 {
			t.Errorf("%s: the demand is %d thousandths and was %d", m.name, of.demand, published.demand)
		}
		for what, part := range map[string][2]int64{
			"shares": {int64(m.shares), of.shares * 100 / of.demand}, "several": {int64(m.several), of.several * 100 / of.demand},
			"wishes": {int64(m.wishes), of.wishes * 100 / of.pods},
		} {
			if part[0] >= 0 && (part[1] < part[0]-3 || part[1] > part[0]+3) {
				t.Errorf("%s: %d %% %s, want %d %%", m.name, part[1], what, part[0])
			}
		}
		ordered := slices.Clone(pods)
		m.order.arrange(ordered)
		if same := reflect.DeepEqual(ordered, pods); same != (m.order == shuffled) || sums(ordered) != of {
			t.Errorf("%s: the order %d leaves the arrivals as they were: %v", m.name, m.order, same)
		}
	}
	if len(mixes) < 12 || held*2 < len(mixes) {
		t.Errorf("%d mixes, %d of them held out", len(mixes), held)
	}
}

type sum struct{ pods, demand, shares, several, wishes int64 }

func sums(pods []replay.Pod) (s sum) {
	for i := range pods {
		p := &pods[i]
		s.demand += p.Milli
		if p.Request.Count == 0 {
			continue
		}
		s.pods++
		switch groupOf(p) {
		case 0:
			s.shares += p.Milli
		case 2:
			s.several += p.Milli
		}
		if p.Request.Models != "" {
			s.wishes++
		}
	}
	return s
}
