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
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/alloc"
	"github.com/divvy-gpu/divvy/internal/alloc/replay"
	"github.com/divvy-gpu/divvy/test/bench/measurement"
)

const (
	realTrace = "slots.openb"
	// traceGPU is the memory of a GPU whose size the trace does not tell: what a pod asks in thousandths are whole MiB.
	traceGPU = 1000 << 20
	// traceBurst is how many pods are offered before those are settled: they arrive in the trace's order, but for these.
	traceBurst = 64
)

// measureTrace lets the pods of the default trace arrive at a real API server, until the demand is all of the GPUs, and tells how
// much of them is given then.
func measureTrace(ctx context.Context, o options) (rows []measurement.Row, err error) {
	var given []float64
	seeds, arrivals := []int64{42, 43, 44}, "seeds 42 to 44"
	switch {
	case o.seed != 0:
		seeds, arrivals = []int64{int64(o.seed)}, fmt.Sprintf("seed %d", o.seed)
	case o.Quick:
		seeds = seeds[:1]
	}
	for _, seed := range seeds {
		percent, err := o.arrive(ctx, seed)
		if err != nil {
			return nil, err
		}
		o.Say("seed %d: %.2f %% are given", seed, percent)
		given = append(given, percent)
	}
	return []measurement.Row{target.More(realTrace, "", "% given at 100 %", 95.5, given, arrivals+"; a pod that found no place is removed, as in a replay")}, nil
}

func readTrace(root string) (*replay.Trace, error) {
	t := &replay.Trace{}
	nodes := filepath.Join(root, "testdata", "openb", "openb_node_list_gpu_node.csv.gz")
	file, err := os.Open(nodes)
	if err != nil {
		return nil, fmt.Errorf("read the trace: %w", err)
	}
	defer file.Close()
	if t.Nodes, err = replay.ReadNodes(nodes, file); err != nil {
		return nil, err
	}
	pods := filepath.Join(root, "testdata", "openb", "openb_pod_list_default.csv.gz")
	arrivals, err := os.Open(pods)
	if err != nil {
		return nil, fmt.Errorf("read the trace: %w", err)
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
	c, err := open(ctx, o, traceFleet(nodes))
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, c.close()) }()
	if err := c.startBoth(ctx); err != nil {
		return 0, err
	}
	demand, refused := int64(0), 0
	for from := 0; from < len(pods); from += traceBurst {
		burst := pods[from:min(from+traceBurst, len(pods))]
		for i := range burst {
			demand += burst[i].Milli
		}
		waiting, err := c.arriveBurst(ctx, from, burst)
		if err != nil {
			return 0, err
		}
		if refused += waiting; (from/traceBurst)%8 == 0 {
			c.Say("%d pods have arrived, %d found no place", from+len(burst), refused)
		}
		if demand >= int64(trace.GPUs())*1000 || o.Quick && from >= 8*traceBurst {
			break
		}
	}
	c.record.mutex.Lock()
	defer c.record.mutex.Unlock()
	return float64(c.record.ledger.given()) / float64(trace.GPUs()*traceGPU) * 100, nil
}

// arriveBurst makes pods and waits until each is bound or says why it waits. Those that wait are removed, as in a replay.
func (c *cluster) arriveBurst(ctx context.Context, from int, pods []replay.Pod) (waiting int, err error) {
	kinds := make([]kind, len(pods))
	for i := range pods {
		if kinds[i], err = traceKind(fmt.Sprintf("trace-%05d", from+i), &pods[i].Request); err != nil {
			return 0, err
		}
	}
	o, err := c.round(ctx, true, len(pods), func(round string, i int) *corev1.Pod { return kinds[i].one(round, i) })
	if err != nil {
		return 0, err
	}
	if rest := o.all - o.bound - o.waiting; rest > 0 {
		return 0, fmt.Errorf("wait for the pods of the trace: %d are neither bound nor refused", rest)
	}
	if o.waiting == 0 {
		return 0, nil
	}
	now := int64(0)
	err = c.client.CoreV1().Pods(namespace).DeleteCollection(ctx, metav1.DeleteOptions{GracePeriodSeconds: &now},
		metav1.ListOptions{FieldSelector: "spec.nodeName=", LabelSelector: roundLabel + "=" + strconv.Itoa(c.rounds)})
	return o.waiting, err
}

// traceKind asks for what a pod of the trace asks.
func traceKind(name string, r *alloc.Request) (kind, error) {
	a := asked{requests: corev1.ResourceList{
		corev1.ResourceCPU:    *resource.NewMilliQuantity(r.CPU, resource.DecimalSI),
		corev1.ResourceMemory: *resource.NewQuantity(int64(r.HostMemory), resource.BinarySI),
	}}
	if r.Count > 0 {
		a.limits = corev1.ResourceList{v1alpha1.ResourceGPU: *resource.NewQuantity(int64(r.Count), resource.DecimalSI)}
		if !r.Whole {
			// The trace knows one amount for a GPU's memory and time, and the replay takes it for memory.
			a.limits[v1alpha1.ResourceMemory] = resource.MustParse(strconv.FormatUint(r.Memory.Of(1000), 10) + "Mi")
		}
		if r.Models != "" {
			a.annotations = map[string]string{v1alpha1.ModelsAnnotation: strings.ReplaceAll(string(r.Models), "|", ",")}
		}
	}
	return kindOf(name, a)
}
