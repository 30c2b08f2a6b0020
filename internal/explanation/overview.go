package explanation

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	resourcev1 "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/agent/dra/pool"
	"github.com/divvy-gpu/divvy/internal/overview"
)

// Errors of looking at nodes. Each says what to do.
var (
	// ErrNoNode is returned for a node that does not exist.
	ErrNoNode = errors.New("no such node")
	// ErrNoGPUs is returned for a node that has no GPUs of Divvy's.
	ErrNoGPUs = errors.New("the node has no GPUs of Divvy's: see whether its agent runs, kubectl get pods -A -l app.kubernetes.io/component=agent -o wide")
	// ErrMayNotLook is returned to those who may not see what nodes have.
	ErrMayNotLook = errors.New("you may not see what nodes have: an administrator binds the ClusterRole divvy-viewer to you by a ClusterRoleBinding")
)

// PodsUnderWay selects the pods that have not ended.
const PodsUnderWay = "status.phase!=Succeeded,status.phase!=Failed"

// Source reads a cluster's objects, which nobody changes. A namespace is metav1.NamespaceAll for all.
type Source interface {
	// Slices are those of Divvy's driver.
	Slices(ctx context.Context) ([]*resourcev1.ResourceSlice, error)
	Nodes(ctx context.Context) ([]*corev1.Node, error)
	Claims(ctx context.Context, namespace string) ([]*resourcev1.ResourceClaim, error)
	// Pods are those that have not ended.
	Pods(ctx context.Context, namespace string) ([]*corev1.Pod, error)
	// Events are those of Divvy's controller with one of [Reasons].
	Events(ctx context.Context, namespace, reason string) ([]*eventsv1.Event, error)
}

// Overview is what the reader's own rights show of the cluster's GPUs, or of those of one node: what nodes publish, what claims
// and pods have of it, and, of the whole cluster, which pods wait. What may not be read is named in Hidden. Home is the
// namespace that is read where all may not be. The error is [ErrMayNotLook], [ErrNoNode] or [ErrNoGPUs] where these apply.
func (r Reader) Overview(ctx context.Context, node, home string, now time.Time) (*overview.Overview, error) {
	return overviewOf(ctx, requests{client: r.Client, node: node}, node, home, now)
}

// Whole is what a source that may read everything shows of the whole cluster.
func Whole(ctx context.Context, from Source, now time.Time) (*overview.Overview, error) {
	return overviewOf(ctx, from, "", metav1.NamespaceAll, now)
}

func overviewOf(ctx context.Context, from Source, node, home string, now time.Time) (*overview.Overview, error) {
	s := sight{from: from, node: node, home: home, seen: overview.New(now), counts: map[string]corev1.ResourceList{}, possible: map[[2]string]bool{}}
	if err := s.machines(ctx); err != nil {
		return nil, err
	}
	if err := s.grants(ctx); err != nil {
		return nil, err
	}
	if len(s.seen.Nodes) == 0 && node != "" {
		return nil, fmt.Errorf("look at node %s: %w", node, ErrNoGPUs)
	}
	for i := range s.seen.Nodes {
		n := &s.seen.Nodes[i]
		n.GPUs = slices.DeleteFunc(n.GPUs, func(g overview.GPU) bool { return g.Count == 0 && s.possible[[2]string{n.Name, g.Device}] })
		sortGPUs(n.GPUs)
	}
	slices.SortFunc(s.seen.Nodes, func(a, b overview.Node) int { return cmp.Compare(a.Name, b.Name) })
	s.seen.Hidden = strings.Join(s.hidden, "; ")
	return s.seen, nil
}

// sight is an overview that is being made.
type sight struct {
	from       Source
	node, home string
	seen       *overview.Overview
	hidden     []string
	// counts are what nodes have of extended resources.
	counts map[string]corev1.ResourceList
	// possible are the devices, by node and name, that are a place for a MIG instance and no instance while nobody has them.
	possible map[[2]string]bool
}

// machines finds the nodes with GPUs, and what they have.
func (s *sight) machines(ctx context.Context) error {
	published, err := s.published(ctx)
	if err != nil {
		return err
	}
	nodes, err := s.nodes(ctx)
	if err != nil {
		return err
	}
	for i := range nodes {
		s.addNode(nodes[i], published[nodes[i].Name])
		delete(published, nodes[i].Name)
	}
	for name, devices := range published { // of nodes that may not be read
		s.addNode(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}, devices)
	}
	return nil
}

func (s *sight) addNode(node *corev1.Node, devices []*resourcev1.Device) {
	gpus := gpusOf(node, devices)
	if len(gpus) == 0 && devices == nil {
		return
	}
	s.seen.Nodes = append(s.seen.Nodes, overview.Node{Name: node.Name, GPUs: gpus})
	s.counts[node.Name] = node.Status.Allocatable
	for _, d := range devices {
		s.possible[[2]string{node.Name, d.Name}] = len(d.ConsumesCounters) > 0
	}
}

// published are the devices of each node that are GPUs, or parts of them, in the newest generation of its pools.
func (s *sight) published(ctx context.Context) (map[string][]*resourcev1.Device, error) {
	slices, err := s.from.Slices(ctx)
	switch {
	case apierrors.IsForbidden(err):
		return nil, fmt.Errorf("list resource slices: %w (%w)", ErrMayNotLook, err)
	case err != nil && !apierrors.IsNotFound(err): // Kubernetes 1.34 need not have them
		return nil, fmt.Errorf("list resource slices: %w", err)
	}
	newest := map[string]int64{} // by pool
	for _, slice := range slices {
		newest[slice.Spec.Pool.Name] = max(newest[slice.Spec.Pool.Name], slice.Spec.Pool.Generation)
	}
	found := map[string][]*resourcev1.Device{}
	for _, slice := range slices {
		spec := &slice.Spec
		host := hostOf(spec)
		if spec.Driver != v1alpha1.Driver || host == "" || s.node != "" && host != s.node || spec.Pool.Generation < newest[spec.Pool.Name] {
			continue // an API server does not return them
		}
		if found[host] == nil {
			found[host] = []*resourcev1.Device{}
		}
		for k := range spec.Devices {
			if _, card := pool.IsNIC(spec.Devices[k].Name); !card && !isMachines(spec.Devices[k].Name) {
				found[host] = append(found[host], &spec.Devices[k])
			}
		}
	}
	return found, nil
}

// hostOf is the node in which the devices of a slice are, whether others reach them or not, "" for none.
func hostOf(spec *resourcev1.ResourceSliceSpec) string {
	if spec.NodeName != nil {
		return *spec.NodeName
	}
	host, _ := v1alpha1.HostOfPool(spec.Pool.Name)
	return host
}

// nodes are all, or the one that is looked at.
func (s *sight) nodes(ctx context.Context) ([]*corev1.Node, error) {
	found, err := s.from.Nodes(ctx)
	switch {
	case apierrors.IsNotFound(err):
		return nil, fmt.Errorf("look at node %s: %w", s.node, ErrNoNode)
	case apierrors.IsForbidden(err):
		s.hide("extended resources of nodes (you may not read nodes)")
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("read nodes: %w", err)
	}
	return found, nil
}

func (s *sight) hide(format string, args ...any) {
	s.hidden = append(s.hidden, fmt.Sprintf(format, args...))
}

// grants finds out what claims and pods have of the GPUs, and which pods wait.
func (s *sight) grants(ctx context.Context) error {
	claims, err := listed(ctx, s, "claims", s.from.Claims)
	if err != nil {
		return err
	}
	at := s.places()
	asking := map[string]bool{} // keys of claims for Divvy's devices
	for i := range claims {
		for _, g := range grantsOf(claims[i]) {
			at.add(g)
		}
		if asksOurs(claims[i]) {
			asking[claims[i].Namespace+"/"+claims[i].Name] = true
		}
	}
	pods, err := listed(ctx, s, "pods", s.from.Pods)
	if err != nil {
		return err
	}
	for i := range pods {
		for _, g := range assignedTo(pods[i]) {
			at.add(g)
		}
		at.count(pods[i])
	}
	at.tell(s.counts)
	if s.node != "" {
		return nil
	}
	return s.waiting(ctx, pods, asking)
}

// listed reads objects of all namespaces, or of the one at home where that is all that may be read.
func listed[T any](ctx context.Context, s *sight, what string, read func(context.Context, string) ([]T, error)) ([]T, error) {
	all, err := read(ctx, metav1.NamespaceAll)
	if !apierrors.IsForbidden(err) {
		return all, said("list "+what, err)
	}
	if all, err = read(ctx, s.home); apierrors.IsForbidden(err) {
		s.hide("%s (you may not list them)", what)
		return nil, nil
	}
	s.hide("%s of other namespaces than %s (you may not list them)", what, s.home)
	return all, said("list "+what, err)
}

func said(doing string, err error) error {
	if err != nil {
		return fmt.Errorf("%s: %w", doing, err)
	}
	return nil
}
