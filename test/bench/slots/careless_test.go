package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/divvy-gpu/divvy/internal/install/installtest"
	"github.com/divvy-gpu/divvy/test/bench/plane"
)

// careless answers the scheduler and gives everybody the first GPU of the node, or nothing.
type careless struct {
	*cluster
	t       *testing.T
	nothing bool
}

// binding is what the scheduler asks of an extender that binds.
type binding struct {
	PodName, PodNamespace, Node string
	PodUID                      types.UID
}

func (c *careless) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var answer any
	var err error
	switch verb := r.URL.Path[strings.LastIndex(r.URL.Path, "/")+1:]; verb {
	case "filter":
		var asked arguments
		err = json.NewDecoder(r.Body).Decode(&asked)
		answer = result{NodeNames: asked.NodeNames}
	case "prioritize":
		answer = []struct{}{}
	case "bind":
		var asked binding
		if err = json.NewDecoder(r.Body).Decode(&asked); err == nil {
			err = c.bind(r.Context(), asked)
		}
		answer = result{}
	default:
		err = errors.New("no such verb")
	}
	if err == nil {
		err = json.NewEncoder(w).Encode(answer)
	}
	if err != nil {
		c.t.Errorf("answer %s: %v", r.URL.Path, err)
	}
}

func (c *careless) bind(ctx context.Context, asked binding) error {
	pods := c.client.CoreV1().Pods(asked.PodNamespace)
	pod, err := pods.Get(ctx, asked.PodName, metav1.GetOptions{})
	if err != nil {
		return err
	}
	for i := range c.fleet {
		if c.fleet[i].name != asked.Node {
			continue
		}
		made, err := bindingOf(pod, &c.fleet[i], 0)
		if err != nil {
			return err
		}
		if c.nothing {
			made.Annotations = nil
		}
		return pods.Bind(ctx, made, metav1.CreateOptions{})
	}
	return fmt.Errorf("no node %s", asked.Node)
}

// What an extender gives twice, or binds without giving anything, is found through the real scheduler, which asks it for pods with
// a share alone.
func TestCarelessExtender(t *testing.T) {
	if _, err := plane.ComponentsOf(checkout, "v1.35"); err != nil {
		installtest.Missing(t, "kubernetes-1.35", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	fleet, err := fleetOf(1)
	if err != nil {
		t.Fatal(err)
	}
	c, err := open(ctx, options{root: checkout, minor: "v1.35"}, fleet)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.close(); err != nil {
			t.Error(err)
		}
	})
	answers := &careless{cluster: c, t: t}
	server := httptest.NewTLSServer(answers)
	t.Cleanup(server.Close)
	if err := c.startScheduler(ctx, schedulerProgram, server.URL, c.Kubeconfig()); err != nil {
		t.Fatal(err)
	}
	kinds, err := bothKinds()
	if err != nil {
		t.Fatal(err)
	}
	of := func(k kind) func(round string, i int) *corev1.Pod {
		return func(round string, i int) *corev1.Pod { return k.one(round, i) }
	}
	if o, err := c.round(ctx, false, 10, of(kinds[1])); err != nil || o.bound != 10 {
		t.Fatalf("%d plain pods are bound: %v", o.bound, err)
	}
	// Ten shares of 10 GiB are more than a GPU of 80.
	if o, err := c.round(ctx, false, 10, of(kinds[0])); o.bound != 10 || err == nil || c.record.twice == 0 || c.record.unassigned != 0 {
		t.Fatalf("%d pods are bound, %d twice, %d unassigned: %v", o.bound, c.record.twice, c.record.unassigned, err)
	}
	answers.nothing = true
	if o, _ := c.round(ctx, false, 1, of(kinds[0])); o.bound != 1 || c.record.unassigned != 1 {
		t.Fatalf("%d pods are bound, %d unassigned", o.bound, c.record.unassigned)
	}
}
