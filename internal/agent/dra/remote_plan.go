package dra

import (
	"fmt"
	"slices"
	"strings"

	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/agent/dra/pool"
)

// RemoteShare is a share that containers of this node have on another host, or on this one by way of the network.
type RemoteShare struct {
	// Key is the claim's UID with the view, as a tenancy's is. Name is for people.
	Key  string `json:"key"`
	Name string `json:"name"`
	// Claim, Namespace and ClaimName say whose it is.
	Claim     types.UID `json:"claim"`
	Namespace string    `json:"namespace"`
	ClaimName string    `json:"claimName"`
	// Pods are those that use it, by name.
	Pods []string `json:"pods,omitempty"`
	// Host is the node whose GPUs these are.
	Host string `json:"host"`
	// Request names these GPUs, and what the scheduler gave of each.
	Request v1alpha1.ShareRequest `json:"request"`
}

// remoteClaim is a prepared claim with shares on other hosts.
type remoteClaim struct {
	UID       types.UID    `json:"uid"`
	Namespace string       `json:"namespace"`
	Claim     string       `json:"claim"`
	Views     []remoteView `json:"views"`
}

// remoteView is what the containers get that name the same requests.
type remoteView struct {
	Requests []string    `json:"requests"`
	Share    RemoteShare `json:"share"`
}

func (c remoteClaim) uid() types.UID { return c.UID }
func (c remoteClaim) name() string   { return c.Namespace + "/" + c.Claim }

// views are as they were made.
func (c remoteClaim) views() (made []view) {
	for _, v := range c.Views {
		made = append(made, v.Requests)
	}
	return made
}

// isRemote reports whether a result is a GPU that this node reaches through the network.
func isRemote(r *resourcev1.DeviceRequestAllocationResult) bool {
	_, ok := v1alpha1.HostOfPool(r.Pool)
	return ok && r.Driver == v1alpha1.Driver
}

// remotesOf reads which GPUs a claim was given that this node reaches through the network. It is pure.
func remotesOf(claim *resourcev1.ResourceClaim) ([]allocation, error) {
	if claim.Status.Allocation == nil {
		return nil, nil
	}
	devices := &claim.Status.Allocation.Devices
	var all []allocation
	for i := range devices.Results {
		r := &devices.Results[i]
		if !isRemote(r) {
			continue
		}
		g, err := remoteOf(r, devices.Config)
		if err != nil {
			return nil, fmt.Errorf("request %s: %w", r.Request, err)
		}
		_, amounts := askedOf(claim, r.Request)
		_, g.asked = amounts[v1alpha1.CapacityCores]
		if err := g.complete(nil, nil); err != nil { // the node's defaults are for its own GPUs
			return nil, fmt.Errorf("request %s: %w", r.Request, err)
		}
		all = append(all, g)
	}
	slices.SortStableFunc(all, func(a, b allocation) int { return placeOf(claim, a.base) - placeOf(claim, b.base) })
	return all, nil
}

// remoteOf reads one of them.
func remoteOf(r *resourcev1.DeviceRequestAllocationResult, configs []resourcev1.DeviceAllocationConfiguration) (allocation, error) {
	if isAdmins(r) {
		return allocation{}, fault("it has admin access to %s, which is another node's: ask for it by class %s", r.Device, v1alpha1.ClassWhole)
	}
	g, err := allocationOf(r, r.Pool)
	if err != nil {
		return g, err
	}
	if g.form != pool.Remote {
		return g, fault("device %s is not one that other nodes reach", r.Device)
	}
	g.pool = r.Pool
	g.config, err = configOf(configs, r.Request)
	return g, err
}

// remotePlan returns the shares of a claim on other hosts, one for each view. It is pure.
func remotePlan(claim *resourcev1.ResourceClaim, allocations []allocation, views []view, pods []string) (remoteClaim, error) {
	made := remoteClaim{UID: claim.UID, Namespace: claim.Namespace, Claim: claim.Name}
	for _, v := range views {
		s := RemoteShare{
			Key: keyOf(claim.UID, v, len(views) == 1), Name: made.name(), Claim: claim.UID, Namespace: claim.Namespace, ClaimName: claim.Name,
			Pods: slices.Sorted(slices.Values(pods)),
		}
		if len(views) > 1 {
			s.Name += viewMark + strings.Join(v, requestMark)
		}
		if err := s.fill(allocations, v); err != nil {
			return remoteClaim{}, err
		}
		made.Views = append(made.Views, remoteView{Requests: v, Share: s})
	}
	return made, nil
}

// fill says what a view's share has. It is one share of one host, as a command of `divvy run --remote` has one.
func (s *RemoteShare) fill(allocations []allocation, v view) error {
	var first *allocation
	for i := range allocations {
		g := &allocations[i]
		if !slices.Contains(v, g.base) {
			continue
		}
		host, _ := v1alpha1.HostOfPool(g.pool)
		switch {
		case first == nil:
			first, s.Host = g, host
		case host != s.Host:
			return fault("a container would get GPUs of two hosts, %s and %s, and its programs reach one: ask for GPUs of one host by matchAttribute on %s/%s", s.Host, host, v1alpha1.Driver, v1alpha1.AttributeHost)
		case slices.Contains(s.Request.Among, g.uuid):
			return fault("it has two shares of GPU %s of host %s for one container: ask for one share with the sum, or for different GPUs by distinctAttribute", g.uuid, host)
		case g.memory != first.memory || g.cores != first.cores || g.config != first.config:
			return fault("a container would get %d bytes and %d cores of one GPU of host %s and %d bytes and %d cores of another, and its share has the same of each: ask for the same",
				first.memory, first.cores, host, g.memory, g.cores)
		}
		s.Request.Among = append(s.Request.Among, g.uuid)
	}
	if first == nil {
		return fault("a container would get no GPU")
	}
	s.Request.GPUs = len(s.Request.Among)
	s.Request.Memory, s.Request.Cores, s.Request.ShareConfig = v1alpha1.Bytes(first.memory), first.cores, first.config
	return nil
}

// apartFrom returns why a container cannot have what it names, if that is shares of this node's GPUs and of others'.
func (u *use) apartFrom(own, remote []string) error {
	if len(u.view(own)) == 0 || len(u.view(remote)) == 0 {
		return nil
	}
	return fault("container %s of pod %s names a GPU of its node and one of another host, and its programs can use one kind: give each a container of its own", u.container, u.pod)
}

// remoteDevices is the answer to the kubelet.
func remoteDevices(claim types.UID, allocations []allocation, views []view) (devices []kubeletplugin.Device) {
	for i := range allocations {
		g := &allocations[i]
		at := slices.IndexFunc(views, func(v view) bool { return slices.Contains(v, g.base) })
		devices = append(devices, kubeletplugin.Device{
			Requests: []string{g.request}, PoolName: g.pool, DeviceName: g.device, ShareID: g.shareID,
			CDIDeviceIDs: []string{v1alpha1.CDIRemoteKind + "=" + deviceName(keyOf(claim, views[at], len(views) == 1))},
		})
	}
	return devices
}
