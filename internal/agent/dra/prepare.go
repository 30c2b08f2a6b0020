package dra

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/agent"
	"github.com/divvy-gpu/divvy/internal/edits"
)

// prepareClaim makes the tenants of one claim and their CDI specification. The
// pods are returned with an error, too, as far as they are known. What it made
// itself it takes back when it fails.
func (d *driver) prepareClaim(ctx context.Context, claim *resourcev1.ResourceClaim) ([]*corev1.Pod, []kubeletplugin.Device, error) {
	defer d.claims.lock(claim.UID)()
	known := d.tenanciesOf(claim.UID)
	pods := d.startReading(ctx, claim)
	grants, fault := grantsOf(claim, d.node, func(requests []string, g *grant) (v1alpha1.NodeDefaults, error) {
		return d.defaultsFor(claim.UID, requests, g)
	})
	if len(grants) > 0 {
		fault = d.runtime.check(ctx)
	}
	var begun plan
	if len(grants) > 0 && fault == nil {
		begun = d.begin(ctx, claim, grants, known)
	}
	found, err := pods()
	err = cmp.Or(err, fault)
	if err != nil || len(grants) == 0 {
		return found, nil, errors.Join(err, d.takeBack(ctx, begun.tenancies, known))
	}
	p, err := d.plan(ctx, claim, grants, found, known)
	if err == nil {
		err = d.carryOut(ctx, claim.UID, p.tenancies, known)
	}
	if err != nil {
		return found, nil, errors.Join(err, d.takeBack(ctx, append(p.tenancies, begun.tenancies...), known))
	}
	return found, p.devices, nil
}

// begin makes the tenant of a claim of one request, which is the same for whatever
// pods: while many start, they are waited for long enough. What is wrong with them
// is known before there is a specification, without which no container starts.
func (d *driver) begin(ctx context.Context, claim *resourcev1.ResourceClaim, grants []grant, known []agent.Tenancy) plan {
	requests := requestsOf(grants)
	if len(requests) != 1 || len(known) > 0 {
		return plan{}
	}
	var pods []string
	for _, r := range claim.Status.ReservedFor {
		pods = append(pods, r.Name)
	}
	p, err := planOf(claim, d.node, grants, []view{requests}, pods)
	if err != nil {
		return plan{} // and so will be the plan for the pods
	}
	for _, t := range p.tenancies {
		// What fails now fails again when it is carried out, and is told then.
		_, _ = d.tenants.Prepare(ctx, t)
	}
	return p
}

// plan is what is to be made for a claim of these pods.
func (d *driver) plan(ctx context.Context, claim *resourcev1.ResourceClaim, grants []grant, pods []*corev1.Pod, known []agent.Tenancy) (plan, error) {
	views, err := d.views(ctx, claim, grants, pods, known)
	if err != nil {
		return plan{}, err
	}
	names := make([]string, 0, len(pods))
	for _, pod := range pods {
		names = append(names, pod.Name)
	}
	return planOf(claim, d.node, grants, views, names)
}

// carryOut makes tenancies and the specification by which runtimes find them.
func (d *driver) carryOut(ctx context.Context, claim types.UID, tenancies, known []agent.Tenancy) error {
	for _, t := range known {
		if has(tenancies, t.Key) {
			continue
		}
		// What an agent that died left of another division of the claim.
		if err := d.tenants.Release(ctx, t.Key); err != nil {
			return err
		}
	}
	devices := map[string]edits.Edits{}
	for _, t := range tenancies {
		e, err := d.tenants.Prepare(ctx, t)
		if err != nil {
			return err
		}
		devices[deviceName(t.Key)] = e
	}
	if err := d.writeSpec(claim, devices); err != nil {
		return err
	}
	d.step("prepare-spec")
	return nil
}

// takeBack releases those of the tenancies that are not known from before, also
// those that were never made.
func (d *driver) takeBack(ctx context.Context, tenancies, known []agent.Tenancy) error {
	var faults []error
	for _, t := range tenancies {
		if !has(known, t.Key) {
			faults = append(faults, d.tenants.Release(ctx, t.Key))
		}
	}
	return errors.Join(faults...)
}

// tenanciesOf are those of a claim.
func (d *driver) tenanciesOf(claim types.UID) []agent.Tenancy {
	return slices.DeleteFunc(d.tenants.Tenancies(), func(t agent.Tenancy) bool {
		uid, _ := claimOf(t.Key)
		return uid != claim
	})
}

func has(tenancies []agent.Tenancy, key string) bool {
	return slices.ContainsFunc(tenancies, func(t agent.Tenancy) bool { return t.Key == key })
}

// startReading begins to read the pods for which a claim is reserved; what it
// returns waits for them.
func (d *driver) startReading(ctx context.Context, claim *resourcev1.ResourceClaim) func() ([]*corev1.Pod, error) {
	var pods []*corev1.Pod
	var err error
	done := make(chan struct{})
	go func() {
		defer close(done)
		pods, err = d.podsOf(ctx, claim)
	}()
	return func() ([]*corev1.Pod, error) {
		<-done
		return pods, err
	}
}

// podsOf reads the pods for which a claim is reserved.
func (d *driver) podsOf(ctx context.Context, claim *resourcev1.ResourceClaim) ([]*corev1.Pod, error) {
	var pods []*corev1.Pod
	for _, r := range claim.Status.ReservedFor {
		if r.APIGroup != "" || r.Resource != "pods" {
			continue
		}
		pod, err := d.podOf(ctx, claim, r)
		if err != nil {
			return pods, fmt.Errorf("read pod %s: %w", r.Name, err)
		}
		if pod != nil {
			pods = append(pods, pod)
		}
	}
	return pods, nil
}

// newest and atHand are versions that one can ask for: what was written last, and
// what the API server has in memory, which is there much sooner while many pods start.
const (
	newest = ""
	atHand = "0"
)

// podOf reads a pod for which a claim is reserved, nil if it is gone and so is its
// use of the claim. Once a pod names its claims, nothing that is asked of it here
// changes any more, so that an older version will do, unless it is from before that.
func (d *driver) podOf(ctx context.Context, claim *resourcev1.ResourceClaim, r resourcev1.ResourceClaimConsumerReference) (*corev1.Pod, error) {
	pod, err := d.pod(ctx, claim.Namespace, r.Name, atHand)
	if err != nil && !apierrors.IsNotFound(err) {
		return nil, err
	}
	if err == nil && pod.UID == r.UID {
		if uses, err := usesOf(pod, claim); err == nil && len(uses) > 0 {
			return pod, nil
		}
	}
	pod, err = d.pod(ctx, claim.Namespace, r.Name, newest)
	if apierrors.IsNotFound(err) || err == nil && pod.UID != r.UID {
		return nil, nil
	}
	return pod, err
}

func (d *driver) pod(ctx context.Context, namespace, name, version string) (*corev1.Pod, error) {
	ctx, cancel := context.WithTimeout(ctx, apiTime)
	defer cancel()
	return d.client.CoreV1().Pods(namespace).Get(ctx, name, metav1.GetOptions{ResourceVersion: version})
}
