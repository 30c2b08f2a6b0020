package program

import (
	"context"
	"errors"
	"fmt"
	"sync"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/util/assumecache"

	"github.com/divvy-gpu/divvy/internal/alloc"
	"github.com/divvy-gpu/divvy/internal/scheduler"
)

// core is what the plugins of all profiles and the adapter share.
type core struct {
	ctx     context.Context
	own     ownOptions
	engine  *scheduler.Engine
	writer  *scheduler.Writer
	release *scheduler.Release
	reasons *scheduler.Reasons
	claims  fwk.ResourceClaimTracker
	// objects reads and writes kinds that are not Kubernetes' own.
	objects dynamic.Interface
	// activate has the queue try pods again.
	activate func(pods ...*corev1.Pod)
	// found are claims for which Kubernetes' own plugin found devices since the cycle cleared them, with their allocations.
	found []*resourcev1.ResourceClaim
	// leads is set once this scheduler binds pods. The others only follow.
	leads bool

	mutex sync.Mutex
	// undoing are pods whose claims are being taken back.
	undoing map[types.UID]bool
	// pending are claims whose allocation was told to Kubernetes' own allocator, until it hears of them by itself.
	pending []pending
}

// pending is an allocation that Kubernetes' own allocator counts, by the UID that it was told.
type pending struct {
	uid             types.UID
	namespace, name string
}

// begin makes the engine, with the first profile's plugin. The cluster is followed once.
func (c *core) begin(handle fwk.Handle, hook func(step string)) error {
	if c.engine != nil {
		return nil
	}
	policy, err := alloc.PolicyNamed(alloc.DefaultPolicy)
	if err != nil {
		return err
	}
	c.claims = handle.SharedDRAManager().ResourceClaims()
	if c.engine, err = scheduler.New(policy, known{c.claims}); err != nil {
		return fmt.Errorf("make the engine: %w", err)
	}
	c.engine.Moves = c.own.consolidate
	registerMetrics(c.engine)
	c.undoing = map[types.UID]bool{}
	c.writer = &scheduler.Writer{Client: handle.ClientSet(), Step: hook}
	c.release = scheduler.NewRelease(c.writer)
	return c.engine.Follow(handle.SharedInformerFactory(), c.gone, func() {
		c.activate(c.engine.Waiting.First()...)
	}, func(edited *corev1.Pod) { c.activate(edited) })
}

// gone releases the claims of a pod that has ended, if this scheduler leads.
func (c *core) gone(pod *corev1.Pod) {
	if c.reasons != nil {
		c.reasons.Forget(pod.UID)
	}
	c.mutex.Lock()
	leads := c.leads
	c.mutex.Unlock()
	if leads {
		c.release.Pod(pod)
	}
}

// lead begins to write.
func (c *core) lead() {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	c.leads = true
}

func (c *core) isUndoing(uid types.UID) bool {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	return c.undoing[uid]
}

func (c *core) setUndoing(uid types.UID, is bool) {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	if is {
		c.undoing[uid] = true
	} else {
		delete(c.undoing, uid)
	}
	undoingPods.Set(float64(len(c.undoing)))
}

// settle ends what Kubernetes' own allocator was told of claims that it knows by now.
func (c *core) settle() {
	c.mutex.Lock()
	all := c.pending
	c.pending = nil
	c.mutex.Unlock()
	var left []pending
	for _, p := range all {
		if claim, err := c.claims.Get(p.namespace, p.name); err == nil && claim.Status.Allocation != nil {
			c.claims.MaybeRemoveClaimPendingAllocation(p.uid, true)
		} else {
			left = append(left, p)
		}
	}
	if len(left) > 0 {
		c.mutex.Lock()
		c.pending = append(left, c.pending...)
		c.mutex.Unlock()
	}
}

// written notes allocations that were written and have yet to come back.
func (c *core) written(all []pending) {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	c.pending = append(c.pending, all...)
}

// known finds claims in what the scheduler knows of them.
type known struct{ tracker fwk.ResourceClaimTracker }

// Get implements scheduler.Claims. The tracker has an error of its own for claims that are not there.
func (k known) Get(namespace, name string) (*resourcev1.ResourceClaim, error) {
	claim, err := k.tracker.Get(namespace, name)
	if errors.Is(err, assumecache.ErrNotFound) {
		return nil, apierrors.NewNotFound(resourcev1.Resource("resourceclaims"), name)
	}
	return claim, err
}
