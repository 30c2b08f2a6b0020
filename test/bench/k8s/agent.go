package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"strings"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/divvy-gpu/divvy/test/e2e/cluster"
)

// agentView is the node's agent as its metrics show it.
type agentView struct {
	pod    string
	client *http.Client
	url    string
}

func (b *bench) findAgent(ctx context.Context) (*agentView, error) {
	list, err := b.cluster.Client().CoreV1().Pods(cluster.Namespace).List(ctx, metav1.ListOptions{FieldSelector: "spec.nodeName=" + nodeName})
	if err != nil {
		return nil, fmt.Errorf("find the agent: %w", err)
	}
	node := b.cluster.Nodes[0]
	for i := range list.Items {
		if name := list.Items[i].Name; strings.HasPrefix(name, cluster.Agent) {
			return &agentView{
				pod: name, url: "http://127.0.0.1:9410/metrics",
				client: &http.Client{Transport: &http.Transport{DialContext: node.Dial}, Timeout: 30 * time.Second},
			}, nil
		}
	}
	return nil, errors.New("find the agent: no such pod on the node")
}

// restarts is an error that says why the agent was started again, nil where it was not.
func (b *bench) restarts(ctx context.Context) error {
	if b.agent == nil {
		return nil
	}
	pods := b.cluster.Client().CoreV1().Pods(cluster.Namespace)
	pod, err := pods.Get(ctx, b.agent.pod, metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("look after the agent: %w", err)
	}
	for i := range pod.Status.ContainerStatuses {
		status := &pod.Status.ContainerStatuses[i]
		ended := status.LastTerminationState.Terminated
		if status.RestartCount == 0 || ended == nil {
			continue
		}
		lines := int64(30)
		said, err := pods.GetLogs(pod.Name, &corev1.PodLogOptions{Previous: true, TailLines: &lines}).DoRaw(ctx)
		return errors.Join(err, fmt.Errorf("the agent was started again %d times; it ended with %s (%d) and said last:\n%s",
			status.RestartCount, ended.Reason, ended.ExitCode, said))
	}
	return nil
}

// figures are the metrics of one answer.
type figures map[string]*dto.MetricFamily

// read asks the agent.
func (a *agentView) read(ctx context.Context) (figures, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, a.url, http.NoBody)
	if err != nil {
		return nil, err
	}
	answer, err := a.client.Do(request)
	if err != nil {
		return nil, fmt.Errorf("read the agent's metrics: %w", err)
	}
	defer answer.Body.Close() //nolint:errcheck // only read
	if answer.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("read the agent's metrics: %s", answer.Status)
	}
	return parse(answer.Body)
}

func parse(text io.Reader) (figures, error) {
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(text)
	if err != nil {
		return nil, fmt.Errorf("read metrics: %w", err)
	}
	return families, nil
}

// value is that of a metric without labels; NaN where there is none.
func (f figures) value(name string) float64 {
	family := f[name]
	if family == nil || len(family.GetMetric()) != 1 {
		return math.NaN()
	}
	m := family.GetMetric()[0]
	switch {
	case m.GetGauge() != nil:
		return m.GetGauge().GetValue()
	case m.GetCounter() != nil:
		return m.GetCounter().GetValue()
	}
	return m.GetUntyped().GetValue()
}

// histogram adds up the histograms of that name whose labels hold all that are wanted; nil where there is none.
func (f figures) histogram(name string, labels map[string]string) (buckets map[float64]uint64, count uint64) {
	buckets = map[float64]uint64{}
	for _, m := range f[name].GetMetric() {
		if !has(m, labels) {
			continue
		}
		count += m.GetHistogram().GetSampleCount()
		for _, bucket := range m.GetHistogram().GetBucket() {
			buckets[bucket.GetUpperBound()] += bucket.GetCumulativeCount()
		}
	}
	return buckets, count
}

func has(m *dto.Metric, labels map[string]string) bool {
	found := 0
	for _, label := range m.GetLabel() {
		if want, asked := labels[label.GetName()]; asked {
			if !strings.HasSuffix(label.GetValue(), want) {
				return false
			}
			found++
		}
	}
	return found == len(labels)
}

// until reads again and again until something holds.
func (a *agentView) until(ctx context.Context, what string, holds func(figures) bool) error {
	ticker := time.NewTicker(time.Second)
	defer ticker.Stop()
	for {
		f, err := a.read(ctx)
		if err == nil && holds(f) {
			return nil
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return fmt.Errorf("wait until %s: %w", what, errors.Join(ctx.Err(), err))
		}
	}
}
