package alloc

import (
	"math/rand/v2"
	"slices"
	"testing"
)

// The tight choices are the nodes of all choices, and for one claim in the order of policy bestfit.
func TestTightChoices(t *testing.T) {
	random := rand.New(rand.NewPCG(5, 9))
	inventory := newInventory(t, randomNodes(rand.New(rand.NewPCG(1, 1)), 30), DefaultPolicy)
	best := newInventory(t, randomNodes(rand.New(rand.NewPCG(1, 1)), 30), "bestfit")
	compared := 0
	for i := range 200 {
		p := Pod{Claims: [][]Request{{randomRequest(random)}}}
		if i%10 == 0 {
			p = randomPod(random)
		}
		r := &p.Claims[0][0]
		p.CPU, p.HostMemory, r.CPU, r.HostMemory = r.CPU, r.HostMemory, 0, 0
		if p.Validate() != nil {
			continue
		}
		of := func(choices *Choices, err error) (order []int) {
			if err != nil {
				t.Fatal(err)
			}
			for a, ok := choices.Next(); ok; a, ok = choices.Next() {
				order = append(order, a.Node)
			}
			return order
		}
		tight, want := of(inventory.TightChoices(&p, nil)), of(best.PodChoices(&p, nil))
		if _, one := p.one(); one && !slices.Equal(tight, want) {
			t.Fatalf("%+v: %v, and by bestfit %v", p, tight, want)
		}
		compared += len(tight)
		all := of(inventory.PodChoices(&p, nil))
		slices.Sort(all)
		if slices.Sort(tight); !slices.Equal(tight, all) {
			t.Fatalf("%+v: %v, and all choices are %v", p, tight, all)
		}
		miss, err := inventory.Explain(&p, nil)
		if err != nil || (miss == nil) != (len(all) > 0) {
			t.Fatalf("%d choices, and %v, %v", len(all), miss, err)
		}
		if a, ok := first(t, inventory, &p); ok {
			if inventory.Reserve(a) != nil || best.Reserve(a) != nil {
				t.Fatal("it does not fit")
			}
		}
	}
	if compared < 500 {
		t.Fatalf("only %d choices", compared)
	}
}

func first(t *testing.T, inventory *Inventory, p *Pod) (Assignment, bool) {
	t.Helper()
	choices, err := inventory.PodChoices(p, nil)
	if err != nil {
		t.Fatal(err)
	}
	return choices.Next()
}

// Whatever fits on a node together, each on GPUs of its own, Joint says that it fits; and it denies much of what does not.
func TestJoint(t *testing.T) {
	random := rand.New(rand.NewPCG(4, 4))
	inventory := newInventory(t, randomNodes(random, 40), DefaultPolicy)
	fitted, full := 0, 0
	for i := range 400 {
		var pods []*Pod
		for range 1 + random.IntN(mostJoint) {
			r := randomRequest(random)
			p := &Pod{CPU: r.CPU, HostMemory: r.HostMemory}
			if r.CPU, r.HostMemory = 0, 0; r.Count > 0 {
				p.Claims = [][]Request{{r}}
			}
			pods = append(pods, p)
		}
		joint, ok := inventory.Joint(pods)
		if !ok {
			continue
		}
		node := i % 40
		room := joint.At(node)
		only := &NodeSet{}
		only.Add(node)
		var numbers [mostJoint]int
		var trial []Assignment
		for range 8 {
			k := random.IntN(len(pods))
			choices, err := inventory.PodChoices(pods[k], only)
			if err != nil {
				t.Fatal(err)
			}
			more := numbers
			more[k]++
			a, ok := choices.Next()
			if !ok {
				if !room.Fits(more) {
					full++
				}
				continue
			}
			if !room.Fits(more) {
				t.Fatalf("%v of %+v fit on node %d, and Joint denies it", more, pods, node)
			}
			fitted++
			numbers = more
			if err := inventory.Reserve(a); err != nil {
				t.Fatal(err)
			}
			inventory.SetAside(a)
			trial = append(trial, a)
		}
		for _, a := range trial {
			inventory.PutBack(a)
			inventory.Unreserve(a)
		}
	}
	if fitted < 300 || full < 300 {
		t.Fatalf("%d fitted, %d did not", fitted, full)
	}
}
