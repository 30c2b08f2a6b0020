package dra

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/dynamic-resource-allocation/resourceslice"
	drapb "k8s.io/kubelet/pkg/apis/dra/v1"
	registerapi "k8s.io/kubelet/pkg/apis/pluginregistration/v1"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/agent/agenttest"
	"github.com/divvy-gpu/divvy/internal/agent/dra/pool"
)

// kubelet is the test in the kubelet's place.
type kubelet struct {
	t                      *testing.T
	pluginDir, registryDir string
}

// newKubelet uses a short path: sockets have at most 107 bytes.
func newKubelet(t *testing.T) *kubelet {
	t.Helper()
	dir, err := os.MkdirTemp("", "k")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return &kubelet{t: t, pluginDir: filepath.Join(dir, "plugins", v1alpha1.Driver), registryDir: filepath.Join(dir, "registry")}
}

func (k *kubelet) start() {
	k.t.Helper()
	if err := os.MkdirAll(k.registryDir, 0o700); err != nil {
		k.t.Fatal(err)
	}
}

func (k *kubelet) dial(path string) *grpc.ClientConn {
	k.t.Helper()
	conn, err := grpc.NewClient("unix:"+path, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		k.t.Fatal(err)
	}
	k.t.Cleanup(func() { conn.Close() })
	return conn
}

// register takes up the driver and returns what the kubelet calls.
func (k *kubelet) register() drapb.DRAPluginClient {
	k.t.Helper()
	client := registerapi.NewRegistrationClient(k.dial(filepath.Join(k.registryDir, v1alpha1.Driver+"-reg.sock")))
	info, err := client.GetInfo(k.t.Context(), &registerapi.InfoRequest{}, grpc.WaitForReady(true))
	if err != nil || info.Name != v1alpha1.Driver || info.Endpoint != filepath.Join(k.pluginDir, "dra.sock") {
		k.t.Fatalf("%+v, %v", info, err)
	}
	if _, err := client.NotifyRegistrationStatus(k.t.Context(), &registerapi.RegistrationStatus{PluginRegistered: true}); err != nil {
		k.t.Fatal(err)
	}
	return drapb.NewDRAPluginClient(k.dial(info.Endpoint))
}

var eventually = agenttest.Eventually

// names lets the fake API server make names, as the real one does.
func (m *machine) names() {
	var n atomic.Int64
	m.client.PrependReactor("create", "resourceslices", func(action clienttesting.Action) (bool, runtime.Object, error) {
		if create, ok := action.(clienttesting.CreateAction); ok {
			slice, ok := create.GetObject().(*resourcev1.ResourceSlice)
			if ok && slice.Name == "" {
				slice.Name = fmt.Sprintf("%s%d", slice.GenerateName, n.Add(1))
			}
		}
		return false, nil, nil
	})
}

// serve runs a whole driver until the test ends.
func (m *machine) serve(k *kubelet, publication func(context.Context) (resourceslice.DriverResources, <-chan struct{}, error)) (*Driver, *running) {
	m.t.Helper()
	r := m.start()
	d := New(Config{
		Node: nodeName, Client: m.client, Tenants: r.agent, Pool: publication, PluginDir: k.pluginDir, RegistryDir: k.registryDir, CDIDir: m.cdiDir,
		Log: slog.New(slog.DiscardHandler), RetryPause: 10 * time.Millisecond,
	})
	ctx, cancel := context.WithCancel(m.t.Context())
	done := make(chan error)
	go func() { done <- d.Run(ctx) }()
	m.t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			m.t.Error(err)
		}
	})
	return d, r
}

// publication is a pool of two GPUs, of which the first becomes unhealthy.
type publication struct {
	fault   atomic.Pointer[pool.Fault]
	changed chan struct{}
}

func (o *publication) resources(context.Context) (resourceslice.DriverResources, <-chan struct{}, error) {
	resources, err := pool.Resources(nodeName, []pool.GPU{
		{UUID: firstID, Memory: 16 * gib, Fault: o.fault.Load()}, {UUID: otherID, Index: 1, Memory: 16 * gib},
	})
	if o.fault.Load() != nil {
		return resources, nil, err
	}
	return resources, o.changed, err
}

// devices are what the cluster is told.
func (m *machine) devices() map[string]resourcev1.Device {
	m.t.Helper()
	list, err := m.client.ResourceV1().ResourceSlices().List(m.t.Context(), metav1.ListOptions{})
	if err != nil {
		m.t.Fatal(err)
	}
	devices := map[string]resourcev1.Device{}
	for _, slice := range list.Items {
		for _, device := range slice.Spec.Devices {
			devices[device.Name] = device
		}
	}
	return devices
}

func TestServe(t *testing.T) {
	claim, pod := simple()
	m := newMachine(t, claim, pod)
	m.names()
	k, o := newKubelet(t), &publication{changed: make(chan struct{})}
	d, r := m.serve(k, o.resources)
	// There is no kubelet yet; that is said and waited for.
	if err := d.Ready(); !errors.Is(err, errWaiting) {
		t.Errorf("ready without a kubelet: %v", err)
	}
	k.start()
	plugin := k.register()
	eventually(t, "the driver is ready", func() bool { return d.Ready() == nil })
	eventually(t, "both GPUs are published", func() bool { return len(m.devices()) == 2 })

	request := []*drapb.Claim{{Namespace: "team", Name: "a", Uid: string(uidA)}}
	prepared, err := plugin.NodePrepareResources(t.Context(), &drapb.NodePrepareResourcesRequest{Claims: request})
	if err != nil || prepared.Claims[string(uidA)].Error != "" {
		t.Fatalf("%v, %v", prepared, err)
	}
	device := prepared.Claims[string(uidA)].Devices[0]
	if device.PoolName != nodeName || device.DeviceName != pool.Name(firstID, pool.Shared) || device.CdiDeviceIds[0] != "divvy.dev/share="+string(uidA) ||
		device.GetShareId() != "share-r" || device.RequestNames[0] != "r" {
		t.Errorf("device %+v", device)
	}
	o.fault.Store(&pool.Fault{Reason: "xid-79"})
	close(o.changed)
	eventually(t, "the GPU is tainted", func() bool { return len(m.devices()[pool.Name(firstID, pool.Shared)].Taints) == 1 })

	unprepared, err := plugin.NodeUnprepareResources(t.Context(), &drapb.NodeUnprepareResourcesRequest{Claims: request})
	if err != nil || unprepared.Claims[string(uidA)].Error != "" {
		t.Fatalf("%v, %v", unprepared, err)
	}
	m.mustBeEmpty(r)
	// Another kubelet in the same place takes it up again.
	k.register()
}

// What breaks is said to the kubelet claim by claim, and the driver goes on.
func TestServeRefuses(t *testing.T) {
	claim, pod := simple()
	m := newMachine(t, claim, pod)
	m.names()
	m.runtime("containerd://1.6.20")
	k, o := newKubelet(t), &publication{changed: make(chan struct{})}
	k.start()
	m.serve(k, o.resources)
	plugin := k.register()
	request := &drapb.NodePrepareResourcesRequest{Claims: []*drapb.Claim{{Namespace: "team", Name: "a", Uid: string(uidA)}}}
	answer, err := plugin.NodePrepareResources(t.Context(), request)
	if err != nil || !strings.Contains(answer.Claims[string(uidA)].Error, "use containerd 2.0 or newer") {
		t.Errorf("%v, %v", answer, err)
	}
	request.Claims[0].Uid = string(uidB)
	if _, err := plugin.NodePrepareResources(t.Context(), request); err == nil || !strings.Contains(err.Error(), "got replaced") {
		t.Errorf("another claim's UID: %v", err)
	}
	eventually(t, "an event is written", func() bool {
		list, err := m.client.EventsV1().Events("team").List(t.Context(), metav1.ListOptions{})
		return err == nil && len(list.Items) >= 1 && list.Items[0].Reason == reasonPrepareFailed
	})
}

// A pool that cannot be made is tried again.
func TestServeWithoutPool(t *testing.T) {
	m := newMachine(t)
	m.names()
	k, o := newKubelet(t), &publication{changed: make(chan struct{})}
	k.start()
	var asked atomic.Int64
	m.serve(k, func(ctx context.Context) (resourceslice.DriverResources, <-chan struct{}, error) {
		if asked.Add(1) < 3 {
			return resourceslice.DriverResources{}, nil, errors.New("no such GPU")
		}
		return o.resources(ctx)
	})
	eventually(t, "the GPUs are published", func() bool { return len(m.devices()) == 2 })
}

// The sockets are made again where somebody removed them.
func TestServeMakesSocketsAgain(t *testing.T) {
	m := newMachine(t)
	m.names()
	k, o := newKubelet(t), &publication{changed: make(chan struct{})}
	k.start()
	d, _ := m.serve(k, o.resources)
	k.register()
	check := make(chan time.Time, 1)
	if err := os.RemoveAll(k.registryDir); err != nil {
		t.Fatal(err)
	}
	check <- time.Now()
	if err := d.wait(t.Context(), nil, check); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%v", err)
	}
}
