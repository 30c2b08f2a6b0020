package dra

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/agent"
	"github.com/divvy-gpu/divvy/internal/agent/metrics"
	"github.com/divvy-gpu/divvy/internal/edits"
	"github.com/divvy-gpu/divvy/internal/edits/cdi"
)

// Tenants is the part of the agent that keeps tenancies.
type Tenants interface {
	Prepare(ctx context.Context, t agent.Tenancy) (edits.Edits, error)
	Release(ctx context.Context, key string) error
	Abandon(ctx context.Context, key string) error
	Adopt(ctx context.Context, key string)
	Tenancies() []agent.Tenancy
}

// apiTime bounds one question to the API server: the kubelet waits 45 s for all.
const apiTime = 5 * time.Second

// driver answers the kubelet.
type driver struct {
	node    string
	client  kubernetes.Interface
	tenants Tenants
	cdiDir  string
	log     *slog.Logger
	teller  *teller
	meter   Meter
	runtime *runtimeGate
	// defaults are the node's, for shares that name no policy.
	defaults func() (v1alpha1.NodeDefaults, error)
	step     func(name string)
	broken   func(err error)
	claims   keyedLocks
}

var _ kubeletplugin.DRAPlugin = (*driver)(nil)

// PrepareResourceClaims implements [kubeletplugin.DRAPlugin].
func (d *driver) PrepareResourceClaims(ctx context.Context, claims []*resourcev1.ResourceClaim) (map[types.UID]kubeletplugin.PrepareResult, error) {
	results := map[types.UID]kubeletplugin.PrepareResult{}
	for _, claim := range claims {
		began := time.Now()
		pods, devices, err := d.prepareClaim(ctx, claim)
		d.meter.Prepared(time.Since(began), err, ErrClaim, agent.ErrTenancy, agent.ErrChanged)
		if err != nil {
			err = errors.New(oneLine(err))
			d.log.WarnContext(ctx, "cannot prepare a claim", "claim", claim.Namespace+"/"+claim.Name, "uid", claim.UID, "error", err)
			d.teller.refused(claim, pods, err)
		} else {
			d.log.InfoContext(ctx, "prepared", "claim", claim.Namespace+"/"+claim.Name, "uid", claim.UID, "devices", len(devices), "took", time.Since(began))
		}
		results[claim.UID] = kubeletplugin.PrepareResult{Err: err, Devices: devices}
	}
	return results, nil
}

// defaultsFor are the defaults of a share that names no policy. One that is
// prepared keeps the policy that it got, whatever the node's defaults are now.
func (d *driver) defaultsFor(claim types.UID, requests []string, g *grant) (v1alpha1.NodeDefaults, error) {
	for _, t := range d.tenanciesOf(claim) {
		if !slices.Contains(viewIn(t.Key, requests), g.base) {
			continue
		}
		for _, s := range t.Shares {
			if s.UUID == g.uuid && !s.Whole {
				return v1alpha1.NodeDefaults{Policy: s.Config.Policy}, nil
			}
		}
	}
	if d.defaults == nil {
		return v1alpha1.NodeDefaults{}, nil
	}
	return d.defaults()
}

func (d *driver) claim(ctx context.Context, namespace, name string) (*resourcev1.ResourceClaim, error) {
	ctx, cancel := context.WithTimeout(ctx, apiTime)
	defer cancel()
	return d.client.ResourceV1().ResourceClaims(namespace).Get(ctx, name, metav1.GetOptions{})
}

// views divides a claim as its pods' containers use it.
func (d *driver) views(ctx context.Context, claim *resourcev1.ResourceClaim, grants []grant, pods []*corev1.Pod, known []agent.Tenancy) ([]view, error) {
	requests := requestsOf(grants)
	if len(pods) == 0 && len(requests) > 1 {
		return nil, fault("it is reserved for no pod that can be read, so it is not known which container gets what: give each request a claim of its own")
	}
	var uses []use
	for _, pod := range pods {
		found, err := usesOf(pod, claim)
		if err != nil {
			return nil, err
		}
		for i := range found {
			if err := d.alone(ctx, claim, &found[i]); err != nil {
				return nil, err
			}
		}
		uses = append(uses, found...)
	}
	return viewsOf(requests, uses, divided(known, requests))
}

// made is how a claim was divided, nothing if it was not yet.
func (d *driver) made(claim types.UID, requests []string) []view {
	return divided(d.tenanciesOf(claim), requests)
}

// divided is how these tenancies of a claim divide it, nothing if not all of it.
func divided(tenancies []agent.Tenancy, requests []string) []view {
	var made []view
	for _, t := range tenancies {
		made = append(made, viewIn(t.Key, requests))
	}
	if len(unused(requests, made)) > 0 {
		return nil // an agent died over it, before the kubelet was told anything
	}
	return made
}

// alone checks that a container's other claims are other drivers': a container
// has one tenant.
func (d *driver) alone(ctx context.Context, claim *resourcev1.ResourceClaim, u *use) error {
	for _, name := range u.others {
		other, err := d.claim(ctx, claim.Namespace, name)
		if err != nil {
			return fmt.Errorf("read claim %s of container %s: %w", name, u.container, err)
		}
		if other.Status.Allocation == nil {
			continue
		}
		ours := func(r resourcev1.DeviceRequestAllocationResult) bool { return r.Driver == v1alpha1.Driver }
		if slices.ContainsFunc(other.Status.Allocation.Devices.Results, ours) {
			return fault("container %s of pod %s has GPUs by two claims, %s and %s: put both requests in one claim", u.container, u.pod, claim.Name, name)
		}
	}
	return nil
}

func (d *driver) writeSpec(claim types.UID, devices map[string]edits.Edits) error {
	spec, err := cdi.Spec(v1alpha1.CDIKind, devices)
	if err != nil {
		return err
	}
	return cdi.Write(d.cdiDir, specName(claim), spec)
}

// UnprepareResourceClaims implements [kubeletplugin.DRAPlugin].
func (d *driver) UnprepareResourceClaims(ctx context.Context, claims []kubeletplugin.NamespacedObject) (map[types.UID]error, error) {
	results := map[types.UID]error{}
	for _, claim := range claims {
		began := time.Now()
		err := d.unprepareClaim(ctx, claim.UID, d.tenants.Release)
		d.meter.Released(time.Since(began), err)
		if err != nil {
			err = errors.New(oneLine(err))
			d.log.WarnContext(ctx, "cannot release a claim", "claim", claim.String(), "uid", claim.UID, "error", err)
		} else {
			d.log.InfoContext(ctx, "released", "claim", claim.String(), "uid", claim.UID, "took", time.Since(began))
		}
		results[claim.UID] = err
	}
	return results, nil
}

// unprepareClaim lets go of everything of a claim. The specification goes last:
// as long as it is there, there may be something to let go of.
func (d *driver) unprepareClaim(ctx context.Context, claim types.UID, release func(context.Context, string) error) error {
	defer d.claims.lock(claim)()
	if d.nameless() {
		d.adopt(ctx, claim)
	}
	var faults []error
	for _, t := range d.tenanciesOf(claim) {
		faults = append(faults, release(ctx, t.Key))
	}
	if err := errors.Join(faults...); err != nil {
		return err
	}
	d.step("release-done")
	return cdi.Remove(d.cdiDir, specName(claim))
}

// HandleError implements [kubeletplugin.DRAPlugin].
func (d *driver) HandleError(ctx context.Context, err error, msg string) {
	d.log.ErrorContext(ctx, msg, "error", oneLine(err))
	if errors.Is(err, kubeletplugin.ErrRecoverable) {
		d.meter.Failed(metrics.OperationPublish)
	}
	if !errors.Is(err, kubeletplugin.ErrRecoverable) {
		d.broken(fmt.Errorf("%s: %w", msg, err))
	}
}

// keyedLocks are locks by claim. The zero value is ready.
type keyedLocks struct {
	mu    sync.Mutex
	locks map[types.UID]*keyedLock
}

type keyedLock struct {
	mu    sync.Mutex
	users int
}

// lock takes the lock of a key and returns what gives it back.
func (k *keyedLocks) lock(key types.UID) (unlock func()) {
	k.mu.Lock()
	if k.locks == nil {
		k.locks = map[types.UID]*keyedLock{}
	}
	l := k.locks[key]
	if l == nil {
		l = &keyedLock{}
		k.locks[key] = l
	}
	l.users++
	k.mu.Unlock()
	l.mu.Lock()
	return func() {
		l.mu.Unlock()
		k.mu.Lock()
		defer k.mu.Unlock()
		if l.users--; l.users == 0 {
			delete(k.locks, key)
		}
	}
}
