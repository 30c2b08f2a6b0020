package explanation

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/overview"
)

// Bounds of asking an agent for its metrics.
const (
	agentTime   = 10 * time.Second
	mostMetrics = 32 << 20 // bytes, which 10,000 shares take
)

// agentPods selects the agents in Divvy's namespace.
const agentPods = "app.kubernetes.io/name=divvy,app.kubernetes.io/component=agent"

// Use adds to a node what its agent tells of use: of GPUs, and of shares, also of those of which the cluster does not
// know. It asks the API server for the metrics of the agent's pod in Divvy's namespace. The error says which right or
// address is missing; the node then is as it was.
func (r Reader) Use(ctx context.Context, n *overview.Node, divvys string) error {
	ctx, cancel := context.WithTimeout(ctx, agentTime)
	defer cancel()
	pod, port, err := r.agentOf(ctx, n.Name, divvys)
	if err != nil {
		return err
	}
	body, err := r.Client.CoreV1().RESTClient().Get().Namespace(divvys).Resource("pods").Name(fmt.Sprintf("%s:%d", pod, port)).
		SubResource("proxy").Suffix("metrics").Stream(ctx)
	if err != nil {
		return useError(err, divvys, pod, port)
	}
	defer func() { _ = body.Close() }() // what was read is judged by what it says
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(io.LimitReader(body, mostMetrics))
	if err != nil {
		return fmt.Errorf("read the metrics of pod %s: %w", pod, err)
	}
	if success := families["divvy_agent_listing_success"]; success == nil || len(success.GetMetric()) == 0 {
		return fmt.Errorf("port %d of pod %s has no metrics of an agent", port, pod)
	}
	addUse(n, families)
	return nil
}

// agentOf finds the pod of a node's agent, and the port of its metrics.
func (r Reader) agentOf(ctx context.Context, node, divvys string) (pod string, port int32, err error) {
	list, err := r.Client.CoreV1().Pods(divvys).List(ctx, metav1.ListOptions{LabelSelector: agentPods, FieldSelector: "spec.nodeName=" + node})
	switch {
	case apierrors.IsForbidden(err):
		return "", 0, fmt.Errorf("you may not list pods in namespace %s, where the agents are", divvys)
	case err != nil:
		return "", 0, fmt.Errorf("find the agent of node %s: %w", node, err)
	}
	for i := range list.Items {
		p := &list.Items[i]
		if p.Status.Phase != corev1.PodRunning || p.DeletionTimestamp != nil {
			continue
		}
		for c := range p.Spec.Containers {
			for _, named := range p.Spec.Containers[c].Ports {
				if named.Name == "metrics" {
					return p.Name, named.ContainerPort, nil
				}
			}
		}
	}
	return "", 0, fmt.Errorf("no agent runs on the node in namespace %s; --namespace names another", divvys)
}

// useError says which right or address is missing.
func useError(err error, divvys, pod string, port int32) error {
	var status apierrors.APIStatus
	switch {
	case apierrors.IsForbidden(err):
		return fmt.Errorf("you may not get pods/proxy in namespace %s, by which the API server asks the agent", divvys)
	case errors.As(err, &status) && status.Status().Code >= 500:
		return fmt.Errorf("the API server does not reach port %d of pod %s: agents listen on 127.0.0.1 unless the chart's agent.metrics.host is 0.0.0.0 (%s)", port, pod, oneLine(err.Error()))
	}
	return fmt.Errorf("ask the agent in pod %s: %w", pod, err)
}

// figure is one figure of an agent's, with its labels.
type figure struct {
	labels map[string]string
	value  float64
}

// figuresOf are those of a metric that are numbers of use.
func figuresOf(families map[string]*dto.MetricFamily, name string) []figure {
	var all []figure
	for _, m := range families[name].GetMetric() {
		f := figure{labels: map[string]string{}, value: m.GetGauge().GetValue() + m.GetCounter().GetValue() + m.GetUntyped().GetValue()}
		if math.IsNaN(f.value) || math.IsInf(f.value, 0) || f.value < 0 {
			continue
		}
		for _, l := range m.GetLabel() {
			f.labels[l.GetName()] = oneLine(l.GetValue())
		}
		all = append(all, f)
	}
	return all
}

// bytesIn is a figure as bytes.
func bytesIn(f float64) uint64 {
	const most = 1 << 62
	return uint64(min(f, most))
}

// addUse adds an agent's figures to its node.
func addUse(n *overview.Node, families map[string]*dto.MetricFamily) {
	gpus := map[string]*overview.GPU{}
	for i := range n.GPUs {
		gpus[strings.ToLower(n.GPUs[i].UUID)] = &n.GPUs[i]
	}
	of := func(metric string, set func(*overview.GPU, float64)) {
		for _, f := range figuresOf(families, metric) {
			if g := gpus[strings.ToLower(f.labels["UUID"])]; g != nil && g.Profile == "" {
				set(g, f.value)
			}
		}
	}
	of("divvy_gpu_memory_used_bytes", func(g *overview.GPU, v float64) { used := bytesIn(v); g.Used = &used })
	of("divvy_gpu_utilization_ratio", func(g *overview.GPU, v float64) { n := int(math.Round(min(v, 1) * 100)); g.Utilisation = &n })
	of("divvy_gpu_temperature_celsius", func(g *overview.GPU, v float64) { n := int(min(v, math.MaxInt16)); g.Temperature = &n })
	of("divvy_gpu_power_watts", func(g *overview.GPU, v float64) { n := bytesIn(v * 1000); g.Milliwatts = &n })
	for _, f := range figuresOf(families, "divvy_instance_memory_used_bytes") {
		if g := gpus[strings.ToLower(f.labels["instance_uuid"])]; g != nil && g.Profile != "" {
			used := bytesIn(f.value)
			g.Used = &used
		}
	}
	addShares(n, gpus, families)
}

// tenantKey tells an agent's tenants on one GPU apart.
type tenantKey struct{ tenant, uuid string }

// told is what an agent tells of a tenant's share of one GPU.
type told struct {
	overview.Share
	claim, uuid string
}

// addShares adds what the agent tells of shares. Those that no claim and no pod has are added whole: commands, and
// containers that have replicas.
func addShares(n *overview.Node, gpus map[string]*overview.GPU, families map[string]*dto.MetricFamily) {
	shares := map[tenantKey]*told{}
	var order []tenantKey
	for _, f := range figuresOf(families, "divvy_share_info") {
		l := f.labels
		key := tenantKey{l["tenant"], strings.ToLower(l["UUID"])}
		t := &told{claim: l["claim"], uuid: key.uuid, Share: overview.Share{
			Name: l["share"], User: l["user"], Namespace: l["namespace"], Container: l["container"],
			Policy: v1alpha1.Policy(l["policy"]), Class: v1alpha1.Class(l["class"]),
		}}
		if l["pod"] != "" {
			t.Pods = []string{l["pod"]}
		}
		if shares[key] == nil {
			order = append(order, key)
		}
		shares[key] = t
	}
	of := func(metric string, set func(*told, float64)) {
		for _, f := range figuresOf(families, metric) {
			if t := shares[tenantKey{f.labels["tenant"], strings.ToLower(f.labels["UUID"])}]; t != nil {
				set(t, f.value)
			}
		}
	}
	for _, f := range figuresOf(families, "divvy_share_instance_info") {
		if t := shares[tenantKey{f.labels["tenant"], strings.ToLower(f.labels["UUID"])}]; t != nil {
			t.uuid = strings.ToLower(f.labels["instance_uuid"])
		}
	}
	of("divvy_share_memory_limit_bytes", func(t *told, v float64) { t.Memory = bytesIn(v) })
	of("divvy_share_memory_used_bytes", func(t *told, v float64) { used := bytesIn(v); t.Used = &used })
	of("divvy_share_cores", func(t *told, v float64) { t.Cores = int(min(v, v1alpha1.MaxCores)) })
	of("divvy_share_refused_allocations_total", func(t *told, v float64) { t.Refused = bytesIn(v) })
	of("divvy_share_held_back_seconds_total", func(t *told, v float64) {
		held := time.Duration(min(v, math.MaxInt32) * float64(time.Second))
		t.HeldBack = &held
	})
	of("divvy_share_memory_excess", func(t *told, v float64) {
		if v > 0 {
			t.Notes = append(t.Notes, "it has more memory than it was granted or tells")
		}
	})
	of("divvy_share_misuse", func(t *told, v float64) {
		if v > 0 {
			t.Notes = append(t.Notes, "it uses GPU time otherwise than it may or says")
		}
	})
	for _, key := range order {
		if g := gpus[shares[key].uuid]; g != nil {
			shares[key].addTo(g)
		}
	}
	sortGPUs(n.GPUs)
}

// addTo adds what the agent tells to the share of which the cluster knows, or as another one.
func (t *told) addTo(g *overview.GPU) {
	for i := range g.Shares {
		s := &g.Shares[i]
		claimed := t.claim != "" && s.Namespace == t.Namespace && s.Name == t.claim
		assigned := t.claim == "" && s.Container != "" && s.Namespace == t.Namespace && s.Container == t.Container && len(s.Pods) == 1 && len(t.Pods) == 1 && s.Pods[0] == t.Pods[0]
		if !claimed && !assigned {
			continue
		}
		join(s, &t.Share)
		return
	}
	g.Count++
	g.Granted, g.Cores = g.Granted+t.Memory, g.Cores+t.Cores
	g.Shares = append(g.Shares, t.Share)
}

// join adds what an agent tells of one of the tenants that a claim has become: the containers of a pod may have one each.
func join(s, t *overview.Share) {
	if t.Used != nil {
		sum := *t.Used
		if s.Used != nil {
			sum += *s.Used
		}
		s.Used = &sum
	}
	if t.HeldBack != nil && (s.HeldBack == nil || *t.HeldBack > *s.HeldBack) {
		s.HeldBack = t.HeldBack
	}
	s.Refused += t.Refused
	s.Policy, s.Class = cmp.Or(s.Policy, t.Policy), cmp.Or(s.Class, t.Class)
	s.Notes = append(s.Notes, t.Notes...)
}
