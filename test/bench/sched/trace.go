package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/agent/dra/pool"
	"github.com/divvy-gpu/divvy/internal/alloc"
	"github.com/divvy-gpu/divvy/internal/alloc/replay"
	"github.com/divvy-gpu/divvy/test/bench/measurement"
)

const (
	realTrace = "sched.openb"
	// traceGPU is the memory of a GPU whose size the trace does not tell: what a pod asks in thousandths are whole MiB.
	traceGPU = 1000 << 20
	// traceBurst is how many pods are offered before those are settled: they arrive in the trace's order, but for these.
	traceBurst = 64
)

// measureTrace lets the pods of the default trace arrive at a real API server, until the demand is all of the GPUs, and
// tells how much of them is allocated then.
func measureTrace(ctx context.Context, o options) (rows []measurement.Row, err error) {
	var allocated []float64
	seeds := 3
	if o.Quick {
		seeds = 1
	}
	for seed := range seeds {
		percent, err := o.arrive(ctx, int64(42+seed))
		if err != nil {
			return nil, err
		}
		allocated = append(allocated, percent)
	}
	return []measurement.Row{target.More(realTrace, "", "% allocated at 100 %", 95.9, allocated, "seeds 42 to 44")}, nil
}

func readTrace(root string) (*replay.Trace, error) {
	t := &replay.Trace{}
	nodes := filepath.Join(root, "testdata", "openb", "openb_node_list_gpu_node.csv.gz")
	file, err := os.Open(nodes)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	if t.Nodes, err = replay.ReadNodes(nodes, file); err != nil {
		return nil, err
	}
	pods := filepath.Join(root, "testdata", "openb", "openb_pod_list_default.csv.gz")
	arrivals, err := os.Open(pods)
	if err != nil {
		return nil, err
	}
	defer arrivals.Close()
	t.Pods, err = replay.ReadPods(pods, arrivals, t.Nodes)
	return t, err
}

func (o options) arrive(ctx context.Context, seed int64) (percent float64, err error) {
	trace, err := readTrace(o.root)
	if err != nil {
		return 0, err
	}
	pods, nodes, err := trace.Arrivals(seed, 100)
	if err != nil {
		return 0, err
	}
	b, err := openIdle(ctx, o, len(nodes))
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, b.Stop()) }()
	if err := b.publishTrace(ctx, nodes); err != nil {
		return 0, err
	}
	if err := b.StartManager(ctx, "resourceclaim-controller"); err != nil {
		return 0, err
	}
	if err := b.startOurs(ctx); err != nil {
		return 0, err
	}
	demand := int64(0)
	for from := 0; from < len(pods); from += traceBurst {
		burst := pods[from:min(from+traceBurst, len(pods))]
		for i := range burst {
			demand += burst[i].Milli
		}
		if err := b.arriveBurst(ctx, from, burst); err != nil {
			return 0, err
		}
		b.Say("%d pods have arrived", from+len(burst))
		if demand >= int64(trace.GPUs())*1000 {
			break
		}
	}
	if err := b.check(ctx); err != nil {
		return 0, err
	}
	return b.allocatedOf(ctx, trace.GPUs())
}

// arriveBurst makes pods and waits until each is bound or says why it waits. Those that wait are removed, as in a replay.
func (b *bench) arriveBurst(ctx context.Context, from int, pods []replay.Pod) error {
	kinds := make([]kind, len(pods))
	for i := range pods {
		var err error
		if kinds[i], err = traceKind(fmt.Sprintf("trace-%05d", from+i), &pods[i].Request); err != nil {
			return err
		}
	}
	o, err := b.round(ctx, 1, roundLimit, func(bound, waiting int) bool { return bound+waiting == len(pods) }, kinds...)
	if err != nil {
		return err
	}
	if o.rest > 0 {
		return fmt.Errorf("wait for the pods of the trace: %d are neither bound nor refused", o.rest)
	}
	if o.waiting == 0 {
		return nil
	}
	now := int64(0)
	return b.client.CoreV1().Pods(namespace).DeleteCollection(ctx, metav1.DeleteOptions{GracePeriodSeconds: &now},
		metav1.ListOptions{FieldSelector: "spec.nodeName=", LabelSelector: roundLabel + "=" + strconv.Itoa(b.rounds)})
}

// traceKind asks for what a pod of the trace asks.
func traceKind(name string, r *alloc.Request) (kind, error) {
	k := kind{name: name, scheduler: ours, requests: corev1.ResourceList{
		corev1.ResourceCPU:    *resource.NewMilliQuantity(r.CPU, resource.DecimalSI),
		corev1.ResourceMemory: *resource.NewQuantity(int64(r.HostMemory), resource.BinarySI),
	}}
	if r.Count == 0 {
		return k, nil
	}
	limits := map[corev1.ResourceName]string{v1alpha1.ResourceGPU: strconv.Itoa(r.Count)}
	if !r.Whole {
		// The trace knows one amount for a GPU's memory and time, and the replay takes it for memory.
		part := r.Memory.Of(1000)
		limits[v1alpha1.ResourceMemory] = strconv.FormatUint(part, 10) + "Mi"
	}
	asked, err := namedPods(name, limits)
	if err != nil {
		return k, err
	}
	k.claim = asked.claim
	if r.Models != "" {
		k.annotations = map[string]string{v1alpha1.ModelsAnnotation: strings.ReplaceAll(string(r.Models), "|", ",")}
	}
	return k, nil
}

// publishTrace makes the trace's nodes and what their agents would publish.
func (b *bench) publishTrace(ctx context.Context, nodes []alloc.Node) error {
	return each(ctx, len(nodes), func(ctx context.Context, i int) error {
		n := &nodes[i]
		made := node(i)
		made.Name, made.Labels[corev1.LabelHostname] = strings.ToLower(n.Name), strings.ToLower(n.Name)
		made.Status.Allocatable[corev1.ResourceCPU] = *resource.NewMilliQuantity(n.CPU, resource.DecimalSI)
		made.Status.Allocatable[corev1.ResourceMemory] = *resource.NewQuantity(int64(n.Memory), resource.BinarySI)
		made.Status.Capacity = made.Status.Allocatable
		if _, err := b.client.CoreV1().Nodes().Create(ctx, made, metav1.CreateOptions{}); err != nil {
			return err
		}
		var gpus []pool.GPU
		for k := range n.GPUs {
			gpus = append(gpus, pool.GPU{
				UUID:  fmt.Sprintf("GPU-%08x-%04x-4333-8444-555555555555", i, k),
				Index: k, Model: n.GPUs[k].Model, Memory: traceGPU, DriverVersion: "580.65.06", CUDA: 13000,
			})
		}
		if len(gpus) == 0 {
			return nil
		}
		resources, err := pool.Resources(made.Name, gpus)
		if err != nil {
			return err
		}
		for _, published := range resources.Pools {
			for k, slice := range published.Slices {
				one := sliceOf(v1alpha1.Driver, i, k, slice.Devices)
				one.Name, one.Spec.NodeName, one.Spec.Pool.Name = made.Name+"-"+strconv.Itoa(k), &made.Name, made.Name
				one.Spec.Pool.ResourceSliceCount = int64(len(published.Slices))
				if _, err := b.client.ResourceV1().ResourceSlices().Create(ctx, one, metav1.CreateOptions{}); err != nil {
					return err
				}
			}
		}
		return nil
	})
}

// allocatedOf is how much of so many GPUs claims have, in percent.
func (b *bench) allocatedOf(ctx context.Context, gpus int) (float64, error) {
	list, err := b.client.ResourceV1().ResourceClaims(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return 0, fmt.Errorf("read the claims: %w", err)
	}
	sum := int64(0)
	for i := range list.Items {
		sum += given(&list.Items[i])
	}
	return float64(sum) / float64(int64(gpus)*traceGPU) * 100, nil
}

// given is the memory that a claim has, in bytes.
func given(claim *resourcev1.ResourceClaim) (sum int64) {
	if claim.Status.Allocation == nil {
		return 0
	}
	for _, result := range claim.Status.Allocation.Devices.Results {
		amount := result.ConsumedCapacity[v1alpha1.CapacityMemory]
		sum += amount.Value()
	}
	return sum
}
