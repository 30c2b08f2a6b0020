package workload

import (
	"cmp"
	"slices"
	"strings"

	"github.com/divvy-gpu/divvy/internal/alloc"
	"github.com/divvy-gpu/divvy/internal/queue"
)

// Held is what assignments count in queues. A share of a GPU that is not there counts with its own amounts alone.
func Held(inv *alloc.Inventory, assignments ...alloc.Assignment) []queue.Charge {
	var all []queue.Charge
	for i := range assignments {
		at, there := inv.Position(assignments[i].Name)
		var node alloc.Node
		if there {
			node = inv.Node(at)
		}
		for k := range assignments[i].Shares {
			share := &assignments[i].Shares[k]
			if gpu := find(&node, share); gpu != nil {
				all = append(all, chargeOf(gpu.Part(share)))
			} else {
				all = append(all, queue.Charge{Cores: int64(share.Cores), Memory: int64(share.Limit >> 20), GPUs: int64(share.Cores) * 10})
			}
		}
	}
	return merged(all)
}

func find(n *alloc.Node, s *alloc.Share) *alloc.GPU {
	if s.GPU >= 0 && s.GPU < len(n.GPUs) && n.GPUs[s.GPU].UUID == s.UUID {
		return &n.GPUs[s.GPU]
	}
	if i := slices.IndexFunc(n.GPUs, func(g alloc.GPU) bool { return g.UUID == s.UUID }); i >= 0 {
		return &n.GPUs[i]
	}
	return nil
}

func chargeOf(p alloc.Part) queue.Charge { return queue.Share(p.Model, p.Memory, p.Capacity, p.Cores) }

// Asked is what a pod that waits counts in queues: for each of its requests, the most that it could take of any GPU that
// serves. Of several alternatives the first counts for which there are GPUs.
func Asked(inv *alloc.Inventory, pod *alloc.Pod) []queue.Charge {
	var all []queue.Charge
	for _, one := range wants(inv, []*alloc.Pod{pod}) {
		all = append(all, times(most(one.parts), one.count))
	}
	return merged(all)
}

// Ways are what pods would count in queues on GPUs of one model each, for all models on which a request of them can be served.
func Ways(inv *alloc.Inventory, pods ...*alloc.Pod) (ways [][]queue.Charge) {
	all := wants(inv, pods)
	seen := map[string]bool{}
	for _, one := range all {
		for i := range one.parts {
			model := one.parts[i].Model
			if seen[model] {
				continue
			}
			seen[model] = true
			ways = append(ways, on(all, model))
		}
	}
	return ways
}

// on is what wants count where as many as can are served by one model.
func on(all []want, model string) []queue.Charge {
	var sum []queue.Charge
	for _, one := range all {
		parts := slices.DeleteFunc(slices.Clone(one.parts), func(p alloc.Part) bool { return p.Model != model })
		if len(parts) == 0 {
			parts = one.parts
		}
		sum = append(sum, times(least(parts), one.count))
	}
	return merged(sum)
}

// want is what one request can take, and how often.
type want struct {
	parts []alloc.Part
	count int64
}

func wants(inv *alloc.Inventory, pods []*alloc.Pod) (all []want) {
	for _, pod := range pods {
		for _, alternatives := range pod.Claims {
			for i := range alternatives {
				if parts := inv.Parts(&alternatives[i]); len(parts) > 0 {
					all = append(all, want{parts, int64(alternatives[i].Count)})
					break
				}
			}
		}
	}
	return all
}

// least is the smallest charge of any of the parts.
func least(parts []alloc.Part) queue.Charge {
	sum := chargeOf(parts[0])
	for i := range parts[1:] {
		one := chargeOf(parts[1+i])
		sum.GPUs, sum.Cores, sum.Memory = min(sum.GPUs, one.GPUs), min(sum.Cores, one.Cores), min(sum.Memory, one.Memory)
		if !slices.Contains(sum.Models, one.Models[0]) {
			sum.Models = append(sum.Models, one.Models[0])
		}
	}
	return sum
}

// most is the charge of the largest parts, of any of the models.
func most(parts []alloc.Part) queue.Charge {
	var sum queue.Charge
	for i := range parts {
		one := chargeOf(parts[i])
		sum.GPUs, sum.Cores, sum.Memory = max(sum.GPUs, one.GPUs), max(sum.Cores, one.Cores), max(sum.Memory, one.Memory)
		if !slices.Contains(sum.Models, parts[i].Model) {
			sum.Models = append(sum.Models, parts[i].Model)
		}
	}
	return sum
}

func times(c queue.Charge, n int64) queue.Charge {
	c.GPUs, c.Cores, c.Memory = n*c.GPUs, n*c.Cores, n*c.Memory
	return c
}

// merged sums charges of the same models.
func merged(all []queue.Charge) []queue.Charge {
	if len(all) < 2 {
		return all
	}
	sums := make([]queue.Charge, 0, 1)
	for i := range all {
		at := slices.IndexFunc(sums, func(c queue.Charge) bool { return slices.Equal(c.Models, all[i].Models) })
		if at < 0 {
			sums = append(sums, all[i])
			continue
		}
		sums[at].GPUs += all[i].GPUs
		sums[at].Cores += all[i].Cores
		sums[at].Memory += all[i].Memory
	}
	slices.SortFunc(sums, compareCharges)
	return sums
}

func compareCharges(a, b queue.Charge) int {
	return cmp.Or(strings.Compare(strings.Join(a.Models, "|"), strings.Join(b.Models, "|")), cmp.Compare(a.GPUs, b.GPUs))
}

func equalCharges(a, b []queue.Charge) bool {
	return slices.EqualFunc(a, b, func(x, y queue.Charge) bool {
		return x.GPUs == y.GPUs && x.Cores == y.Cores && x.Memory == y.Memory && slices.Equal(x.Models, y.Models)
	})
}

// Capacity is what an inventory has of healthy GPUs, by model, without nodes that take no more pods.
func Capacity(inv *alloc.Inventory, closed map[string]bool) []queue.Charge {
	var all []queue.Charge
	for at := range inv.Len() {
		n := inv.Node(at)
		if closed[n.Name] {
			continue
		}
		for i := range n.GPUs {
			if g := &n.GPUs[i]; g.Fault == "" {
				all = add(all, queue.Charge{Models: []string{g.Model}, GPUs: 1000, Cores: 100, Memory: int64(g.Capacity >> 20)})
			}
		}
	}
	slices.SortFunc(all, compareCharges)
	return all
}

func add(all []queue.Charge, c queue.Charge) []queue.Charge {
	for i := range all {
		if slices.Equal(all[i].Models, c.Models) {
			all[i].GPUs, all[i].Cores, all[i].Memory = all[i].GPUs+c.GPUs, all[i].Cores+c.Cores, all[i].Memory+c.Memory
			return all
		}
	}
	return append(all, c)
}
