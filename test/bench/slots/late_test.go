package main

import (
	"context"
	"os"
	"path/filepath"
	"regexp"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/divvy-gpu/divvy/internal/install/installtest"
	"github.com/divvy-gpu/divvy/test/bench/plane"
)

// late is a cluster of one GPU whose extender asks the API server through a front.
type late struct {
	*cluster
	t     *testing.T
	front *plane.Front
}

func startLate(ctx context.Context, t *testing.T) *late {
	t.Helper()
	fleet, err := fleetOf(1)
	if err != nil {
		t.Fatal(err)
	}
	fleet[0].gpus = fleet[0].gpus[:1]
	c, err := open(ctx, options{root: checkout, minor: "v1.35", build: filepath.Join(checkout, "build")}, fleet)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.close(); err != nil {
			t.Error(err)
		}
	})
	front, err := plane.NewFront(c.Process(plane.APIServer).URL(), followsPods)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(front.Close)
	l := &late{cluster: c, t: t, front: front}
	l.must(c.writeTroubled(front))
	l.must(c.addReplica(ctx, extenderProgram))
	program, err := c.extenderOf(extenderProgram, c.troubled())
	l.must(err)
	_, err = c.Run(ctx, program)
	l.must(err)
	l.must(c.startScheduler(ctx, schedulerProgram, c.extender(), c.Kubeconfig()))
	return l
}

func (l *late) must(err error) {
	l.t.Helper()
	if err != nil {
		l.t.Fatal(err)
	}
}

var filtered = regexp.MustCompile(`divvy_extender_request_seconds_count\{verb="filter"\} (\d+)`)

// asked is how often the extender was asked to filter.
func (l *late) asked(ctx context.Context) string {
	l.t.Helper()
	text, err := l.Process(extenderProgram).Get(ctx, "/metrics")
	l.must(err)
	found := filtered.FindSubmatch(text)
	if found == nil {
		l.t.Fatal("the extender does not count its questions")
	}
	return string(found[1])
}

// The scheduler and the extender each hear by themselves of what there is. What the extender refuses because it hears later is
// placed as soon as it has heard, though nothing else happens then that has the scheduler ask again.
func TestExtenderHearsLate(t *testing.T) {
	if _, err := plane.ComponentsOf(checkout, "v1.35"); err != nil {
		installtest.Missing(t, "kubernetes-1.35", err)
	}
	if _, err := os.Stat(filepath.Join(checkout, "build", "libexec", "divvy", "divvy-cluster")); err != nil {
		installtest.Missing(t, "build", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	l := startLate(ctx, t)
	share, err := kindOf("share", sharesOf("10Gi", "10"))
	l.must(err)
	whole, err := kindOf("whole", wholeGPUs(1))
	l.must(err)
	o, err := l.round(ctx, false, 1, func(round string, i int) *corev1.Pod { return share.one(round, i) })
	if err != nil || o.bound != 1 {
		t.Fatalf("%+v, %v", o, err)
	}
	o, err = l.round(ctx, true, 1, func(round string, i int) *corev1.Pod { return whole.one(round, i) })
	if err != nil || o.waiting != 1 {
		t.Fatalf("%+v, %v", o, err)
	}
	before := l.asked(ctx)
	l.front.Set(plane.Blind)
	now := int64(0)
	l.must(l.client.CoreV1().Pods(namespace).DeleteCollection(ctx, metav1.DeleteOptions{GracePeriodSeconds: &now}, metav1.ListOptions{LabelSelector: roundLabel + "=1"}))
	for l.asked(ctx) == before {
		time.Sleep(pace)
		l.must(ctx.Err())
	}
	l.front.Set(plane.Calm)
	l.must(l.record.when(ctx, func() bool {
		for _, pod := range l.record.pods {
			if pod.Labels[roundLabel] == "2" && pod.Spec.NodeName != "" {
				return true
			}
		}
		return false
	}))
	l.must(l.record.wrong())
}
