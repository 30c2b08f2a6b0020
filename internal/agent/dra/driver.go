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
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/agent"
	"github.com/divvy-gpu/divvy/internal/agent/dra/pool"
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

// prepareClaim makes the tenants of one claim and their CDI specification. The
// pods are returned with an error, too, as far as they are known.
func (d *driver) prepareClaim(ctx context.Context, claim *resourcev1.ResourceClaim) ([]*corev1.Pod, []kubeletplugin.Device, error) {
	defer d.claims.lock(claim.UID)()
	pods, err := d.podsOf(ctx, claim)
	if err != nil {
		return nil, nil, err
	}
	grants, err := grantsOf(claim, d.node, func(requests []string, g *grant) (v1alpha1.NodeDefaults, error) {
		return d.defaultsFor(claim.UID, requests, g)
	})
	if err != nil || len(grants) == 0 {
		return pods, nil, err
	}
	if err := d.runtime.check(ctx); err != nil {
		return pods, nil, err
	}
	views, err := d.views(ctx, claim, grants, pods)
	if err != nil {
		return pods, nil, err
	}
	names := make([]string, 0, len(pods))
	for _, pod := range pods {
		names = append(names, pod.Name)
	}
	slices.Sort(names)
	p, err := planOf(claim, d.node, grants, views, names)
	if err != nil {
		return pods, nil, err
	}
	if err := d.carryOut(ctx, claim.UID, p.tenancies); err != nil {
		return pods, nil, err
	}
	return pods, p.devices, nil
}

// defaultsFor are the defaults of a share that names no policy. One that is
// prepared keeps the policy that it got, whatever the node's defaults are now.
func (d *driver) defaultsFor(claim types.UID, requests []string, g *grant) (v1alpha1.NodeDefaults, error) {
	for _, t := range d.tenants.Tenancies() {
		if uid, _ := claimOf(t.Key); uid != claim || !slices.Contains(viewIn(t.Key, requests), g.base) {
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

func (d *driver) claim(ctx context.Context, namespace, name string) (*resourcev1.ResourceClaim, error) {
	ctx, cancel := context.WithTimeout(ctx, apiTime)
	defer cancel()
	return d.client.ResourceV1().ResourceClaims(namespace).Get(ctx, name, metav1.GetOptions{})
}

// views divides a claim as its pods' containers use it.
func (d *driver) views(ctx context.Context, claim *resourcev1.ResourceClaim, grants []grant, pods []*corev1.Pod) ([]view, error) {
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
	return viewsOf(requests, uses, d.made(claim.UID, requests))
}

// made is how a claim was divided, nothing if it was not yet.
func (d *driver) made(claim types.UID, requests []string) []view {
	var made []view
	for _, t := range d.tenants.Tenancies() {
		if uid, _ := claimOf(t.Key); uid == claim {
			made = append(made, viewIn(t.Key, requests))
		}
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
		ours := func(r resourcev1.DeviceRequestAllocationResult) bool { return r.Driver == pool.Driver }
		if slices.ContainsFunc(other.Status.Allocation.Devices.Results, ours) {
			return fault("container %s of pod %s has GPUs by two claims, %s and %s: put both requests in one claim", u.container, u.pod, claim.Name, name)
		}
	}
	return nil
}

// carryOut makes tenancies and the specification by which runtimes find them.
// What it made itself it takes back when it fails.
func (d *driver) carryOut(ctx context.Context, claim types.UID, tenancies []agent.Tenancy) error {
	known := map[string]bool{}
	for _, t := range d.tenants.Tenancies() {
		known[t.Key] = true
		// What an agent that died left of another division of the claim.
		uid, _ := claimOf(t.Key)
		if uid == claim && !slices.ContainsFunc(tenancies, func(w agent.Tenancy) bool { return w.Key == t.Key }) {
			if err := d.tenants.Release(ctx, t.Key); err != nil {
				return err
			}
		}
	}
	devices := map[string]edits.Edits{}
	for i, t := range tenancies {
		e, err := d.tenants.Prepare(ctx, t)
		if err != nil {
			return errors.Join(err, d.takeBack(ctx, tenancies[:i], known))
		}
		devices[deviceName(t.Key)] = e
	}
	if err := d.writeSpec(claim, devices); err != nil {
		return errors.Join(err, d.takeBack(ctx, tenancies, known))
	}
	d.step("prepare-spec")
	return nil
}

func (d *driver) takeBack(ctx context.Context, tenancies []agent.Tenancy, known map[string]bool) error {
	var faults []error
	for _, t := range tenancies {
		if !known[t.Key] {
			faults = append(faults, d.tenants.Release(ctx, t.Key))
		}
	}
	return errors.Join(faults...)
}

func (d *driver) writeSpec(claim types.UID, devices map[string]edits.Edits) error {
	spec, err := cdi.Spec(cdi.Kind, devices)
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
			d.log.InfoContext(ctx, "released", "claim", claim.String(), "uid", claim.UID)
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
	for _, t := range d.tenants.Tenancies() {
		if uid, _ := claimOf(t.Key); uid == claim {
			faults = append(faults, release(ctx, t.Key))
		}
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
