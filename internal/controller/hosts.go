package controller

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
)

// Times of hosts that are away.
const (
	// hostsEvery is between two looks at hosts whose GPUs other nodes reach.
	hostsEvery = 5 * time.Second
	// evictAfter is how long a host is lost before pods that use its GPUs are evicted. Their shares ended after seconds, and a
	// kubelet that only restarts is back by then.
	evictAfter = time.Minute
	// removeAfter is how long a host is away before its slice is removed, if no claim has a GPU of it.
	removeAfter = 5 * time.Minute
)

// away says why a host's GPUs are not to be had; it is empty for a host that is there. It becomes the value of a taint.
type away string

// The reasons.
const (
	hostGone     away = "gone"      // there is no such node
	hostNotReady away = "not-ready" // its kubelet does not report
	// hostNoAgent is a node whose agent is away: the kubelet has deleted what it published for the node itself. Shares that are
	// there go on.
	hostNoAgent away = "no-agent"
)

// hosts taints the GPUs of hosts that are away, and removes the slices of those that do not come back. Slices without a node's
// name are nobody else's: neither the kubelet nor the garbage collector looks at them.
type hosts struct {
	client kubernetes.Interface
	known  *known
	log    *slog.Logger
	now    func() time.Time
	since  map[string]absence // by host
}

// absence is since when a host is away.
type absence struct {
	why   away
	begun time.Time
}

// host is what is known of one.
type host struct {
	slice *resourcev1.ResourceSlice
	why   away
	// held says that a claim has one of its GPUs.
	held bool
}

func newHosts(client kubernetes.Interface, k *known, log *slog.Logger) *hosts {
	return &hosts{client: client, known: k, log: log, now: time.Now, since: map[string]absence{}}
}

// look brings what is published of each host up to what is known of it.
func (h *hosts) look(ctx context.Context) {
	found, err := h.known.hosts()
	if err != nil {
		h.log.ErrorContext(ctx, "hosts whose GPUs other nodes reach cannot be looked at", "error", err)
		return
	}
	for name := range h.since {
		if _, there := found[name]; !there {
			delete(h.since, name)
		}
	}
	for _, name := range sortedNames(found) {
		taint, remove := h.step(name, found[name])
		if err := h.write(ctx, found[name].slice, taint, remove); err != nil && ctx.Err() == nil {
			h.log.ErrorContext(ctx, "cannot say that a host is away, and will try again", "node", name, "error", err)
		}
	}
}

// step is the taint that a host's GPUs are to have, nil for none, and whether its slice is to be removed.
func (h *hosts) step(name string, one host) (taint *resourcev1.DeviceTaint, remove bool) {
	if one.why == "" {
		delete(h.since, name)
		return nil, false
	}
	began, known := h.since[name]
	if !known || lost(began.why) != lost(one.why) {
		began.begun = h.now()
	}
	began.why = one.why
	h.since[name] = began
	taint = &resourcev1.DeviceTaint{Key: v1alpha1.HostTaint, Value: string(one.why), Effect: resourcev1.DeviceTaintEffectNoSchedule}
	lasts := h.now().Sub(began.begun)
	if lost(one.why) && lasts >= evictAfter {
		taint.Effect = resourcev1.DeviceTaintEffectNoExecute
	}
	return taint, one.why != hostNotReady && !one.held && lasts >= removeAfter
}

// lost reports whether what runs on a host's GPUs cannot go on.
func lost(why away) bool { return why == hostGone || why == hostNotReady }

// write writes what is to be said of a host, if it is not said already.
func (h *hosts) write(ctx context.Context, slice *resourcev1.ResourceSlice, taint *resourcev1.DeviceTaint, remove bool) error {
	all := h.client.ResourceV1().ResourceSlices()
	if remove {
		err := all.Delete(ctx, slice.Name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &slice.UID, ResourceVersion: &slice.ResourceVersion}})
		if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
			return fmt.Errorf("remove slice %s: %w", slice.Name, err)
		}
		h.log.InfoContext(ctx, "removed the GPUs of a host that is away", "slice", slice.Name, "because", taint.Value)
		return nil
	}
	next := tainted(slice, taint)
	if next == nil {
		return nil
	}
	if _, err := all.Update(ctx, next, metav1.UpdateOptions{}); err != nil && !apierrors.IsConflict(err) && !apierrors.IsNotFound(err) {
		return fmt.Errorf("change slice %s: %w", slice.Name, err)
	}
	if taint == nil {
		h.log.InfoContext(ctx, "a host is back", "slice", slice.Name)
	} else {
		h.log.WarnContext(ctx, "a host is away", "slice", slice.Name, "because", taint.Value, "effect", taint.Effect)
	}
	return nil
}

// tainted is a slice whose devices have a taint, and none of its key for nil. It is nil for one that is so already.
func tainted(slice *resourcev1.ResourceSlice, taint *resourcev1.DeviceTaint) *resourcev1.ResourceSlice {
	next, changed := slice.DeepCopy(), false
	for i := range next.Spec.Devices {
		d := &next.Spec.Devices[i]
		at := slices.IndexFunc(d.Taints, func(t resourcev1.DeviceTaint) bool { return t.Key == v1alpha1.HostTaint })
		switch {
		case at < 0 && taint == nil:
		case at < 0:
			d.Taints, changed = append(d.Taints, *taint), true
		case taint == nil:
			d.Taints, changed = slices.Delete(d.Taints, at, at+1), true
		case d.Taints[at].Value != taint.Value || d.Taints[at].Effect != taint.Effect:
			d.Taints[at], changed = *taint, true
		}
	}
	if !changed {
		return nil
	}
	return next
}

// hosts are the hosts that have published GPUs for other nodes.
func (k *known) hosts() (map[string]host, error) {
	published, err := k.slices.Resource().V1().ResourceSlices().Informer().GetIndexer().ByIndex(byRemote, byRemote)
	if err != nil || len(published) == 0 {
		return nil, err //nolint:wrapcheck // there is such an index
	}
	found := map[string]host{}
	for _, object := range published {
		slice, ok := object.(*resourcev1.ResourceSlice)
		if !ok {
			continue
		}
		name, _ := v1alpha1.HostOfPool(slice.Spec.Pool.Name)
		one := host{slice: slice, why: k.away(name)}
		claims, err := k.others.Resource().V1().ResourceClaims().Informer().GetIndexer().IndexKeys(byRemote, slice.Spec.Pool.Name)
		if err != nil {
			return nil, fmt.Errorf("list the claims of host %s: %w", name, err)
		}
		one.held = len(claims) > 0
		found[name] = one
	}
	return found, nil
}

// away says why a node's GPUs are not to be had by others.
func (k *known) away(name string) away {
	node, ok := stored[*corev1.Node](k.others.Core().V1().Nodes().Informer(), name)
	if !ok {
		return hostGone
	}
	ready := slices.ContainsFunc(node.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
	})
	if !ready {
		return hostNotReady
	}
	own, err := k.slices.Resource().V1().ResourceSlices().Informer().GetIndexer().IndexKeys(byPool, name)
	if err == nil && len(own) == 0 {
		return hostNoAgent
	}
	return ""
}

// remoteSlices indexes the slices of GPUs that other nodes reach.
func remoteSlices(object any) ([]string, error) {
	if slice, ok := object.(*resourcev1.ResourceSlice); ok {
		if name, ok := v1alpha1.HostOfPool(slice.Spec.Pool.Name); ok && slice.Name == v1alpha1.RemoteSlice(name) {
			return []string{byRemote}, nil
		}
	}
	return nil, nil
}

// remoteClaims indexes claims by the pools of such GPUs that they have.
func remoteClaims(object any) (pools []string, err error) {
	claim, ok := object.(*resourcev1.ResourceClaim)
	if !ok || claim.Status.Allocation == nil {
		return nil, nil
	}
	for i := range claim.Status.Allocation.Devices.Results {
		r := &claim.Status.Allocation.Devices.Results[i]
		if _, ok := v1alpha1.HostOfPool(r.Pool); ok && r.Driver == v1alpha1.Driver && !slices.Contains(pools, r.Pool) {
			pools = append(pools, r.Pool)
		}
	}
	return pools, nil
}

// readiness is what is kept of a node's conditions.
func readiness(conditions []corev1.NodeCondition) []corev1.NodeCondition {
	for i := range conditions {
		if conditions[i].Type == corev1.NodeReady {
			return []corev1.NodeCondition{{Type: corev1.NodeReady, Status: conditions[i].Status}}
		}
	}
	return nil
}
