package main

import (
	"context"
	"fmt"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/alloc"
	"github.com/divvy-gpu/divvy/internal/simgpu"
)

const (
	// machineName is the machine that every node is, but for those of a trace: eight GPUs.
	machineName = "h100x8"
	// slotsOfGPU is how many slots an agent counts for each GPU.
	slotsOfGPU = 64
	// contextBytes is what a process takes of a GPU before it allocates anything.
	contextBytes = 512 << 20
)

// machine is a node: what its agent says of its GPUs, and what else it has.
type machine struct {
	name   string
	gpus   []v1alpha1.NodeGPU
	cpu    *resource.Quantity
	memory *resource.Quantity
}

// fleetOf are n nodes alike.
func fleetOf(n int) ([]machine, error) {
	model, err := simgpu.Load(machineName)
	if err != nil {
		return nil, err
	}
	fleet := make([]machine, n)
	for i := range fleet {
		fleet[i] = machine{name: fmt.Sprintf("node-%04d", i), cpu: resource.NewQuantity(128, resource.DecimalSI), memory: resource.NewQuantity(1<<40, resource.BinarySI)}
		for k := range model.GPUs {
			fleet[i].gpus = append(fleet[i].gpus, v1alpha1.NodeGPU{
				UUID: uuid(i, k), Index: k, Model: model.GPU.Name, Memory: uint64(model.GPU.Memory - model.GPU.Reserved),
				ContextBytes: contextBytes, NUMANode: k * 2 / len(model.GPUs),
			})
		}
	}
	return fleet, nil
}

// uuid names a GPU: no GPU of the fleet is two nodes'.
func uuid(node, gpu int) string {
	return fmt.Sprintf("GPU-%08x-%04x-4333-8444-555555555555", node, gpu)
}

// traceFleet are the nodes of a trace. Their GPUs have the size of which parts in thousandths are whole MiB.
func traceFleet(nodes []alloc.Node) []machine {
	fleet := make([]machine, len(nodes))
	for i := range nodes {
		n := &nodes[i]
		fleet[i] = machine{
			name: strings.ToLower(n.Name),
			cpu:  resource.NewMilliQuantity(n.CPU, resource.DecimalSI), memory: resource.NewQuantity(int64(n.Memory), resource.BinarySI),
		}
		for k := range n.GPUs {
			fleet[i].gpus = append(fleet[i].gpus, v1alpha1.NodeGPU{UUID: uuid(i, k), Index: k, Model: n.GPUs[k].Model, Memory: traceGPU, NUMANode: -1})
		}
	}
	return fleet
}

// node is the machine as an object: ready, and nobody will say otherwise.
func (m *machine) node() (*corev1.Node, error) {
	amounts := corev1.ResourceList{
		corev1.ResourceCPU: *m.cpu, corev1.ResourceMemory: *m.memory, corev1.ResourcePods: resource.MustParse("1000"),
		v1alpha1.SlotResource: *resource.NewQuantity(int64(len(m.gpus)*slotsOfGPU), resource.DecimalSI),
	}
	n := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: m.name, Labels: map[string]string{corev1.LabelHostname: m.name, v1alpha1.NodeLabel: ""}},
		Status: corev1.NodeStatus{
			Capacity: amounts, Allocatable: amounts,
			Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue, LastHeartbeatTime: metav1.Now()}},
		},
	}
	if len(m.gpus) == 0 {
		return n, nil
	}
	text, err := v1alpha1.NodeGPUs{GPUs: m.gpus}.Text()
	if err != nil {
		return nil, err
	}
	held, err := v1alpha1.NodeHeld{}.Text()
	n.Annotations = map[string]string{v1alpha1.GPUsAnnotation: text, v1alpha1.HeldAnnotation: held}
	return n, err
}

// writers is how many requests are made side by side.
const writers = 16

// each calls do for the numbers below n, several at a time, until all are done or one fails.
func each(ctx context.Context, n int, do func(ctx context.Context, i int) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	numbers := make(chan int)
	var group sync.WaitGroup
	for range writers {
		group.Go(func() {
			for i := range numbers {
				if err := do(ctx, i); err != nil {
					cancel(err)
				}
			}
		})
	}
	for i := 0; i < n && ctx.Err() == nil; i++ {
		select {
		case numbers <- i:
		case <-ctx.Done():
		}
	}
	close(numbers)
	group.Wait()
	return context.Cause(ctx)
}
