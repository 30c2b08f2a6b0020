package deviceplugin

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	kubelet "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
)

const shared = "nvidia.com/gpu.shared"

// replicasOf are units of one GPU.
func replicasOf(uuid string, n int, single bool) []Unit {
	var all []Unit
	for i := range n {
		all = append(all, Unit{Replica: v1alpha1.Replica{UUID: uuid, Of: n, Number: i, Backend: v1alpha1.BackendTimeslice}, Resource: shared, Single: single})
	}
	return all
}

// policy is what a node units, settable.
type policy struct {
	mu      sync.Mutex
	units   []Unit
	changed chan struct{}
	given   [][]v1alpha1.Replica
}

func (p *policy) Units() (units []Unit, divided, sick <-chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.units, p.changed, nil
}

func (p *policy) set(units []Unit) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.units = units
	close(p.changed)
	p.changed = make(chan struct{})
}

// registrar takes registrations of plugins of any name.
type registrar struct {
	kubelet.UnimplementedRegistrationServer
	requests chan *kubelet.RegisterRequest
}

func (r *registrar) Register(_ context.Context, request *kubelet.RegisterRequest) (*kubelet.Empty, error) {
	r.requests <- request
	return &kubelet.Empty{}, nil
}

// of waits for the registration of a resource, and forgets those of others.
func (r *registrar) of(t *testing.T, resource string) *kubelet.RegisterRequest {
	t.Helper()
	for {
		if request := next(t, r.requests); request.ResourceName == resource {
			return request
		}
	}
}

func startRegistrar(t *testing.T, dir string) *registrar {
	t.Helper()
	listener, err := net.Listen("unix", filepath.Join(dir, kubeletSocket))
	if err != nil {
		t.Fatal(err)
	}
	r := &registrar{requests: make(chan *kubelet.RegisterRequest, 10)}
	server := grpc.NewServer()
	kubelet.RegisterRegistrationServer(server, r)
	go server.Serve(listener)
	t.Cleanup(server.Stop)
	return r
}

func startReplicas(t *testing.T, dir string, n *node, p *policy) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	r := Replicas{
		Dir: dir, Guard: n, Resources: []string{shared}, Units: p.Units, Packed: func() bool { return false },
		Given: func(given []v1alpha1.Replica) { p.given = append(p.given, given) }, Log: slog.New(slog.NewTextHandler(t.Output(), nil)),
	}
	go func() { ended <- r.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := next(t, ended); err != nil {
			t.Error(err)
		}
	})
}

func TestReplicasAreCountedAndGiven(t *testing.T) {
	dir := t.TempDir()
	k := startRegistrar(t, dir)
	n, p := newNode(), &policy{changed: make(chan struct{})}
	p.units = append(replicasOf("GPU-a", 2, false), Unit{Replica: v1alpha1.Replica{UUID: "GPU-b"}, Resource: "nvidia.com/gpu"})
	startReplicas(t, dir, n, p)
	request := k.of(t, shared)
	if !request.Options.GetPreferredAllocationAvailable || !request.Options.PreStartRequired {
		t.Errorf("registered %v", request)
	}
	client := dial(t, filepath.Join(dir, request.Endpoint))
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	defer cancel()
	stream, err := client.ListAndWatch(ctx, &kubelet.Empty{})
	if err != nil {
		t.Fatal(err)
	}
	expect := func(want string) {
		t.Helper()
		list, err := stream.Recv()
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, d := range list.Devices {
			got = append(got, d.ID+" "+d.Health)
		}
		if text := strings.Join(got, ", "); text != want {
			t.Errorf("counted %s, not %s", text, want)
		}
	}
	expect("GPU-a::0 Healthy, GPU-a::1 Healthy")
	answer, err := client.Allocate(t.Context(), &kubelet.AllocateRequest{ContainerRequests: []*kubelet.ContainerAllocateRequest{{DevicesIds: []string{"GPU-a::1"}}}})
	if err != nil {
		t.Fatal(err)
	}
	got := answer.ContainerResponses[0]
	given, err := v1alpha1.ParseReplicas(got.Annotations[v1alpha1.ReplicasAnnotation])
	if err != nil || len(given) != 1 || given[0] != (v1alpha1.Replica{UUID: "GPU-a", Of: 2, Number: 1, Backend: "timeslice"}) || got.Envs["NVIDIA_VISIBLE_DEVICES"] != "void" || !stops(got) {
		t.Errorf("a container gets %v, %v", got, err)
	}
	if len(p.given) != 1 {
		t.Errorf("told %d times what was given", len(p.given))
	}
	faulty := replicasOf("GPU-a", 1, false)
	faulty[0].Faulty = true
	p.set(faulty)
	expect("GPU-a::0 Unhealthy")
	n.set(1, func() { n.down = errors.New("the runtime is away") })
	expect("")
}

// A profile is registered when the first instance of it is there, and its instances are given one to a container.
func TestInstancesAreCountedAndGiven(t *testing.T) {
	dir := t.TempDir()
	k := startRegistrar(t, dir)
	p := &policy{changed: make(chan struct{})}
	startReplicas(t, dir, newNode(), p)
	k.of(t, shared)
	const mig = "nvidia.com/mig-1g.10gb"
	one := Unit{Resource: mig, Replica: v1alpha1.Replica{UUID: "GPU-a", Instance: "MIG-1", Profile: "1g.10gb", Start: 6, Memory: 10 << 30}}
	two := one
	two.Instance, two.Start = "MIG-2", 5
	p.set([]Unit{one, two})
	request := k.of(t, mig)
	if request.Endpoint != "divvy-mig-1g-10gb.sock" {
		t.Errorf("registered %v", request)
	}
	client := dial(t, filepath.Join(dir, request.Endpoint))
	allocate := func(ids ...string) (*kubelet.AllocateResponse, error) {
		return client.Allocate(t.Context(), &kubelet.AllocateRequest{ContainerRequests: []*kubelet.ContainerAllocateRequest{{DevicesIds: ids}}})
	}
	answer, err := allocate("MIG-2")
	if err != nil {
		t.Fatal(err)
	}
	given, err := v1alpha1.ParseReplicas(answer.ContainerResponses[0].Annotations[v1alpha1.ReplicasAnnotation])
	if err != nil || len(given) != 1 || given[0] != two.Replica {
		t.Errorf("a container gets %v, %v", given, err)
	}
	if _, err := allocate("MIG-1", "MIG-2"); err == nil || !strings.Contains(err.Error(), "a process can use one instance alone") {
		t.Errorf("two instances for one container: %v", err)
	}
}

func dial(t *testing.T, path string) kubelet.DevicePluginClient {
	t.Helper()
	conn, err := grpc.NewClient("unix://"+path, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return kubelet.NewDevicePluginClient(conn)
}

func TestGive(t *testing.T) {
	units := slices.Concat(replicasOf("GPU-a", 2, true), replicasOf("GPU-b", 2, false))
	for _, c := range []struct {
		ids  []string
		want string
	}{
		{[]string{"GPU-a::0"}, ""},
		{[]string{"GPU-b::0", "GPU-b::1"}, ""},
		{[]string{"GPU-a::0", "GPU-a::1"}, "failRequestsGreaterThanOne allows 1"},
		{[]string{"GPU-a::2"}, "the node's policy has changed"},
	} {
		given, err := give(units, shared, c.ids)
		if c.want == "" && (err != nil || len(given) != len(c.ids)) || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%v gives %v, %v", c.ids, given, err)
		}
	}
	whole := []Unit{{Replica: v1alpha1.Replica{UUID: "GPU-a"}, Single: true}, {Replica: v1alpha1.Replica{UUID: "GPU-b"}, Single: true}}
	if _, err := give(whole, "nvidia.com/gpu", []string{"GPU-a", "GPU-b"}); err != nil {
		t.Errorf("two whole GPUs: %v", err)
	}
}

func TestPrefer(t *testing.T) {
	units := slices.Concat(replicasOf("GPU-a", 3, false), replicasOf("GPU-b", 3, false))
	available := []string{"GPU-a::1", "GPU-a::2", "GPU-b::0", "GPU-b::1", "GPU-b::2"}
	for _, c := range []struct {
		must   []string
		size   int
		packed bool
		want   string
	}{
		{nil, 1, false, "GPU-b::0"},
		{nil, 1, true, "GPU-a::1"},
		{nil, 3, false, "GPU-b::0 GPU-a::1 GPU-b::1"},
		{nil, 3, true, "GPU-a::1 GPU-a::2 GPU-b::0"},
		{[]string{"GPU-a::2"}, 2, false, "GPU-a::2 GPU-b::0"},
		{nil, 9, false, "GPU-b::0 GPU-a::1 GPU-b::1 GPU-a::2 GPU-b::2"},
	} {
		if got := strings.Join(prefer(units, available, c.must, c.size, c.packed), " "); got != c.want {
			t.Errorf("%d, packed %v: %s, not %s", c.size, c.packed, got, c.want)
		}
	}
}

// A resource that is kept is registered, with no devices.
func TestKeepReplicas(t *testing.T) {
	dir := t.TempDir()
	k := startRegistrar(t, dir)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		ended <- KeepReplicas(ctx, dir, []string{shared, "nvidia.com/mig-1g.10gb"}, slog.New(slog.DiscardHandler))
	}()
	found := map[string]string{}
	for range 2 {
		request := next(t, k.requests)
		found[request.ResourceName] = request.Endpoint
	}
	stream, err := dial(t, filepath.Join(dir, found["nvidia.com/mig-1g.10gb"])).ListAndWatch(t.Context(), &kubelet.Empty{})
	if err != nil {
		t.Fatal(err)
	}
	if list, err := stream.Recv(); err != nil || len(list.Devices) > 0 || found[shared] == "" {
		t.Errorf("of %v there are %v, %v", found, list, err)
	}
	cancel()
	if err := next(t, ended); err != nil {
		t.Error(err)
	}
}

// Several replicas of a container are of one instance.
func TestPreferOneInstance(t *testing.T) {
	var units []Unit
	for _, instance := range []string{"MIG-1", "MIG-2"} {
		for i := range 3 {
			units = append(units, Unit{Replica: v1alpha1.Replica{UUID: "GPU-a", Instance: instance, Of: 3, Number: i}})
		}
	}
	available := []string{"MIG-1::1", "MIG-1::2", "MIG-2::0", "MIG-2::1", "MIG-2::2"}
	for packed, want := range map[bool]string{false: "MIG-2::0 MIG-2::1", true: "MIG-1::1 MIG-1::2"} {
		if got := strings.Join(prefer(units, available, nil, 2, packed), " "); got != want {
			t.Errorf("packed %v: %s, not %s", packed, got, want)
		}
	}
}

// Beside NVIDIA's own device plugin nothing is registered, and where it comes later it is left the resource.
func TestBesideNVIDIAsPlugin(t *testing.T) {
	dir := t.TempDir()
	if err := foreign(t.Context(), dir); err != nil {
		t.Fatal(err)
	}
	stale, err := net.ListenUnix("unix", &net.UnixAddr{Name: filepath.Join(dir, "nvidia-gpu.sock"), Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	stale.SetUnlinkOnClose(false)
	stale.Close()
	if err := foreign(t.Context(), dir); err != nil {
		t.Errorf("a socket that nobody serves: %v", err)
	}
	k := startRegistrar(t, dir)
	startReplicas(t, dir, newNode(), &policy{changed: make(chan struct{}), units: replicasOf("GPU-a", 2, false)})
	client := dial(t, filepath.Join(dir, next(t, k.requests).Endpoint))
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	defer cancel()
	stream, err := client.ListAndWatch(ctx, &kubelet.Empty{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := stream.Recv(); err != nil {
		t.Fatal(err)
	}
	theirs, err := syscall.Socket(syscall.AF_UNIX, syscall.SOCK_STREAM, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer syscall.Close(theirs)
	if err := syscall.Bind(theirs, &syscall.SockaddrUnix{Name: filepath.Join(dir, "nvidia-gpu.shared.sock")}); err != nil {
		t.Fatal(err)
	}
	for range 1000 { // its file is seen long before it listens
		if err := foreign(t.Context(), dir); err != nil {
			t.Fatal(err)
		}
	}
	if err := syscall.Listen(theirs, 8); err != nil {
		t.Fatal(err)
	}
	if err := foreign(t.Context(), dir); !errors.Is(err, ErrTheirs) {
		t.Errorf("beside a socket that is served: %v", err)
	}
	if list, err := stream.Recv(); err == nil || status.Code(err) == codes.DeadlineExceeded {
		t.Errorf("the stream went on with %v: %v", list, err)
	}
}
