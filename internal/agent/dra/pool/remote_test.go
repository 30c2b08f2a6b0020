package pool

import (
	"errors"
	"fmt"
	"math/rand"
	"net/netip"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/dynamic-resource-allocation/structured"
	"sigs.k8s.io/yaml"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
)

func requirements(t *testing.T, selector string) labels.Requirements {
	t.Helper()
	all, err := labels.ParseToRequirements(selector)
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// remoteHost is a host with two GPUs that nodes reach.
func remoteHost(t *testing.T, selector string) (Host, []GPU) {
	t.Helper()
	host := Host{Node: "gpu-1", Address: netip.MustParseAddrPort("10.0.0.7:7117"), Nodes: requirements(t, selector)}
	gpus := ofEachForm()[2:]
	for i := range gpus {
		gpus[i].Form = Remote
	}
	return host, gpus
}

func remoteSlice(t *testing.T, selector string) *resourcev1.ResourceSlice {
	t.Helper()
	host, gpus := remoteHost(t, selector)
	spec, err := RemoteSpec(host, gpus)
	if err != nil {
		t.Fatal(err)
	}
	return &resourcev1.ResourceSlice{ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.RemoteSlice(host.Node)}, Spec: *spec}
}

// The golden is what the cluster reads: where the host is reached, and nothing of where in the host a GPU is.
func TestRemoteSpec(t *testing.T) {
	got, err := yaml.Marshal(remoteSlice(t, "zone in (b, a),!spot").Spec)
	if err != nil {
		t.Fatal(err)
	}
	compareGolden(t, "remote.yaml", got)
}

func TestRemoteSpecRefuses(t *testing.T) {
	for name, spoil := range map[string]func(*Host, []GPU) []GPU{
		"no node":       func(h *Host, g []GPU) []GPU { h.Node = ""; return g },
		"a long name":   func(h *Host, g []GPU) []GPU { h.Node = strings.Repeat("a", 65); return g },
		"no name":       func(h *Host, g []GPU) []GPU { h.Node = "a/b"; return g },
		"no address":    func(h *Host, g []GPU) []GPU { h.Address = netip.AddrPort{}; return g },
		"no port":       func(h *Host, g []GPU) []GPU { h.Address = netip.MustParseAddrPort("10.0.0.7:0"); return g },
		"every address": func(h *Host, g []GPU) []GPU { h.Address = netip.MustParseAddrPort("0.0.0.0:7117"); return g },
		"a link's own":  func(h *Host, g []GPU) []GPU { h.Address = netip.MustParseAddrPort("[fe80::1%eth0]:7117"); return g },
		"another form":  func(_ *Host, g []GPU) []GPU { g[1].Form = Shared; return g },
		"too many":      func(_ *Host, g []GPU) []GPU { return slices.Repeat(g[:1], 65) },
		"a faulty GPU":  func(_ *Host, g []GPU) []GPU { g[0].Memory = 1; return g },
	} {
		host, gpus := remoteHost(t, "")
		gpus = spoil(&host, gpus)
		if spec, err := RemoteSpec(host, gpus); !errors.Is(err, ErrGPU) {
			t.Errorf("%s: %v, %v", name, spec, err)
		}
	}
	_, gpus := remoteHost(t, "")
	if _, err := Resources("gpu-1", gpus); !errors.Is(err, ErrGPU) {
		t.Errorf("a GPU that others reach is in its node's pool: %v", err)
	}
}

// on allocates a claim for a pod of a node.
func (s *scheduler) on(n *corev1.Node, name string, spec resourcev1.ResourceClaimSpec) *resourcev1.AllocationResult {
	s.t.Helper()
	features := structured.Features{AdminAccess: true, ConsumableCapacity: true, DeviceTaints: true, PrioritizedList: true}
	allocator, err := structured.NewAllocator(s.t.Context(), features, s.state(), s.classes, s.slices, s.cache)
	if err != nil {
		s.t.Fatal(err)
	}
	claim := &resourcev1.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID(name)}, Spec: spec}
	results, err := allocator.Allocate(s.t.Context(), n, []*resourcev1.ResourceClaim{claim})
	if err != nil {
		s.t.Fatalf("%s: %v", name, err)
	}
	if len(results) == 0 {
		return nil
	}
	s.held[name] = results[0]
	return &results[0]
}

func newRemoteScheduler(t *testing.T, selector string) *scheduler {
	s := newScheduler(t, ofEachForm()[:2]) // of node-1's own
	s.slices = append(s.slices, remoteSlice(t, selector))
	return s
}

// Kubernetes' own scheduler gives pods of any node, or those of the selector, parts of such GPUs, for that class alone.
func TestRemoteReach(t *testing.T) {
	with := func(name string, set map[string]string) *corev1.Node {
		return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: set}}
	}
	a, b := with("node-1", map[string]string{"zone": "a"}), with("node-2", map[string]string{"zone": "b"})
	share := oneOf(v1alpha1.ClassRemote, map[string]string{"memory": "4Gi"})
	for _, c := range []struct {
		selector string
		node     *corev1.Node
		spec     resourcev1.ResourceClaimSpec
		want     bool
	}{
		{"", a, share, true}, {"", b, share, true}, {"zone=a", a, share, true}, {"zone=a", b, share, false},
		{"", b, oneOf(v1alpha1.ClassShare, map[string]string{"memory": "4Gi"}), false},
		{"", b, oneOf(v1alpha1.ClassWhole, nil), false},
	} {
		got := newRemoteScheduler(t, c.selector).on(c.node, "c", c.spec)
		if (got != nil) != c.want {
			t.Errorf("selector %q, node %s, class %s: %v, want %t", c.selector, c.node.Name, c.spec.Devices.Requests[0].Exactly.DeviceClassName, got, c.want)
		}
		if got != nil && (got.Devices.Results[0].Pool != "remote/gpu-1" || c.selector == "" && got.NodeSelector != nil || c.selector != "" && got.NodeSelector == nil) {
			t.Errorf("selector %q: %+v", c.selector, got)
		}
	}
}

// Pods of several nodes come and go, and together they never have more of a GPU than it has.
func TestRemoteIsGivenOnce(t *testing.T) {
	random := rand.New(rand.NewSource(7))
	s := newRemoteScheduler(t, "")
	full := 0
	for i := range 400 {
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("node-", random.Intn(4))}}
		name := fmt.Sprint("claim-", i)
		if random.Intn(3) == 0 && len(s.held) > 0 {
			for held := range s.held {
				delete(s.held, held)
				break
			}
		} else if s.on(n, name, oneOf(v1alpha1.ClassRemote, map[string]string{"memory": fmt.Sprint(1+random.Intn(6), "Gi"), "cores": fmt.Sprint(random.Intn(50))})) == nil {
			full++
		}
		memory, cores, slots := map[string]int64{}, map[string]int64{}, map[string]int64{}
		for _, held := range s.held {
			for _, r := range held.Devices.Results {
				m, c := r.ConsumedCapacity[v1alpha1.CapacityMemory], r.ConsumedCapacity[v1alpha1.CapacityCores]
				memory[r.Device] += m.Value()
				cores[r.Device] += c.Value()
				slots[r.Device]++
			}
		}
		for device := range memory {
			if memory[device] > 16<<30 || cores[device] > 100 || slots[device] > 64 {
				t.Fatalf("step %d: of %s are given %d bytes, %d cores, %d slots", i, device, memory[device], cores[device], slots[device])
			}
		}
	}
	if full == 0 || full > 300 {
		t.Errorf("%d of 400 did not fit: the test says nothing", full)
	}
}
