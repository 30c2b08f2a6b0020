package dra

import (
	"slices"
	"strings"

	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/agent"
)

const (
	// specPrefix begins the names of our CDI specifications; the claim's UID follows.
	specPrefix = v1alpha1.Driver + "-"
	// viewMark divides the claim's UID from the view in a tenancy's key, and
	// requestMark the requests of a view. Neither is in a UID or a request's name.
	viewMark    = "/"
	requestMark = "+"
)

// plan is what is to be made for a claim.
type plan struct {
	tenancies []agent.Tenancy
	devices   []kubeletplugin.Device
}

// planOf returns the tenancies of a claim and the answer to the kubelet. It is pure.
func planOf(claim *resourcev1.ResourceClaim, node string, allocations []allocation, views []view, pods []string) (plan, error) {
	var p plan
	pods = slices.Sorted(slices.Values(pods))
	for _, v := range views {
		key := keyOf(claim.UID, v, len(views) == 1)
		t := agent.Tenancy{Key: key, Name: claim.Namespace + "/" + claim.Name, Namespace: claim.Namespace, Claim: claim.Name, Pods: pods}
		if len(views) > 1 {
			t.Name += viewMark + strings.Join(v, requestMark)
		}
		for i := range allocations {
			g := &allocations[i]
			if !slices.Contains(v, g.base) {
				continue
			}
			var err error
			if t.Shares, err = add(t.Shares, g); err != nil {
				return plan{}, err
			}
			p.devices = append(p.devices, kubeletplugin.Device{
				Requests: []string{g.request}, PoolName: node, DeviceName: g.device, ShareID: g.shareID,
				// Each device has it, because a container may name any of them.
				CDIDeviceIDs: []string{v1alpha1.CDIKind + "=" + deviceName(key)},
			})
		}
		p.tenancies = append(p.tenancies, t)
	}
	return p, nil
}

// add puts an allocation to a tenancy's shares. A tenant has one share of a GPU, so two
// allocations of one GPU are put together where they agree.
func add(shares []agent.TenancyShare, g *allocation) ([]agent.TenancyShare, error) {
	if len(shares) > 0 && (g.instance != nil || slices.ContainsFunc(shares, func(s agent.TenancyShare) bool { return s.Instance != nil })) {
		return nil, fault("a container would get a MIG instance beside another device, and a process can use one instance only: ask for one in each request, and name one request in each container")
	}
	at := slices.IndexFunc(shares, func(s agent.TenancyShare) bool { return s.UUID == g.uuid })
	if at < 0 {
		return append(shares, agent.TenancyShare{
			UUID: g.uuid, Memory: g.memory, Cores: g.cores, Config: g.config, Whole: g.whole, Exclusive: g.exclusive,
			ProcessMemory: g.processMemory, Interval: g.sharing.Interval, Instance: g.instance,
		}), nil
	}
	s := &shares[at]
	switch {
	case s.Whole || s.Exclusive || g.whole || g.exclusive:
		return nil, fault("GPU %s is allocated to it twice, once as a whole: give each request a GPU of its own", g.uuid)
	case !sameButKept(s.Config, g.config):
		return nil, fault("two of its shares are of GPU %s and have different configurations (%s and %s): give them one, or ask for different GPUs by distinctAttribute",
			g.uuid, describe(&s.Config), describe(&g.config))
	}
	s.Memory += g.memory
	s.Cores += g.cores
	if s.Config.Swap {
		s.Config.Kept = v1alpha1.Bytes(s.Config.Kept.InBytes() + g.config.Kept.InBytes())
	}
	return shares, nil
}

// sameButKept reports whether two shares behave alike. What each keeps on the GPU is an amount, as its memory is.
func sameButKept(a, b v1alpha1.ShareConfig) bool {
	a.Kept, b.Kept = v1alpha1.Memory{}, v1alpha1.Memory{}
	return a == b
}

// keyOf is the key of a view's tenancy.
func keyOf(claim types.UID, v view, only bool) string {
	if only {
		return string(claim)
	}
	return string(claim) + viewMark + strings.Join(v, requestMark)
}

// claimOf is the UID of a tenancy's claim, and what follows it in the key.
func claimOf(key string) (uid types.UID, rest string) {
	claim, rest, _ := strings.Cut(key, viewMark)
	return types.UID(claim), rest
}

// isPods reports whether a tenancy is a pod's own and not a claim's.
func isPods(key string) bool {
	_, ok := agent.PodOfKey(key)
	return ok
}

// viewIn returns the view that a key names, or all requests if it names none.
func viewIn(key string, requests []string) view {
	if _, rest := claimOf(key); rest != "" {
		return strings.Split(rest, requestMark)
	}
	return requests
}

// deviceName is a tenancy's name among CDI devices, which may not have the marks.
func deviceName(key string) string {
	return strings.NewReplacer(viewMark, ":", requestMark, "..").Replace(key)
}

// keyOfDevice is the key of which a CDI device's name was made.
func keyOfDevice(name string) string {
	return strings.NewReplacer(":", viewMark, "..", requestMark).Replace(name)
}

func specName(claim types.UID) string {
	return specPrefix + string(claim)
}

// oneLine makes an error fit for events and for the kubelet's messages.
func oneLine(err error) string {
	return strings.Join(strings.FieldsFunc(err.Error(), func(r rune) bool { return r == '\n' || r == '\r' }), "; ")
}
