package dra

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	resourcev1 "k8s.io/api/resource/v1"
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
	Expect(expected map[string]agent.Expected)
}

// apiTime bounds one request to the API server. The kubelet waits 45 s for all of
// them.
const apiTime = 5 * time.Second

// driver answers the kubelet.
type driver struct {
	node    string
	client  kubernetes.Interface
	tenants Tenants
	// opener gives GPUs without a share, and openings are the claims that have some.
	opener   Opener
	openings *records[opened]
	// machines gives devices to virtual machines, nil where there are none, and handed are the claims that have some.
	machines Machines
	handed   *records[handed]
	// remotes gives shares on other hosts, nil where none are reached, and remote are the claims that have some.
	remotes Remotes
	remote  *records[remoteClaim]
	// cards gives RDMA cards, nil for none, and attached are the claims that have some.
	cards     Cards
	attached  *records[attached]
	attaching sync.Mutex // orders who has a card alone
	// reserver keeps virtual machines from these cards.
	reserver Reserver
	cdiDir   string
	log      *slog.Logger
	teller   *teller
	meter    Meter
	runtime  *runtimeGate
	// kernels are the handlers whose containers run on a kernel of their own.
	kernels  v1alpha1.Kernels
	handlers handlers
	// defaults are the node's, for shares that name no policy.
	defaults func() (v1alpha1.NodeDefaults, error)
	step     func(name string)
	broken   func(err error)
	claims   keyedLocks
	pods     nodePods
	// orders carries out what the scheduler orders of claims, nil where nobody can.
	orders *orders

	expecting sync.Mutex // orders what the agent is told to expect
	expects   bool       // that is not nothing
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
			d.orders.saw(claim)
		}
		results[claim.UID] = kubeletplugin.PrepareResult{Err: err, Devices: devices}
	}
	return results, nil
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

// unprepareClaim releases everything of a claim. It removes the specification last:
// while the specification exists, there may be something to release.
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
	if err := errors.Join(d.giveBack(ctx, claim), d.endRemote(ctx, claim), d.shut(claim)); err != nil {
		return err
	}
	if err := d.detachClosed(claim); err != nil {
		return err
	}
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

// tenanciesOf returns the tenancies of a claim.
func (d *driver) tenanciesOf(claim types.UID) []agent.Tenancy {
	return slices.DeleteFunc(d.tenants.Tenancies(), func(t agent.Tenancy) bool {
		uid, _ := claimOf(t.Key)
		return uid != claim
	})
}

func has(tenancies []agent.Tenancy, key string) bool {
	return slices.ContainsFunc(tenancies, func(t agent.Tenancy) bool { return t.Key == key })
}
