package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/test/bench/measurement"
)

const (
	// filterTime is how long one question of the scheduler takes for all nodes.
	filterTime = "slots.filter_ms"
	// podsOfNode is how many pods with a share each node has by then, two on each GPU.
	podsOfNode = 16
	// filterAsked is how often it is asked in a run, and filterSizes how many different pods ask.
	filterAsked = 1000
	filterSizes = 16
	// mostAnswer is more than any answer has, in bytes.
	mostAnswer = 4 << 20
)

// arguments and result are what the scheduler and an extender that knows the nodes say (extender protocol version 1).
type arguments struct {
	Pod       *corev1.Pod
	NodeNames *[]string
}

type result struct {
	NodeNames                               *[]string
	FailedNodes, FailedAndUnresolvableNodes map[string]string
	Error                                   string
}

// filterGoals are those of the numbers of nodes, in ms.
var filterGoals = map[int]float64{1000: 3, 5000: 10}

// measureFilter asks the extender which of all nodes a pod fits, as the scheduler does, beside a server that does nothing.
func measureFilter(ctx context.Context, o options) (rows []measurement.Row, err error) {
	for _, nodes := range []int{1000, 5000} {
		made, err := o.filterOn(ctx, o.NodesOr(nodes), filterGoals[nodes])
		if err != nil {
			return nil, err
		}
		rows = append(rows, made...)
	}
	return rows, nil
}

func (o options) filterOn(ctx context.Context, nodes int, goal float64) (rows []measurement.Row, err error) {
	fleet, err := fleetOf(nodes)
	if err != nil {
		return nil, err
	}
	c, err := open(ctx, o, fleet)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, c.close()) }()
	small, err := kindOf("share", smallShare)
	if err != nil {
		return nil, err
	}
	filled := min(nodes*podsOfNode, filledPods)
	if err := c.fill(ctx, small, filled); err != nil {
		return nil, err
	}
	if err := c.startExtender(ctx); err != nil {
		return nil, err
	}
	bare, err := c.startBare(ctx)
	if err != nil {
		return nil, err
	}
	all, err := c.askFilter(ctx, bare)
	if err != nil {
		return nil, err
	}
	on := fmt.Sprintf("%d nodes of %d GPUs", nodes, len(fleet[0].gpus))
	return []measurement.Row{
		target.Less(filterTime, on, "ms", goal, all.p99(func(a answers) []time.Duration { return a.extender }),
			fmt.Sprintf("99th percentile of %d, over TLS; median %.2f ms; %d pods are bound; pods of %d sizes, of which each run has its own, ask; %d bytes asked, %d answered",
				all[0].asked(), all.p50(), filled, filterSizes, all[0].sent, all[0].got)),
		target.Less(filterTime, on+", a bare TLS round trip in turn with these", "ms", -1, all.p99(func(a answers) []time.Duration { return a.bare }),
			"99th percentile: what the machine takes for as many bytes"),
	}, nil
}

// answers are how long answers took in one run.
type answers struct {
	extender, bare []time.Duration
	sent, got      int
}

func (a answers) asked() int { return len(a.extender) }

type runs []answers

// p99 is the 99th percentile of each run, in ms.
func (r runs) p99(of func(answers) []time.Duration) (all []float64) {
	for i := range r {
		all = append(all, percentile(of(r[i]), 99))
	}
	return all
}

func (r runs) p50() float64 {
	var all []float64
	for i := range r {
		all = append(all, percentile(r[i].extender, 50))
	}
	return measurement.Middle(all)
}

// percentile is in ms.
func percentile(all []time.Duration, part int) float64 {
	sorted := slices.Sorted(slices.Values(all))
	return sorted[min(len(sorted)*part/100, len(sorted)-1)].Seconds() * 1000
}

// sizesOf are pods with a share of other sizes than those of other runs: no question of an earlier run was the same. There is room for
// most of them on every node. The last one asks for nearly a whole GPU, which a fleet with shares on all GPUs has nowhere.
func sizesOf(run int) (all []kind, err error) {
	for i := range filterSizes {
		gib := 1 + 3*i
		if i == filterSizes-1 {
			gib = 72
		}
		k, err := kindOf(fmt.Sprintf("size-%d", i), asked{limits: corev1.ResourceList{
			v1alpha1.ResourceGPU: resource.MustParse("1"), v1alpha1.ResourceCores: resource.MustParse(strconv.Itoa(5 + i)),
			v1alpha1.ResourceMemory: *resource.NewQuantity(int64(gib)<<30+int64(run+1)<<20, resource.BinarySI),
		}})
		if err != nil {
			return nil, err
		}
		all = append(all, k)
	}
	return all, nil
}

// askFilter asks for pods of some sizes in turn, each of which asks once, over one connection, as the scheduler has it.
func (c *cluster) askFilter(ctx context.Context, bare string) (all runs, err error) {
	client := &http.Client{Transport: &http.Transport{
		TLSClientConfig:   &tls.Config{InsecureSkipVerify: true, Certificates: []tls.Certificate{c.asks}}, //nolint:gosec // on the loopback interface
		ForceAttemptHTTP2: true, MaxIdleConnsPerHost: 4,
	}}
	defer client.CloseIdleConnections()
	names := make([]string, len(c.fleet))
	for i := range c.fleet {
		names[i] = c.fleet[i].name
	}
	for run := range c.Rounds() {
		var a answers
		sizes, err := sizesOf(run)
		if err != nil {
			return nil, err
		}
		for i := range c.Few(filterAsked) {
			pod := sizes[i%filterSizes].one(fmt.Sprintf("asked-%d", run), i)
			pod.UID = types.UID(fmt.Sprintf("asked-%d-%d", run, i))
			body, err := json.Marshal(arguments{Pod: pod, NodeNames: &names})
			if err != nil {
				return nil, fmt.Errorf("write a question: %w", err)
			}
			begun := time.Now()
			text, err := ask(ctx, client, c.extender()+"/filter", body, 0)
			a.extender = append(a.extender, time.Since(begun))
			if err == nil && i < filterSizes {
				err = checkAnswer(text, len(names))
			}
			if err != nil {
				return nil, err
			}
			begun = time.Now()
			if _, err := ask(ctx, client, bare, body, len(text)); err != nil {
				return nil, err
			}
			a.bare = append(a.bare, time.Since(begun))
			a.sent, a.got = len(body), len(text)
		}
		c.Say("filter: p99 %.2f ms, median %.2f ms; bare p99 %.2f ms", percentile(a.extender, 99), percentile(a.extender, 50), percentile(a.bare, 99))
		all = append(all, a)
	}
	return all, nil
}

// checkAnswer wants all nodes in an answer, as there is room on each, or all refused.
func checkAnswer(text []byte, nodes int) error {
	var r result
	if err := json.Unmarshal(text, &r); err != nil {
		return fmt.Errorf("read the extender's answer: %w", err)
	}
	all := r.NodeNames != nil && len(*r.NodeNames) == nodes
	none := (r.NodeNames == nil || len(*r.NodeNames) == 0) && len(r.FailedNodes)+len(r.FailedAndUnresolvableNodes) == nodes
	if !all && !none || r.Error != "" {
		return fmt.Errorf("read the extender's answer: it does not tell of %d nodes: %.200s", nodes, text)
	}
	return nil
}

// ask makes one round trip to the end of the answer.
func ask(ctx context.Context, client *http.Client, url string, body []byte, want int) ([]byte, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(body))
	if err != nil {
		return nil, fmt.Errorf("ask %s: %w", url, err)
	}
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set(answerHeader, strconv.Itoa(want))
	answer, err := client.Do(request)
	if err != nil {
		return nil, fmt.Errorf("ask %s: %w", url, err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err == nil && answer.StatusCode != http.StatusOK {
		err = fmt.Errorf("ask %s: %s: %.200s", url, answer.Status, text)
	}
	return text, err
}
