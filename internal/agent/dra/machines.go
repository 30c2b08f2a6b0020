package dra

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"
	"k8s.io/dynamic-resource-allocation/resourceclaim"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/agent/dra/pool"
	"github.com/divvy-gpu/divvy/internal/edits"
	"github.com/divvy-gpu/divvy/internal/edits/cdi"
)

// machineSpecPrefix begins the names of the CDI specifications of devices for virtual machines; the claim's UID follows.
const machineSpecPrefix = "machine." + v1alpha1.Driver + "-"

// Machines gives devices to virtual machines. Its functions are idempotent.
type Machines interface {
	// Give makes a device ready and keeps it for a claim. A device that cannot be given away is an error, and nothing is
	// changed then.
	Give(ctx context.Context, claim types.UID, want Wanted) (Given, error)
	// TakeBack makes the devices of a claim as they were before. That it has none is no error.
	TakeBack(ctx context.Context, claim types.UID) error
}

// Wanted is a device that a claim was allocated. Claim is NAMESPACE/NAME, for people.
type Wanted struct {
	pool.FunctionID
	Claim string
}

// Given is what a container needs of a device that is ready.
type Given struct {
	// Nodes are its device nodes.
	Nodes []edits.Device
	// Attributes are told to what runs the virtual machine.
	Attributes map[resourcev1.QualifiedName]resourcev1.DeviceAttribute
}

// handed is a claim with devices for virtual machines.
type handed struct {
	UID       types.UID `json:"uid"`
	Namespace string    `json:"namespace"`
	Claim     string    `json:"claim"`
	// Devices are the names of the devices, by request.
	Devices map[string]string `json:"devices"`
}

func (l handed) uid() types.UID { return l.UID }
func (l handed) name() string   { return l.Namespace + "/" + l.Claim }

// isMachines reports whether a result is one of this driver's devices for virtual machines.
func isMachines(r *resourcev1.DeviceRequestAllocationResult) bool {
	_, ok := pool.ParseFunction(r.Device)
	return ok && r.Driver == v1alpha1.Driver && !isAdmins(r)
}

// handedOf reads which devices for virtual machines a claim has. Whoever runs the machine finds a device by the request's
// name, so each request has one. It is pure.
func handedOf(claim *resourcev1.ResourceClaim, node string) (handed, error) {
	l := handed{UID: claim.UID, Namespace: claim.Namespace, Claim: claim.Name, Devices: map[string]string{}}
	if claim.Status.Allocation == nil {
		return l, nil
	}
	results := claim.Status.Allocation.Devices.Results
	for i := range results {
		r := &results[i]
		if !isMachines(r) {
			continue
		}
		base := resourceclaim.BaseRequestRef(r.Request)
		if r.Pool != node {
			return l, fmt.Errorf("request %s: %w", r.Request, fault("its device is on node %s, but this is node %s", r.Pool, node))
		}
		if slices.ContainsFunc(results, func(o resourcev1.DeviceRequestAllocationResult) bool {
			return resourceclaim.BaseRequestRef(o.Request) == base && o.Device != r.Device
		}) {
			return l, fmt.Errorf("request %s: %w", base, fault("it has several devices, and a virtual machine finds one by each request: write a request of count 1 for each"))
		}
		l.Devices[base] = r.Device
	}
	return l, nil
}

// handOver gives a claim its devices for virtual machines. After an error it has what it had before.
func (d *driver) handOver(ctx context.Context, claim *resourcev1.ResourceClaim) ([]kubeletplugin.Device, error) {
	want, err := handedOf(claim, d.node)
	if err != nil || len(want.Devices) == 0 {
		return nil, err
	}
	if d.machines == nil {
		return nil, fault("this node offers no devices to virtual machines any more: its agent's configuration says which, in backends")
	}
	if err := d.runtime.check(ctx); err != nil {
		return nil, err
	}
	if _, had := d.handed.get(claim.UID); !had {
		// The record comes first: by it a device is taken back that an agent gave before it died.
		if err := d.handed.put(want); err != nil {
			return nil, err
		}
		d.step("hand-recorded")
		devices, err := d.give(ctx, want)
		if err != nil {
			return nil, errors.Join(err, d.giveBack(ctx, claim.UID))
		}
		return devices, nil
	}
	return d.give(ctx, want)
}

// give has all devices of a claim made ready, and writes the specification by which container runtimes find them.
func (d *driver) give(ctx context.Context, want handed) ([]kubeletplugin.Device, error) {
	var devices []kubeletplugin.Device
	nodes := map[string]edits.Edits{}
	for _, request := range sortedKeys(want.Devices) {
		device := want.Devices[request]
		id, _ := pool.ParseFunction(device)
		given, err := d.machines.Give(ctx, want.UID, Wanted{id, want.name()})
		if err != nil {
			return nil, fmt.Errorf("request %s: give %s to a virtual machine: %w", request, device, err)
		}
		d.step("hand-given")
		name := deviceName(string(want.UID) + viewMark + request)
		nodes[name] = edits.Edits{Devices: given.Nodes}
		metadata := &kubeletplugin.DeviceMetadata{Attributes: map[string]resourcev1.DeviceAttribute{}}
		for attribute, value := range given.Attributes {
			metadata.Attributes[string(attribute)] = value
		}
		devices = append(devices, kubeletplugin.Device{
			Requests: []string{request}, PoolName: d.node, DeviceName: device,
			CDIDeviceIDs: []string{v1alpha1.CDIMachineKind + "=" + name}, Metadata: metadata,
		})
	}
	spec, err := cdi.Spec(v1alpha1.CDIMachineKind, nodes)
	if err != nil {
		return nil, err
	}
	if err := cdi.Write(d.cdiDir, machineSpecPrefix+string(want.UID), spec); err != nil {
		return nil, err
	}
	d.step("hand-spec")
	return devices, nil
}

// backLimit bounds how long devices are waited for that come back. The kubelet asks again, and the ledger goes on by itself.
const backLimit = time.Minute

// giveBack takes all devices for virtual machines from a claim; that it has none is no error. The record goes last: while
// it is there, there may be something to take back. Whoever asks for that may have gone: it is done all the same.
func (d *driver) giveBack(ctx context.Context, claim types.UID) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), backLimit)
	defer cancel()
	if had, ok := d.handed.get(claim); ok && d.machines == nil {
		return fault("%s has devices of virtual machines, and this agent gives none: start it with the configuration that it had", had.name())
	}
	if d.machines != nil {
		// Also without a record, which may be lost.
		if err := d.machines.TakeBack(ctx, claim); err != nil {
			return fmt.Errorf("take back devices of virtual machines: %w", err)
		}
	}
	d.step("hand-back")
	if err := cdi.Remove(d.cdiDir, machineSpecPrefix+string(claim)); err != nil {
		return err
	}
	return d.handed.remove(claim)
}

// machineSpecifications makes the specifications of devices for virtual machines match the records.
func (r *reconciler) machineSpecifications(ctx context.Context) {
	present, ok := r.specified(ctx, machineSpecPrefix)
	if !ok {
		return
	}
	for uid := range present {
		r.matchMachines(ctx, uid, true)
	}
	for _, l := range r.handed.list() {
		if !present[l.UID] {
			r.matchMachines(ctx, l.UID, false)
		}
	}
}

// matchMachines removes a specification without a record, or writes one that is missing.
func (r *reconciler) matchMachines(ctx context.Context, uid types.UID, present bool) {
	defer r.claims.lock(uid)()
	l, known := r.handed.get(uid)
	var err error
	switch {
	case present && !known:
		err = cdi.Remove(r.cdiDir, machineSpecPrefix+string(uid))
	case !present && known && r.machines != nil:
		_, err = r.give(ctx, l)
	}
	if err != nil {
		r.log.WarnContext(ctx, "cannot make a claim's devices for virtual machines as they should be", "claim", uid, "error", oneLine(err))
	}
}
