package kube

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
)

// relabelled is between looks at the node's labels: an eighth of what the kubelet itself asks, and out of the API
// server's memory.
const relabelled = 30 * time.Second

// errUnlabelled is said until the node's labels are known.
var errUnlabelled = errors.New("the node's labels are not known yet, so neither is the policy of shares that name none: the API server has not answered")

// nodes is the part of the API that is needed; client-go's CoreV1().Nodes() is one.
type nodes interface {
	Get(ctx context.Context, name string, options metav1.GetOptions) (*corev1.Node, error)
}

// defaults knows what shares get here that name nothing: what the agent was told, or the node's labels in place of it.
type defaults struct {
	told  v1alpha1.NodeDefaults
	nodes nodes
	node  string
	log   *slog.Logger
	// failed is told of labels that cannot be read or say nothing possible.
	failed func()
	// again is between looks, retry between looks that fail.
	again, retry time.Duration

	mu      sync.Mutex
	now     v1alpha1.NodeDefaults
	fault   error // why there are none; labels that say nothing possible are one
	changed chan struct{}
}

func newDefaults(told v1alpha1.NodeDefaults, nodes nodes, node string, log *slog.Logger) *defaults {
	return &defaults{
		told: told, nodes: nodes, node: node, log: log, failed: func() {}, again: relabelled, retry: pause,
		fault: errUnlabelled, changed: make(chan struct{}),
	}
}

// get returns the defaults, or why they are not known, and a channel that is closed when that changes.
func (d *defaults) get() (v1alpha1.NodeDefaults, <-chan struct{}, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.now, d.changed, d.fault
}

// run follows the node's labels until ctx is done. While they cannot be read, what was read last stands.
func (d *defaults) run(ctx context.Context) error {
	said := false
	for {
		wait := d.again
		// Version 0 is what the API server has in memory.
		asked, cancel := context.WithTimeout(ctx, pause)
		node, err := d.nodes.Get(asked, d.node, metav1.GetOptions{ResourceVersion: "0"})
		cancel()
		if ctx.Err() != nil {
			return nil //nolint:nilerr // the question was called off
		}
		if err == nil {
			d.set(v1alpha1.LabelledDefaults(node.Labels, d.told))
		} else {
			wait = d.retry
			d.failed()
			if !said {
				d.log.WarnContext(ctx, "cannot read the node's labels, and will ask again", "error", err)
			}
		}
		said = err != nil
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(wait):
		}
	}
}

func (d *defaults) set(now v1alpha1.NodeDefaults, fault error) {
	if fault != nil {
		d.failed()
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if now == d.now && text(fault) == text(d.fault) {
		return
	}
	if fault != nil {
		d.log.Error("no new shares are placed here until the node's labels are mended", "error", fault)
	} else {
		d.log.Info("what shares get that name no policy or cores", "policy", now.Policy, "cores", now.Cores)
	}
	d.now, d.fault = now, fault
	close(d.changed)
	d.changed = make(chan struct{})
}

func text(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// either returns a channel that is closed when one of two is, or ctx is done.
func either(ctx context.Context, one, other <-chan struct{}) <-chan struct{} {
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		select {
		case <-one:
		case <-other:
		case <-ctx.Done():
		}
	}()
	return closed
}
