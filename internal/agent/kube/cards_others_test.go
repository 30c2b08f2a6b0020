package kube

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/dynamic-resource-allocation/resourceslice"
	"k8s.io/utils/ptr"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/agent/dra"
	"github.com/divvy-gpu/divvy/internal/agentconfig"
)

func nodeWith(capacity corev1.ResourceList) *corev1.Node {
	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}, Status: corev1.NodeStatus{Capacity: capacity}}
}

func sliceOf(driver, node string, name resourcev1.QualifiedName, value string) *resourcev1.ResourceSlice {
	return &resourcev1.ResourceSlice{ObjectMeta: metav1.ObjectMeta{Name: driver + node}, Spec: resourcev1.ResourceSliceSpec{
		Driver: driver, NodeName: ptr.To(node), Pool: resourcev1.ResourcePool{Name: node},
		Devices: []resourcev1.Device{{Name: "d", Attributes: map[resourcev1.QualifiedName]resourcev1.DeviceAttribute{name: {StringValue: ptr.To(value)}, "numaNode": {IntValue: ptr.To(int64(0))}}}},
	}}
}

// besides are a node's cards in a cluster, with what is told of them.
type besides struct {
	*cards
	client *fake.Clientset
	told   []string
	fail   error
	now    time.Time
}

func cardsBeside(nics agentconfig.NICs, node *corev1.Node, published ...*resourcev1.ResourceSlice) *besides {
	b := &besides{client: fake.NewClientset(node), now: time.Unix(1_800_000_000, 0)}
	for _, s := range published {
		if err := b.client.Tracker().Add(s); err != nil {
			panic(err)
		}
	}
	ask := askOthers(b.client, "n1")
	b.cards = newCards(context.Background(), cardConfig{
		root: oneCard(), nics: nics, cover: covered, note: func(text string) { b.told = append(b.told, text) }, log: slog.New(slog.DiscardHandler),
		clock: func() time.Time { return b.now },
		ask: func(ctx context.Context) (others, error) {
			if b.fail != nil {
				return others{}, b.fail
			}
			return ask(ctx)
		},
	})
	return b
}

func (b *besides) count(t *testing.T) (devices int) {
	t.Helper()
	resources := resourceslice.DriverResources{Pools: map[string]resourceslice.Pool{}}
	if _, err := b.add(resources, "n1"); err != nil {
		t.Fatal(err)
	}
	for _, s := range resources.Pools["n1"].Slices {
		devices += len(s.Devices)
	}
	return devices
}

// A card that another driver or a device plugin gives too is left to it, and everybody is told by whom. A card that is named is not.
func TestCardsOfOthers(t *testing.T) {
	const pci = "resource.kubernetes.io/pciBusID"
	shared := corev1.ResourceList{"rdma/hca_shared_devices_a": resource.MustParse("63"), "cpu": resource.MustParse("8")}
	auto, named := agentconfig.NICs{Slots: 4, Handles: 5, Objects: 7}, agentconfig.NICs{Slots: 4, Handles: 5, Objects: 7, Names: []string{"mlx5_0"}}
	for name, test := range map[string]struct {
		nics  agentconfig.NICs
		node  *corev1.Node
		slice *resourcev1.ResourceSlice
		who   string
	}{
		"nobody":                   {auto, nodeWith(nil), sliceOf("dra.net", "n1", pci, "0000:99:00.0"), ""},
		"by address":               {auto, nodeWith(nil), sliceOf("dra.net", "n1", pci, "0000:11:00.0"), "the driver dra.net"},
		"by network device":        {auto, nodeWith(nil), sliceOf("dra.net", "n1", "dra.net/ifName", "ens1"), "the driver dra.net"},
		"by adapter":               {auto, nodeWith(nil), sliceOf("x.example.com", "n1", "rdmaDevice", "mlx5_0"), "the driver x.example.com"},
		"on another node":          {auto, nodeWith(nil), sliceOf("dra.net", "n2", pci, "0000:11:00.0"), ""},
		"by ourselves":             {auto, nodeWith(nil), sliceOf(v1alpha1.Driver, "n1", pci, "0000:11:00.0"), ""},
		"by a device plugin":       {auto, nodeWith(shared), sliceOf("dra.net", "n1", pci, "0000:99:00.0"), "the node's resource rdma/hca_shared_devices_a of a device plugin"},
		"by one that has ended":    {auto, nodeWith(corev1.ResourceList{"rdma/hca_shared_devices_a": resource.MustParse("0")}), sliceOf("dra.net", "n2", pci, "0000:11:00.0"), ""},
		"by both, but it is named": {named, nodeWith(shared), sliceOf("dra.net", "n1", pci, "0000:11:00.0"), ""},
	} {
		b := cardsBeside(test.nics, test.node, test.slice)
		want := 1
		if test.who != "" {
			want = 0
		}
		told := strings.Join(b.told, "\n")
		if got := b.count(t); got != want || (told == "") != (test.who == "") || !strings.Contains(told, test.who) {
			t.Errorf("%s: %d cards are published, want %d; told is %q", name, got, want, told)
		}
	}
}

// Who comes later is noticed, once, and what a claim has already of the card it keeps. Who goes leaves the card to us.
func TestCardsOfOthersLater(t *testing.T) {
	b := cardsBeside(agentconfig.NICs{Slots: 4, Handles: 5, Objects: 7}, nodeWith(nil))
	is := func(published, told int) {
		t.Helper()
		b.now = b.now.Add(othersInterval)
		b.look(t.Context())
		if got := b.count(t); got != published || len(b.told) != told {
			t.Errorf("%d cards are published, want %d; told is %q", got, published, b.told)
		}
		if _, err := b.Access([]dra.CardPart{{Device: "nic-0000-11-00-0-shared", Slots: 1}}); err != nil {
			t.Errorf("a claim's card: %v", err)
		}
	}
	is(1, 0)
	soon := func(published int) {
		t.Helper()
		b.now = b.now.Add(othersInterval - 1)
		b.look(t.Context())
		if got := b.count(t); got != published {
			t.Errorf("before it is time to ask again %d cards are published, want %d", got, published)
		}
		b.now = b.now.Add(1 - othersInterval)
	}
	slice := sliceOf("dra.net", "n1", "resource.kubernetes.io/pciBusID", "0000:11:00.0")
	if err := b.client.Tracker().Add(slice); err != nil {
		t.Fatal(err)
	}
	soon(1)
	is(0, 1)
	is(0, 1)
	b.fail = errors.New("the API server is away")
	is(0, 1)
	b.fail = nil
	if err := b.client.Tracker().Delete(resourcev1.SchemeGroupVersion.WithResource("resourceslices"), "", slice.Name); err != nil {
		t.Fatal(err)
	}
	is(1, 1)
	b.fail = errors.New("the API server is away")
	is(1, 1)
}

// While it was never known who else gives cards, none is published that nobody named.
func TestCardsBeforeOthersAreKnown(t *testing.T) {
	b := &besides{fail: errors.New("the API server is away")}
	b.cards = newCards(t.Context(), cardConfig{
		root: oneCard(), nics: agentconfig.NICs{Slots: 4}, cover: covered, note: func(string) {}, clock: time.Now, log: slog.New(slog.DiscardHandler),
		ask: func(context.Context) (others, error) { return others{}, b.fail },
	})
	if got := b.count(t); got != 0 {
		t.Errorf("%d cards are published", got)
	}
	b.fail = nil
	b.look(t.Context())
	if got := b.count(t); got != 1 {
		t.Errorf("%d cards are published", got)
	}
}
