package replay

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/alloc"
	"github.com/divvy-gpu/divvy/internal/queue"
)

// measurer says what pods ask and hold, as queues count it.
type measurer struct {
	nodes  map[string]*alloc.Node
	models []string
	// sizes are the greatest capacities of a GPU of each model, in bytes.
	sizes map[string]uint64
}

func newMeasurer(nodes []alloc.Node) measurer {
	m := measurer{nodes: map[string]*alloc.Node{}, sizes: map[string]uint64{}}
	for i := range nodes {
		m.nodes[nodes[i].Name] = &nodes[i]
		for j := range nodes[i].GPUs {
			g := &nodes[i].GPUs[j]
			m.sizes[g.Model] = max(m.sizes[g.Model], g.Capacity)
		}
	}
	m.models = slices.Sorted(maps.Keys(m.sizes))
	return m
}

// errNoSizes says that a queue counts what the nodes of a trace do not have.
var errNoSizes = errors.New("the nodes of this trace have no GPU memory: use unit gpus or cores")

// serves reports what queues count and the trace does not have.
func (m *measurer) serves(queues []queue.Spec) error {
	sized := slices.ContainsFunc(slices.Collect(maps.Values(m.sizes)), func(size uint64) bool { return size >= 1<<20 })
	for i := range queues {
		for j := range queues[i].Resources {
			if queues[i].Resources[j].Unit == v1alpha1.UnitMemory && !sized {
				return fmt.Errorf("%w: queue %s: resource %d: unit memory: %w", ErrOptions, queues[i].Name, j, errNoSizes)
			}
		}
	}
	return nil
}

// one is a share of a GPU of a model.
func (m *measurer) one(p *QueuedPod, model string, capacity, limit uint64, whole bool, cores int) queue.Charge {
	var c queue.Charge
	switch {
	case whole:
		c = queue.Charge{GPUs: 1000, Cores: 100, Memory: int64(capacity >> 20)}
	case p.Request.Profile != "":
		part := p.Milli / int64(p.Request.Count)
		c = queue.Charge{GPUs: part, Cores: part / 10, Memory: int64(capacity>>20) * part / 1000}
	default:
		if c = queue.Share(model, limit, capacity, cores); capacity < 1<<20 { // openb, where a share is of all of the GPU
			c.Memory, c.Cores = 0, max(c.Cores, (c.GPUs+9)/10)
		}
	}
	c.Models = []string{model}
	return c
}

// asked is what a pod asks: the most of the models that it accepts.
func (m *measurer) asked(p *QueuedPod) queue.Charge {
	r := &p.Request
	c := queue.Charge{Models: m.models}
	if r.Models != "" {
		c.Models = strings.Split(string(r.Models), "|")
	}
	for _, model := range c.Models {
		size := m.sizes[model]
		one := m.one(p, model, size, min(size, r.Memory.Of(size)), r.Whole, r.Cores)
		c.GPUs, c.Cores, c.Memory = max(c.GPUs, one.GPUs), max(c.Cores, one.Cores), max(c.Memory, one.Memory)
	}
	n := int64(r.Count)
	c.GPUs, c.Cores, c.Memory = n*c.GPUs, n*c.Cores, n*c.Memory
	return c
}

// held is what a pod holds where it was placed.
func (m *measurer) held(p *QueuedPod, a alloc.Assignment) (sum queue.Charge) {
	for i := range a.Shares {
		s := &a.Shares[i]
		g := &m.nodes[a.Name].GPUs[s.GPU]
		one := m.one(p, g.Model, g.Capacity, s.Limit, s.Whole, s.Cores)
		sum.Models = one.Models
		sum.GPUs, sum.Cores, sum.Memory = sum.GPUs+one.GPUs, sum.Cores+one.Cores, sum.Memory+one.Memory
	}
	return sum
}
