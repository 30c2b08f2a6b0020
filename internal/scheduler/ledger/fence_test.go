package ledger

import (
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	dra "github.com/divvy-gpu/divvy/internal/agent/dra/pool"
	"github.com/divvy-gpu/divvy/internal/alloc"
)

// Where two schedulers gave the same, the GPU takes no more until one of the claims has gone.
func TestContradictionsFence(t *testing.T) {
	m := hopper(t)
	gpus := gpusOf(0, 4)
	gpus[3] = divided(m, gpus[3], 0, true)
	shared := dra.Name(uuidOf(0, 1), dra.Shared)
	for name, c := range map[string]struct {
		device   string
		a, b     []string
		deviceB  string
		contrary bool
	}{
		"memory":           {device: shared, a: []string{"50Gi", "10", "1"}, b: []string{"31Gi", "10", "1"}, contrary: true},
		"just memory":      {device: shared, a: []string{"50Gi", "10", "1"}, b: []string{"30Gi", "10", "1"}},
		"cores":            {device: shared, a: []string{"1Gi", "60", "1"}, b: []string{"1Gi", "41", "1"}, contrary: true},
		"slots":            {device: shared, a: []string{"1Gi", "1", "60"}, b: []string{"1Gi", "1", "5"}, contrary: true},
		"just slots":       {device: shared, a: []string{"1Gi", "1", "60"}, b: []string{"1Gi", "1", "4"}},
		"an instance":      {device: dra.InstanceName(uuidOf(0, 3), "1g.10gb", 2), contrary: true},
		"instances":        {device: dra.InstanceName(uuidOf(0, 3), "1g.10gb", 2), deviceB: dra.InstanceName(uuidOf(0, 3), "2g.20gb", 2), contrary: true},
		"instances beside": {device: dra.InstanceName(uuidOf(0, 3), "1g.10gb", 2), deviceB: dra.InstanceName(uuidOf(0, 3), "2g.20gb", 4)},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLedger(t)
			l.SetNode("a", machine("64", "256Gi"))
			l.SetPool("a", slicesOf(t, "a", gpus))
			if c.deviceB == "" {
				c.deviceB = c.device
			}
			l.SetClaim("ns/a", claimOf(result("a", c.device, c.a...)))
			if all := l.Fences(); len(all) > 0 {
				t.Fatalf("one claim fences %v", all)
			}
			l.SetClaim("ns/b", claimOf(result("a", c.deviceB, c.b...)))
			l.SetClaim("ns/other", share(0, 0))
			all := l.Fences()
			if !c.contrary {
				if len(all) > 0 {
					t.Errorf("fences %v", all)
				}
				return
			}
			uuid, _, _ := dra.Parse(c.device)
			if len(all) != 1 || all[0].Node != "a" || all[0].UUID != uuid || all[0].Reason == "" || !slices.Equal(all[0].Claims, []string{"ns/a", "ns/b"}) {
				t.Fatalf("fences %+v", all)
			}
			for key, want := range map[string]bool{"ns/a": true, "ns/b": true, "ns/other": false, "ns/none": false} {
				if f, is := l.FenceOf(key); is != want || is && !reflect.DeepEqual(f, all[0]) {
					t.Errorf("the fence of %s is %+v, %v", key, f, is)
				}
			}
			a, err := alloc.Search(l.Inventory(), alloc.Request{Count: 1, Among: alloc.Names(uuid), Profile: map[bool]string{true: "1g.10gb"}[strings.Contains(c.device, "-mig-")]})
			if err == nil {
				t.Errorf("a fenced GPU is given: %+v", a)
			}
			l.SetClaim("ns/a", nil)
			if all := l.Fences(); len(all) > 0 {
				t.Errorf("one claim has gone, and fences are %v", all)
			}
		})
	}
}

// A place that was chosen before its GPU was fenced, or taken by another's claim, cannot be reserved.
func TestPlacesThatHaveGone(t *testing.T) {
	request := alloc.Request{Count: 1, Whole: true, Among: alloc.Names(uuidOf(0, 0))}
	for name, change := range map[string]func(*Ledger){
		"fence": func(l *Ledger) { l.Fence("node0", uuidOf(0, 0), "somebody looks at it") },
		"claim": func(l *Ledger) { l.SetClaim("ns/other", share(0, 0)) },
		"nothing": func(l *Ledger) {
			l.SetClaim("ns/other", claimOf(result("node0", dra.Name(uuidOf(0, 0), dra.Shared), "0", "0", "1")))
		},
		"node":       func(l *Ledger) { l.SetNode("node0", nil) },
		"pool":       func(l *Ledger) { l.SetPool("node0", slicesOf(t, "node0", gpusOf(0, 2)[1:])) },
		"same claim": func(l *Ledger) { l.SetClaim("ns/claim", share(0, 1)) },
		"another": func(l *Ledger) {
			reserve(t, l, "ns/claim", alloc.Request{Count: 1, Whole: true, Among: alloc.Names(uuidOf(0, 1))})
		},
	} {
		l := newLedger(t)
		l.SetNode("node0", machine("64", "256Gi"))
		l.SetPool("node0", slicesOf(t, "node0", gpusOf(0, 2)))
		a, err := alloc.Search(l.Inventory(), request)
		if err != nil {
			t.Fatal(err)
		}
		for range 2 {
			if err := l.Reserve("ns/claim", a); err != nil {
				t.Fatalf("%s: %v", name, err)
			}
		}
		l.Unreserve("ns/claim")
		change(l)
		before := l.comparables()
		if err := l.Reserve("ns/claim", a); !errors.Is(err, ErrTaken) {
			t.Errorf("%s: the place was reserved: %v", name, err)
		}
		if after := l.comparables(); !slices.Equal(before, after) {
			t.Errorf("%s: a refused reservation changed\n%v into\n%v", name, before, after)
		}
	}
}

// A caller's fence outlives node and pool, and what cannot be served is told.
func TestFencesOfCallersAndGPUsLeftOut(t *testing.T) {
	l := newLedger(t)
	l.Fence("a", uuidOf(0, 1), "its agent has other grants")
	l.SetPool("a", slicesOf(t, "a", gpusOf(0, 18)))
	l.SetPool("b", slicesOf(t, "a", gpusOf(0, 1)))
	l.SetNode("a", machine("64", "256Gi"))
	want := []Fence{
		{Node: "a", UUID: uuidOf(0, 0), Reason: "two pools of its node have it"},
		{Node: "a", UUID: uuidOf(0, 1), Reason: "its agent has other grants"},
		{Node: "a", UUID: uuidOf(0, 16), Reason: "its node has more than 16 GPUs"},
		{Node: "a", UUID: uuidOf(0, 17), Reason: "its node has more than 16 GPUs"},
	}
	if got := l.Fences(); !reflect.DeepEqual(got, want) {
		t.Errorf("fences are\n%+v, want\n%+v", got, want)
	}
	l.Fence("a", uuidOf(0, 1), "")
	l.SetPool("b", nil)
	l.SetPool("a", slicesOf(t, "a", gpusOf(0, 16)))
	if got := l.Fences(); len(got) > 0 {
		t.Errorf("nothing is wrong any more, and fences are %+v", got)
	}
}

// Nothing is held for a claim that is taken back, and the end of one that was allocated is told to the policy.
func TestTracesOfReservations(t *testing.T) {
	decide := func(meddle func(*Ledger, int)) (all []string) {
		l := newLedger(t)
		for _, name := range []string{"node0", "node1", "node2"} {
			l.SetNode(name, machine("64", "256Gi"))
			l.SetPool(name, slicesOf(t, name, gpusOf(int(name[4]-'0'), 4)))
		}
		for i := range 60 {
			meddle(l, i)
			a, err := alloc.Search(l.Inventory(), alloc.Request{Count: 1 + i%2, Memory: v1alpha1.Bytes(uint64(5+i%9) * gib)})
			if err != nil {
				break
			}
			all = append(all, a.Name, a.Shares[0].UUID)
			key := "ns/" + a.Name + a.Shares[0].UUID + string(rune('a'+i))
			if err := l.Reserve(key, a); err != nil {
				t.Fatal(err)
			}
			l.SetClaim(key, allocated(t, l, a))
		}
		return all
	}
	want := decide(func(*Ledger, int) {})
	got := decide(func(l *Ledger, i int) {
		a, err := alloc.Search(l.Inventory(), alloc.Request{Count: 2, Memory: v1alpha1.Bytes(uint64(5+i%7) * gib)})
		if err != nil {
			return
		}
		if err := l.Reserve("ns/trial", a); err != nil {
			t.Fatal(err)
		}
		l.Unreserve("ns/trial")
	})
	if !slices.Equal(want, got) || len(want) < 20 {
		t.Errorf("places were\n%v, and with trials\n%v", want, got)
	}
}
