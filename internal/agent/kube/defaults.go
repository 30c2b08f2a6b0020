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

// labelInterval is the time between two reads of the node's labels. The kubelet reads its node eight times as often, and
// the API server answers from memory.
const labelInterval = 30 * time.Second

// errUnlabelled is returned until the node's labels are known.
var errUnlabelled = errors.New("the node's labels, which may set default policy and cores, are not known yet: the API server has not answered")

// nodes is the part of the API that is needed; client-go's CoreV1().Nodes() is one.
type nodes interface {
	Get(ctx context.Context, name string, options metav1.GetOptions) (*corev1.Node, error)
}

// defaults holds the policy and cores of shares that set none: the node's labels or, without labels, the agent's flags.
type defaults struct {
	told  v1alpha1.NodeDefaults
	nodes nodes
	node  string
	log   *slog.Logger
	// seen is called with each node that was read.
	seen func(*corev1.Node)
	// failed is called when the labels cannot be read or are invalid.
	failed func()
	// again is the time between reads, retry the time after a read that failed.
	again, retry time.Duration

	mu      sync.Mutex
	now     v1alpha1.NodeDefaults
	fault   error // why there are no defaults, such as invalid labels
	changed chan struct{}
}

func newDefaults(told v1alpha1.NodeDefaults, nodes nodes, node string, log *slog.Logger) *defaults {
	return &defaults{
		told: told, nodes: nodes, node: node, log: log, seen: func(*corev1.Node) {}, failed: func() {}, again: labelInterval, retry: pause,
		fault: errUnlabelled, changed: make(chan struct{}),
	}
}

// get returns the defaults, or why they are not known, and a channel that is closed when that changes.
func (d *defaults) get() (v1alpha1.NodeDefaults, <-chan struct{}, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.now, d.changed, d.fault
}

// run follows the node's labels until ctx is done. While they cannot be read, the defaults stay as they are.
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
			d.seen(node)
			d.set(v1alpha1.LabelledDefaults(node.Labels, d.told))
		} else {
			wait = d.retry
			d.failed()
			if !said {
				d.log.WarnContext(ctx, "cannot read the node's labels: trying again", "error", err)
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
		d.log.Error("the node's labels for defaults are invalid: the node takes no new shares until they are corrected", "error", fault)
	} else {
		d.log.Info("defaults of shares that set no policy or cores", "policy", now.Policy, "cores", now.Cores)
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
