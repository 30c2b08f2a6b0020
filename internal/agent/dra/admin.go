package dra

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"
	"k8s.io/dynamic-resource-allocation/resourceclaim"
	"k8s.io/utils/ptr"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/dialect"
	"github.com/divvy-gpu/divvy/internal/edits"
	"github.com/divvy-gpu/divvy/internal/edits/cdi"
)

// adminSpecPrefix begins the names of the CDI specifications of admin access; the claim's UID follows. An agent of an
// earlier version, which does not know them, leaves them alone.
const adminSpecPrefix = "admin." + v1alpha1.Driver + "-"

// Opener gives containers GPUs without a share.
type Opener interface {
	// Open returns what a container needs to use GPUs, by UUID, without a share.
	Open(ctx context.Context, uuids []string) (edits.Edits, error)
	// NoteOpen is told which claims have admin access, by UUID of the GPU.
	NoteOpen(claims map[string][]string)
}

// opening is a GPU to which a claim has admin access.
type opening struct {
	request, base, device string
	shareID               *types.UID
	uuid                  string
}

// openingsOf reads to which GPUs a claim has admin access. Kubernetes lets claims have it in namespaces that an
// administrator has labelled for that, and in no others. It is pure.
func openingsOf(claim *resourcev1.ResourceClaim, node string) ([]opening, error) {
	if claim.Status.Allocation == nil {
		return nil, nil
	}
	var all []opening
	for i := range claim.Status.Allocation.Devices.Results {
		r := &claim.Status.Allocation.Devices.Results[i]
		if !isAdmins(r) || isCard(r) || isRemote(r) {
			continue
		}
		device, err := deviceOf(r, node)
		if err == nil && device.instance != nil {
			err = fault("it has admin access to a MIG instance, and that is to GPUs: ask for it by class %s", v1alpha1.ClassWhole)
		}
		if err == nil {
			err = takesNothing(claim, r.Request)
		}
		if err != nil {
			return nil, fmt.Errorf("request %s: %w", r.Request, err)
		}
		all = append(all, opening{
			request: r.Request, base: resourceclaim.BaseRequestRef(r.Request), device: r.Device, shareID: r.ShareID, uuid: device.uuid,
		})
	}
	return all, nil
}

// isAdmins reports whether a result is admin access to one of this driver's devices.
func isAdmins(r *resourcev1.DeviceRequestAllocationResult) bool {
	return r.Driver == v1alpha1.Driver && ptr.Deref(r.AdminAccess, false)
}

// takesNothing refuses admin access that is asked for as a share would be: whoever wrote that expects a limit.
func takesNothing(claim *resourcev1.ResourceClaim, request string) error {
	_, amounts := askedOf(claim, request)
	if err := dialect.TakesNothing(amounts); err != nil {
		return fault("%w", err)
	}
	for i := range claim.Status.Allocation.Devices.Config {
		c := &claim.Status.Allocation.Devices.Config[i]
		if c.Source == resourcev1.AllocationConfigSourceClaim && c.Opaque != nil && c.Opaque.Driver == v1alpha1.Driver && len(c.Requests) > 0 && isFor(c.Requests, request) {
			return fault("it has admin access, and a configuration is for shares: leave out the configuration")
		}
	}
	return nil
}

// mixes returns why a container that uses a claim cannot have what it names, if that is admin access beside a share.
func (u *use) mixes(open []opening, allocations []allocation) error {
	bases := map[string]bool{}
	for i := range open {
		bases[open[i].base] = true
	}
	if len(u.view(requestsOf(allocations))) == 0 || len(u.view(slices.Collect(maps.Keys(bases)))) == 0 {
		return nil
	}
	return fault("container %s of pod %s names a share and admin access, and no limit of the share would hold there: give each a container of its own", u.container, u.pod)
}

// openTo gives a claim the GPUs to which it has admin access, and remembers that.
func (d *driver) openTo(ctx context.Context, claim *resourcev1.ResourceClaim, open []opening) ([]kubeletplugin.Device, error) {
	if len(open) == 0 {
		return nil, nil
	}
	if d.opener == nil {
		return nil, fault("this agent gives no admin access")
	}
	if err := d.runtime.check(ctx); err != nil {
		return nil, err
	}
	made := opened{UID: claim.UID, Namespace: claim.Namespace, Claim: claim.Name, Requests: map[string][]string{}}
	var devices []kubeletplugin.Device
	for _, o := range open {
		if !slices.Contains(made.Requests[o.base], o.uuid) {
			made.Requests[o.base] = append(made.Requests[o.base], o.uuid)
		}
		devices = append(devices, kubeletplugin.Device{
			Requests: []string{o.request}, PoolName: d.node, DeviceName: o.device, ShareID: o.shareID,
			CDIDeviceIDs: []string{v1alpha1.CDIAdminKind + "=" + deviceName(string(claim.UID)+viewMark+o.base)},
		})
	}
	// The record comes first: a specification without one is removed.
	if err := d.openings.put(made); err != nil {
		return nil, err
	}
	d.step("open-recorded")
	if err := d.writeAdminSpec(ctx, made); err != nil {
		return nil, errors.Join(err, d.shut(claim.UID))
	}
	d.noteOpen()
	return devices, nil
}

// writeAdminSpec writes the specification by which container runtimes find what was opened.
func (d *driver) writeAdminSpec(ctx context.Context, o opened) error {
	devices := map[string]edits.Edits{}
	for request, uuids := range o.Requests {
		e, err := d.opener.Open(ctx, uuids)
		if err != nil {
			return fmt.Errorf("give %s admin access: %w", o.name(), err)
		}
		devices[deviceName(string(o.UID)+viewMark+request)] = e
	}
	spec, err := cdi.Spec(v1alpha1.CDIAdminKind, devices)
	if err != nil {
		return err
	}
	return cdi.Write(d.cdiDir, adminSpecPrefix+string(o.UID), spec)
}

// shut takes admin access back from a claim; that it has none is no error. The record goes last: while it is there,
// there may be a specification.
func (d *driver) shut(claim types.UID) error {
	if err := cdi.Remove(d.cdiDir, adminSpecPrefix+string(claim)); err != nil {
		return err
	}
	if err := d.openings.remove(claim); err != nil {
		return err
	}
	d.noteOpen()
	return nil
}

// noteOpen tells the agent which claims have admin access to which GPUs.
func (d *driver) noteOpen() {
	if d.opener == nil {
		return
	}
	claims := map[string][]string{}
	for _, o := range d.openings.list() {
		for _, uuids := range o.Requests {
			for _, uuid := range uuids {
				if !slices.Contains(claims[uuid], o.name()) {
					claims[uuid] = append(claims[uuid], o.name())
				}
			}
		}
	}
	for _, names := range claims {
		slices.Sort(names)
	}
	d.opener.NoteOpen(claims)
}

// adminSpecifications makes the specifications of admin access match the records.
func (r *reconciler) adminSpecifications(ctx context.Context) {
	present, ok := r.specified(ctx, adminSpecPrefix)
	if !ok {
		return
	}
	for uid := range present {
		r.matchAdmin(ctx, uid, true)
	}
	for _, o := range r.openings.list() {
		if !present[o.UID] {
			r.matchAdmin(ctx, o.UID, false)
		}
	}
	r.noteOpen()
}

// matchAdmin removes a specification without a record, or writes one that is missing.
func (r *reconciler) matchAdmin(ctx context.Context, uid types.UID, present bool) {
	defer r.claims.lock(uid)()
	o, known := r.openings.get(uid)
	var err error
	switch {
	case present && !known:
		err = cdi.Remove(r.cdiDir, adminSpecPrefix+string(uid))
	case !present && known:
		err = r.writeAdminSpec(ctx, o)
	}
	if err != nil {
		r.log.WarnContext(ctx, "cannot make a claim's admin access as it should be", "claim", uid, "error", oneLine(err))
	}
}

// opens tells a claim and its pods that no limit holds for them.
func (t *teller) opens(claim *resourcev1.ResourceClaim, pods []*corev1.Pod, open []opening) {
	var gpus []string
	for _, o := range open {
		if !slices.Contains(gpus, o.uuid) {
			gpus = append(gpus, o.uuid)
		}
	}
	t.prepared(claim, pods, reasonAdmin, "admin access to "+strings.Join(gpus, ", ")+": its containers have no share, no limit holds there, and nothing is taken from others")
}
