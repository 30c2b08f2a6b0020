package deviceplugin

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	kubelet "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
)

// timeout is when a test gives up on what should have happened long ago.
const timeout = 5 * time.Minute

// fakeKubelet takes registrations, and opens the plugin's stream at each as a
// kubelet does.
type fakeKubelet struct {
	kubelet.UnimplementedRegistrationServer
	t          *testing.T
	dir        string
	server     *grpc.Server
	registered chan string
	lists      chan []*kubelet.Device
	client     chan kubelet.DevicePluginClient
}

func startKubelet(t *testing.T, dir string) *fakeKubelet {
	t.Helper()
	if err := os.RemoveAll(filepath.Join(dir, socketName)); err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("unix", filepath.Join(dir, kubeletSocket))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	k := &fakeKubelet{t: t, dir: dir, server: grpc.NewServer(), registered: make(chan string, 100), lists: make(chan []*kubelet.Device, 100), client: make(chan kubelet.DevicePluginClient, 100)}
	kubelet.RegisterRegistrationServer(k.server, k)
	go k.server.Serve(listener)
	go k.watch(ctx)
	t.Cleanup(func() { cancel(); k.server.Stop() })
	return k
}

func (k *fakeKubelet) Register(_ context.Context, r *kubelet.RegisterRequest) (*kubelet.Empty, error) {
	if r.Version != "v1beta1" || r.ResourceName != v1alpha1.SlotResource || r.Endpoint != socketName {
		k.t.Errorf("registered %+v", r)
	}
	k.registered <- r.Endpoint
	return &kubelet.Empty{}, nil
}

// watch opens the stream of every plugin that registers.
func (k *fakeKubelet) watch(ctx context.Context) {
	for {
		var endpoint string
		select {
		case endpoint = <-k.registered:
		case <-ctx.Done():
			return
		}
		conn, err := grpc.NewClient("unix://"+filepath.Join(k.dir, endpoint), grpc.WithTransportCredentials(insecure.NewCredentials()))
		if err != nil {
			k.t.Error(err)
			return
		}
		client := kubelet.NewDevicePluginClient(conn)
		stream, err := client.ListAndWatch(ctx, &kubelet.Empty{})
		if err != nil {
			conn.Close()
			continue // it ended meanwhile
		}
		go func() {
			defer conn.Close()
			for {
				list, err := stream.Recv()
				if err != nil {
					return
				}
				k.lists <- list.Devices
			}
		}()
		k.client <- client
	}
}

func next[T any](t *testing.T, from <-chan T) T {
	t.Helper()
	select {
	case value := <-from:
		return value
	case <-time.After(timeout):
		t.Fatal("nothing came")
		panic("unreachable")
	}
}

func (k *fakeKubelet) expect(offered, healthy int) {
	k.t.Helper()
	got, ids := 0, make(map[string]bool)
	list := next(k.t, k.lists)
	for _, d := range list {
		if d.Health == kubelet.Healthy {
			got++
		}
		ids[d.ID] = true
	}
	if len(list) != offered || got != healthy || len(ids) != offered {
		k.t.Errorf("%d slots of %d names, %d of them healthy; want %d and %d", len(list), len(ids), got, offered, healthy)
	}
}

// node is what the agent knows and is told, settable.
type node struct {
	mu      sync.Mutex
	gpus    []v1alpha1.NodeGPU
	down    error
	changed [2]chan struct{}
	refuse  int
	patches chan string
	held    v1alpha1.NodeHeld
	notes   []map[string]string
}

func newNode(gpus ...v1alpha1.NodeGPU) *node {
	return &node{gpus: gpus, changed: [2]chan struct{}{make(chan struct{}), make(chan struct{})}, patches: make(chan string, 100)}
}

func (n *node) GPUs() ([]v1alpha1.NodeGPU, <-chan struct{}) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.gpus, n.changed[0]
}

func (n *node) Down() (<-chan struct{}, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.changed[1], n.down
}

func (n *node) set(which int, change func()) {
	n.mu.Lock()
	defer n.mu.Unlock()
	change()
	close(n.changed[which])
	n.changed[which] = make(chan struct{})
}

func (n *node) Patch(_ context.Context, name string, kind types.PatchType, data []byte, _ metav1.PatchOptions, _ ...string) (*corev1.Node, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.refuse > 0 {
		n.refuse--
		return nil, errors.New("the API server is away")
	}
	var patch struct {
		Metadata struct{ Annotations map[string]string }
	}
	if err := json.Unmarshal(data, &patch); err != nil || name != "n1" || kind != types.MergePatchType {
		return nil, errors.New("no such patch")
	}
	n.notes = append(n.notes, patch.Metadata.Annotations)
	n.patches <- patch.Metadata.Annotations[v1alpha1.GPUsAnnotation]
	return nil, nil
}

func startPlugin(t *testing.T, dir string, n *node) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() {
		ended <- Run(ctx, Config{Dir: dir, Guard: n, GPUs: n.GPUs, Nodes: n, Node: "n1", Log: slog.New(slog.NewTextHandler(t.Output(), nil))})
	}()
	t.Cleanup(func() {
		cancel()
		if err := next(t, ended); err != nil {
			t.Error(err)
		}
	})
}

func gpu(uuid string, index int) v1alpha1.NodeGPU {
	return v1alpha1.NodeGPU{UUID: uuid, Index: index, Memory: 1 << 34}
}

func TestSlotsFollowHealthAndGuard(t *testing.T) {
	dir := t.TempDir()
	k := startKubelet(t, dir)
	n := newNode(gpu("GPU-aaaa", 0), gpu("GPU-bbbb", 1))
	startPlugin(t, dir, n)
	k.expect(128, 128)
	ill := []v1alpha1.NodeGPU{gpu("GPU-aaaa", 0), gpu("GPU-bbbb", 1)}
	ill[1].Fault = "it fell off the bus"
	n.set(0, func() { n.gpus = ill })
	k.expect(128, 64)
	n.set(1, func() { n.down = errors.New("the validator is off") })
	k.expect(0, 0)
	n.set(0, func() { n.gpus = []v1alpha1.NodeGPU{gpu("GPU-aaaa", 0)} }) // nothing to tell: none are offered
	n.set(1, func() { n.down = nil })
	k.expect(64, 64)
}

// TestKeep: a kubelet that starts is told of a plugin without slots.
func TestKeep(t *testing.T) {
	dir := t.TempDir()
	k := startKubelet(t, dir)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- Keep(ctx, dir, slog.New(slog.NewTextHandler(t.Output(), nil))) }()
	k.expect(0, 0)
	k.server.Stop()
	if err := os.Remove(filepath.Join(dir, kubeletSocket)); err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	startKubelet(t, dir).expect(0, 0)
	cancel()
	if err := next(t, ended); err != nil {
		t.Error(err)
	}
}

// A slot brings nothing but what keeps its container from starting without package nri.
func TestAllocateGivesNothing(t *testing.T) {
	dir := t.TempDir()
	k := startKubelet(t, dir)
	startPlugin(t, dir, newNode(gpu("GPU-aaaa", 0)))
	answer, err := next(t, k.client).Allocate(context.Background(), &kubelet.AllocateRequest{ContainerRequests: []*kubelet.ContainerAllocateRequest{
		{DevicesIds: []string{"slot-3"}}, {DevicesIds: []string{"slot-4"}},
	}})
	if err != nil || len(answer.ContainerResponses) != 2 {
		t.Fatalf("%v, %v", answer, err)
	}
	for _, r := range answer.ContainerResponses {
		if len(r.Envs) != 1 || r.Envs["NVIDIA_VISIBLE_DEVICES"] != "void" || !stops(r) || len(r.Devices)+len(r.CdiDevices)+len(r.Annotations) > 0 {
			t.Errorf("a container gets %v", r)
		}
	}
}

// stops reports whether a container with this answer cannot start by itself.
func stops(r *kubelet.ContainerAllocateResponse) bool {
	return len(r.Mounts) == 1 && r.Mounts[0].ContainerPath == v1alpha1.Stopper && r.Mounts[0].HostPath == "/dev/null"
}

// The kubelet makes no container while nobody would put its share in, and is told why.
func TestStartWaitsForTheRuntime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(gpu("GPU-aaaa", 0))
		s := &service{config: Config{Guard: n}}
		if options, err := s.GetDevicePluginOptions(t.Context(), nil); err != nil || !options.PreStartRequired {
			t.Errorf("the kubelet does not ask before it starts a container: %v, %v", options, err)
		}
		start := func() error { _, err := s.PreStartContainer(t.Context(), nil); return err }
		if err := start(); err != nil {
			t.Errorf("while the runtime asks: %v", err)
		}
		n.set(1, func() { n.down = errors.New("NRI is off") })
		if err := start(); err == nil || !strings.Contains(err.Error(), "NRI is off") {
			t.Errorf("while it does not: %v", err)
		}
		answers := make(chan error)
		go func() { answers <- start() }()
		synctest.Wait()
		n.set(1, func() { n.down = nil })
		if err := <-answers; err != nil {
			t.Errorf("when it asks again meanwhile: %v", err)
		}
	})
}

func TestKubeletThatComesLateAndRestarts(t *testing.T) {
	dir := t.TempDir()
	startPlugin(t, dir, newNode(gpu("GPU-aaaa", 0)))
	for range 3 {
		k := startKubelet(t, dir)
		k.expect(64, 64)
		k.server.Stop() // removes its socket
	}
}

func TestKubeletThatEmptiesTheFolder(t *testing.T) {
	dir := t.TempDir()
	k := startKubelet(t, dir)
	startPlugin(t, dir, newNode(gpu("GPU-aaaa", 0)))
	k.expect(64, 64)
	if err := os.Remove(filepath.Join(dir, socketName)); err != nil {
		t.Fatal(err)
	}
	k.expect(64, 64)
}

func TestStaleSocket(t *testing.T) {
	dir := t.TempDir()
	stale, err := net.ListenUnix("unix", &net.UnixAddr{Name: filepath.Join(dir, socketName)})
	if err != nil {
		t.Fatal(err)
	}
	stale.SetUnlinkOnClose(false)
	stale.Close()
	k := startKubelet(t, dir)
	startPlugin(t, dir, newNode(gpu("GPU-aaaa", 0)))
	k.expect(64, 64)
}

// TestKubeletThatDoesNotAnswer has the socket of a kubelet that was killed. What the
// plugin makes and removes beside it is no reason to try again at once.
func TestKubeletThatDoesNotAnswer(t *testing.T) {
	dir := t.TempDir()
	listener, err := net.Listen("unix", filepath.Join(dir, kubeletSocket))
	if err != nil {
		t.Fatal(err)
	}
	tries := make(chan time.Time, 100)
	var accepting sync.WaitGroup
	accepting.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			tries <- time.Now()
			conn.Close()
		}
	})
	t.Cleanup(func() { listener.Close(); accepting.Wait() })
	startPlugin(t, dir, newNode(gpu("GPU-aaaa", 0)))
	first := next(t, tries)
	if second := next(t, tries); second.Sub(first) < 400*time.Millisecond {
		t.Errorf("tried again after %s", second.Sub(first))
	}
}
