package dra

import (
	"context"
	"fmt"
	"time"

	resourcev1 "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	metaapply "k8s.io/client-go/applyconfigurations/meta/v1"
	resourceapply "k8s.io/client-go/applyconfigurations/resource/v1"
	resourceinformers "k8s.io/client-go/informers/resource/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
)

// fieldManager is whose fields the agent's answers are.
const fieldManager = "divvy-agent"

// standing is what the scheduler has written of a claim: nothing, an order, or what cannot be read.
type standing struct {
	v1alpha1.Suspension
	err error
}

func (w standing) none() bool { return w.err == nil && w.Order == 0 }

func (w standing) same(other standing) bool {
	return w.Suspension == other.Suspension && (w.err == nil) == (other.err == nil)
}

// writtenOrders has the claims of which something is ordered on this node, by one watch that brings no others.
type writtenOrders struct {
	informer cache.SharedIndexInformer
}

// newOrders begins nothing.
func newOrders(d *driver, s Suspender) (*orders, error) {
	only := func(l *metav1.ListOptions) {
		l.LabelSelector = labels.Set{v1alpha1.SuspendNodeLabel: v1alpha1.SuspendNode(d.node)}.String()
	}
	o := &orders{
		driver: d, suspender: s, pause: orderPause, tended: map[types.UID]chan struct{}{}, early: map[types.UID]claimID{},
		written: writtenOrders{resourceinformers.NewFilteredResourceClaimInformer(d.client, metav1.NamespaceAll, 0, cache.Indexers{}, only)},
	}
	if err := o.written.informer.SetTransform(lightenClaim); err != nil {
		return nil, fmt.Errorf("watch suspended claims: %w", err)
	}
	told := func(object any) {
		if gone, ok := object.(cache.DeletedFinalStateUnknown); ok {
			object = gone.Obj
		}
		if claim, ok := object.(*resourcev1.ResourceClaim); ok {
			o.notice(idOf(claim))
		}
	}
	_, err := o.written.informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: told, DeleteFunc: told,
		UpdateFunc: func(before, after any) {
			told(before) // which may be another claim of the same name
			told(after)
		},
	})
	if err != nil {
		return nil, fmt.Errorf("watch suspended claims: %w", err)
	}
	return o, nil
}

func (w writtenOrders) run(ctx context.Context) { w.informer.RunWithContext(ctx) }

// wait reports whether all is known that is ordered, when it is or ctx is done.
func (w writtenOrders) wait(ctx context.Context) bool {
	return cache.WaitForCacheSync(ctx.Done(), w.informer.HasSynced)
}

// claim is a claim of which something is ordered, nil for any other.
func (w writtenOrders) claim(id claimID) *resourcev1.ResourceClaim {
	object, _, err := w.informer.GetStore().GetByKey(id.namespace + "/" + id.name)
	claim, ok := object.(*resourcev1.ResourceClaim)
	if err != nil || !ok || claim.UID != id.uid {
		return nil
	}
	return claim
}

// of is what is ordered of a claim.
func (w writtenOrders) of(id claimID) standing {
	claim := w.claim(id)
	if claim == nil {
		return standing{}
	}
	text, is := claim.Annotations[v1alpha1.SuspendAnnotation]
	if !is {
		return standing{}
	}
	order, err := v1alpha1.ParseSuspension(text)
	return standing{order, err}
}

// lightenClaim drops what nobody reads here.
func lightenClaim(object any) (any, error) {
	claim, ok := object.(*resourcev1.ResourceClaim)
	if !ok {
		return object, nil
	}
	light := &resourcev1.ResourceClaim{ObjectMeta: metav1.ObjectMeta{
		Namespace: claim.Namespace, Name: claim.Name, UID: claim.UID, ResourceVersion: claim.ResourceVersion,
	}}
	if text, ok := claim.Annotations[v1alpha1.SuspendAnnotation]; ok {
		light.Annotations = map[string]string{v1alpha1.SuspendAnnotation: text}
	}
	light.Status.Devices = claim.Status.Devices
	if a := claim.Status.Allocation; a != nil {
		light.Status.Allocation = &resourcev1.AllocationResult{Devices: resourcev1.DeviceAllocationResult{Results: a.Devices.Results}}
	}
	return light, nil
}

// sharesOf are the shares of a claim on a node.
func sharesOf(claim *resourcev1.ResourceClaim, node string) (shares []*resourcev1.DeviceRequestAllocationResult) {
	if claim == nil || claim.Status.Allocation == nil {
		return nil
	}
	results := claim.Status.Allocation.Devices.Results
	for i := range results {
		if isShare(&results[i]) && !isRemote(&results[i]) && results[i].Pool == node {
			shares = append(shares, &results[i])
		}
	}
	return shares
}

// saidOf is what was answered last of a share, nil if nothing was.
func saidOf(claim *resourcev1.ResourceClaim, r *resourcev1.DeviceRequestAllocationResult) *metav1.Condition {
	for i := range claim.Status.Devices {
		d := &claim.Status.Devices[i]
		same := d.ShareID == nil && r.ShareID == nil || d.ShareID != nil && r.ShareID != nil && *d.ShareID == string(*r.ShareID)
		if d.Driver == r.Driver && d.Pool == r.Pool && d.Device == r.Device && same {
			return v1alpha1.SuspensionAnswerOf(d)
		}
	}
	return nil
}

// answerOf is what was answered last of a claim: of shares with different answers, which an agent of which one write came to nothing
// leaves, one that says that it is away.
func answerOf(claim *resourcev1.ResourceClaim, node string) (said *metav1.Condition) {
	for _, r := range sharesOf(claim, node) {
		if one := saidOf(claim, r); said == nil || isAway(one) {
			said = one
		}
	}
	return said
}

// isAway reports whether an answer says that a share is off its GPUs.
func isAway(said *metav1.Condition) bool { return said != nil && said.Status == metav1.ConditionTrue }

// fresh reads a claim, and returns nil for one that is gone.
func (o *orders) fresh(ctx context.Context, id claimID) (*resourcev1.ResourceClaim, error) {
	claim, err := o.claim(ctx, id.namespace, id.name)
	switch {
	case apierrors.IsNotFound(err):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("read claim %s: %w", id.name, err)
	case claim.UID != id.uid:
		return nil, nil
	}
	return claim, nil
}

// answer writes the condition of each of a claim's shares on this node, unless they have it. A claim that is gone or has lost its
// devices has nobody to answer. Only the agent's own condition is named in what is written, so what others write of devices stays.
func (o *orders) answer(ctx context.Context, claim *resourcev1.ResourceClaim, order int64, reason, message string) error {
	shares := sharesOf(claim, o.node)
	want := v1alpha1.SuspensionAnswer(order, reason, message, metav1.NewTime(time.Now()))
	news := false
	status := resourceapply.ResourceClaimStatus()
	for _, r := range shares {
		said := saidOf(claim, r)
		news = news || said == nil || said.Status != want.Status || said.Reason != want.Reason || said.Message != want.Message || said.ObservedGeneration != want.ObservedGeneration
		device := resourceapply.AllocatedDeviceStatus().WithDriver(r.Driver).WithPool(r.Pool).WithDevice(r.Device).WithConditions(
			metaapply.Condition().WithType(want.Type).WithStatus(want.Status).WithReason(want.Reason).WithMessage(want.Message).
				WithObservedGeneration(want.ObservedGeneration).WithLastTransitionTime(want.LastTransitionTime))
		if r.ShareID != nil {
			device.WithShareID(string(*r.ShareID))
		}
		status.WithDevices(device)
	}
	if !news {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, apiTime)
	defer cancel()
	_, err := o.client.ResourceV1().ResourceClaims(claim.Namespace).ApplyStatus(ctx,
		resourceapply.ResourceClaim(claim.Name, claim.Namespace).WithUID(claim.UID).WithStatus(status), metav1.ApplyOptions{FieldManager: fieldManager, Force: true})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("answer of claim %s: %w", claim.Name, err)
	}
	o.log.InfoContext(ctx, "answered an order of the scheduler", "claim", claim.Namespace+"/"+claim.Name, "uid", claim.UID, "order", order, "reason", reason)
	return nil
}
