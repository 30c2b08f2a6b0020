package dra

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	specs "tags.cncf.io/container-device-interface/specs-go"

	"github.com/divvy-gpu/divvy/internal/agent"
	"github.com/divvy-gpu/divvy/internal/edits/cdi"
)

const (
	// reconcileInterval is the time between two comparisons.
	reconcileInterval = 2 * time.Minute
	// goneFor is how long a claim must have been gone before its share is released
	// without the kubelet asking for it. The kubelet asks again about every minute
	// for each claim in its own checkpoint (pkg/kubelet/cm/dra), so this is for a
	// node whose kubelet has lost its checkpoint.
	goneFor = 5 * time.Minute
)

// reconciler compares tenancies and CDI specifications with what the cluster has.
type reconciler struct {
	*driver
	now  func() time.Time
	gone map[types.UID]time.Time // since when a claim is not there any more
	told map[types.UID]bool      // pods that were told of their claim's division
	kept map[types.UID]bool      // claims of which was told that they are kept for pods that live
	// read are the pods that named a claim when it was read last. While they are the same
	// there is nothing to ask: a claim stays as long as its pods.
	read map[types.UID][]types.UID
	left leftPods
}

func newReconciler(d *driver) *reconciler {
	return &reconciler{driver: d, now: time.Now, gone: map[types.UID]time.Time{}, told: map[types.UID]bool{}, kept: map[types.UID]bool{}, read: map[types.UID][]types.UID{}}
}

// run looks from time to time until ctx is done, and at the shares of slots whenever ended
// tells that a pod has ended or that all pods are known.
func (r *reconciler) run(ctx context.Context, ended <-chan struct{}) {
	ticker := time.NewTicker(reconcileInterval)
	defer ticker.Stop()
	looked := false
	for {
		cards := r.changedCards()
		r.endSlots(ctx)
		r.expectAgain(ctx)
		if !looked && r.pods.known() {
			r.look(ctx)
			looked = true
		}
		select {
		case <-ended:
			continue
		case <-cards:
			r.cardSpecifications(ctx)
			continue
		case <-ticker.C:
		case <-ctx.Done():
			return
		}
		looked = false
		r.specifications(ctx)
		r.adminSpecifications(ctx)
		r.machineSpecifications(ctx)
		r.cardSpecifications(ctx)
		r.remoteSpecifications(ctx)
	}
}

// specified are the claims that have a specification whose name begins so. It reports whether they could be looked for.
func (r *reconciler) specified(ctx context.Context, prefix string) (claims map[types.UID]bool, ok bool) {
	names, err := cdi.List(r.cdiDir, prefix)
	if err != nil {
		r.log.WarnContext(ctx, "cannot look for CDI specifications", "error", err)
		return nil, false
	}
	claims = map[types.UID]bool{}
	for _, name := range names {
		claims[types.UID(strings.TrimPrefix(name, prefix))] = true
	}
	return claims, true
}

// specifications makes the specifications match the tenancies. It does not ask the
// API server.
func (r *reconciler) specifications(ctx context.Context) {
	present, ok := r.specified(ctx, specPrefix)
	if !ok {
		return
	}
	if r.nameless() {
		for uid := range present {
			r.adopt(ctx, uid)
		}
	}
	claims := r.prepared()
	for uid := range present {
		if _, ok := claims[uid]; !ok {
			r.dropSpec(ctx, uid)
		}
	}
	for uid := range claims {
		if !present[uid] {
			r.restoreSpec(ctx, uid)
		}
	}
}

// prepared has a tenancy of each claim; of one without a share it has what it is called.
func (r *reconciler) prepared() map[types.UID]agent.Tenancy {
	claims := map[types.UID]agent.Tenancy{}
	for _, o := range r.openings.list() {
		claims[o.UID] = agent.Tenancy{Name: o.name(), Namespace: o.Namespace, Claim: o.Claim}
	}
	for _, l := range r.handed.list() {
		claims[l.UID] = agent.Tenancy{Name: l.name(), Namespace: l.Namespace, Claim: l.Claim}
	}
	for _, a := range r.attached.list() {
		claims[a.UID] = agent.Tenancy{Name: a.name(), Namespace: a.Namespace, Claim: a.Claim}
	}
	for _, c := range r.remote.list() {
		claims[c.UID] = agent.Tenancy{Name: c.name(), Namespace: c.Namespace, Claim: c.Claim}
	}
	for _, t := range r.tenants.Tenancies() {
		if uid, _ := claimOf(t.Key); uid != "" && !isPods(t.Key) {
			claims[uid] = t
		}
	}
	return claims
}

// look releases what is left of deleted claims, and checks how pods use the others. It reads
// a claim when other pods name it than before, and again and again where none does.
func (r *reconciler) look(ctx context.Context) {
	if !r.pods.known() {
		return
	}
	claims := r.prepared()
	r.forget(claims)
	for uid, t := range claims {
		pods := r.pods.users(t.Namespace, t.Claim)
		users := uidsOf(pods)
		if len(users) > 0 && slices.Equal(users, r.read[uid]) {
			continue
		}
		claim, later, err := r.there(ctx, uid, t)
		pods = before(pods, later)
		switch {
		case err != nil:
			return // the API server is away: nothing is known
		case claim != nil:
			delete(r.gone, uid)
			delete(r.kept, uid)
			r.read[uid] = users
			r.beside(ctx, claim)
			r.orders.saw(claim)
		case len(pods) > 0:
			delete(r.gone, uid)
			r.keep(ctx, uid, t, pods)
		case t.Claim == "": // its name is not known
		case r.gone[uid].IsZero():
			r.gone[uid] = r.now()
		case r.now().Sub(r.gone[uid]) >= goneFor:
			r.abandon(ctx, uid, t)
		}
	}
}

// forget drops what is known of claims and pods that are gone.
func (r *reconciler) forget(claims map[types.UID]agent.Tenancy) {
	gone := func(uid types.UID) bool { _, ok := claims[uid]; return !ok }
	maps.DeleteFunc(r.gone, func(uid types.UID, _ time.Time) bool { return gone(uid) })
	maps.DeleteFunc(r.read, func(uid types.UID, _ []types.UID) bool { return gone(uid) })
	maps.DeleteFunc(r.kept, func(uid types.UID, _ bool) bool { return gone(uid) })
	r.teller.forgetRaws(gone)
	maps.DeleteFunc(r.told, func(uid types.UID, _ bool) bool { return !r.pods.lives(uid) })
}

// uidsOf are the UIDs of pods in order.
func uidsOf(pods []*corev1.Pod) []types.UID {
	uids := make([]types.UID, 0, len(pods))
	for _, pod := range pods {
		uids = append(uids, pod.UID)
	}
	return slices.Sorted(slices.Values(uids))
}

// there returns a claim that the cluster still has, allocated, nil if it has not. Later is another one that has its name now.
func (r *reconciler) there(ctx context.Context, uid types.UID, t agent.Tenancy) (claim, later *resourcev1.ResourceClaim, err error) {
	if t.Claim == "" {
		return nil, nil, nil
	}
	claim, err = r.claim(ctx, t.Namespace, t.Claim)
	switch {
	case apierrors.IsNotFound(err):
		return nil, nil, nil
	case err != nil:
		return nil, nil, err
	case claim.UID != uid:
		return nil, claim, nil
	case claim.Status.Allocation == nil:
		return nil, nil, nil
	}
	return claim, nil, nil
}

// before are those of the pods that name a claim which began before another claim of that name came, and so have the one before it.
func before(pods []*corev1.Pod, later *resourcev1.ResourceClaim) (all []*corev1.Pod) {
	for _, pod := range pods {
		if later == nil || pod.Status.StartTime != nil && pod.Status.StartTime.Before(&later.CreationTimestamp) {
			all = append(all, pod)
		}
	}
	return all
}

// keep tells once that a claim is lost to the cluster while pods of it live, which keep what they have: the kubelet releases it when
// they end.
func (r *reconciler) keep(ctx context.Context, uid types.UID, t agent.Tenancy, pods []*corev1.Pod) {
	if r.kept[uid] {
		return
	}
	r.kept[uid] = true
	r.log.WarnContext(ctx, "a claim is gone or not allocated any more while a pod of it lives, so its devices stay", "claim", t.Name, "uid", uid, "pod", pods[0].Name)
	r.teller.lost(t.Name, pods)
}

// abandon releases the share of a claim that has been gone for long, unless a process
// still uses it.
func (r *reconciler) abandon(ctx context.Context, uid types.UID, t agent.Tenancy) {
	switch err := r.unprepareClaim(ctx, uid, r.tenants.Abandon); {
	case errors.Is(err, agent.ErrInUse):
		r.log.WarnContext(ctx, "a claim is gone and its share is still in use", "claim", t.Name, "uid", uid)
	case err != nil:
		r.log.WarnContext(ctx, "cannot take back the share of a claim that is gone", "claim", t.Name, "uid", uid, "error", oneLine(err))
	default:
		r.log.WarnContext(ctx, "took back the share of a claim that is gone and that the kubelet did not release", "claim", t.Name, "uid", uid)
		delete(r.gone, uid)
	}
}

// dropSpec removes a specification without tenants, unless they came meanwhile.
func (r *reconciler) dropSpec(ctx context.Context, uid types.UID) {
	defer r.claims.lock(uid)()
	if len(r.tenanciesOf(uid)) > 0 {
		return
	}
	if err := cdi.Remove(r.cdiDir, specName(uid)); err != nil {
		r.log.WarnContext(ctx, "cannot remove a CDI specification", "claim", uid, "error", err)
	}
}

// restoreSpec writes a specification that is missing: a container of the pod that
// starts again would not start without it, and the kubelet does not ask again.
func (r *reconciler) restoreSpec(ctx context.Context, uid types.UID) {
	defer r.claims.lock(uid)()
	mine := r.tenanciesOf(uid)
	if len(mine) == 0 {
		return // released meanwhile
	}
	if err := r.carryOut(ctx, uid, mine, mine); err != nil {
		r.log.WarnContext(ctx, "cannot write a CDI specification again", "claim", uid, "error", oneLine(err))
	}
}

// nameless reports whether there are tenancies of which the key is not known.
func (d *driver) nameless() bool {
	return slices.ContainsFunc(d.tenants.Tenancies(), func(t agent.Tenancy) bool { return t.Key == "" })
}

// adopt gives the agent back the keys of tenancies that it found by their pages
// alone: the specification has them.
func (d *driver) adopt(ctx context.Context, uid types.UID) {
	keys, err := specKeys(d.cdiDir, uid)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		d.log.WarnContext(ctx, "cannot read a CDI specification", "claim", uid, "error", err)
	}
	for _, key := range append(keys, string(uid)) {
		d.tenants.Adopt(ctx, key)
	}
}

// specKeys are the keys of the tenancies in a claim's specification.
func specKeys(dir string, uid types.UID) ([]string, error) {
	data, err := os.ReadFile(filepath.Join(dir, specName(uid)+".json"))
	if err != nil {
		return nil, fmt.Errorf("read CDI specification: %w", err)
	}
	var spec specs.Spec
	if err := json.Unmarshal(data, &spec); err != nil {
		return nil, fmt.Errorf("read CDI specification: %w", err)
	}
	var keys []string
	for _, device := range spec.Devices {
		key := keyOfDevice(device.Name)
		if claim, _ := claimOf(key); claim == uid {
			keys = append(keys, key)
		}
	}
	return keys, nil
}
