package deviceplugin

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	kubelet "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/agent/socket"
)

const (
	kubeletSocket   = "kubelet.sock"
	registerTimeout = 10 * time.Second
)

// errKubeletRestarted ends serve: a kubelet that starts knows of no plugins and
// removes their sockets.
var errKubeletRestarted = errors.New("the kubelet was restarted")

// serve advertises slots to one kubelet.
func (c Config) serve(ctx context.Context, watcher *socket.Watcher) error {
	e := endpoint{
		dir: c.Dir, socket: socketName, resource: v1alpha1.SlotResource, options: slotOptions(),
		apart:  func() error { return nil },
		server: func(stopped <-chan struct{}) kubelet.DevicePluginServer { return &service{config: c, stopped: stopped} },
	}
	return e.serve(ctx, watcher)
}

// endpoint is a device plugin as the kubelet knows it.
type endpoint struct {
	// dir is the kubelet's folder, and socket the plugin's in it.
	dir, socket, resource string
	options               *kubelet.DevicePluginOptions
	// apart returns why the resource cannot be served beside somebody else.
	apart func() error
	// server makes what answers the kubelet until stopped is closed.
	server func(stopped <-chan struct{}) kubelet.DevicePluginServer
}

// serve serves one kubelet.
func (e *endpoint) serve(ctx context.Context, watcher *socket.Watcher) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if err := e.apart(); err != nil {
		return err
	}
	own, theirs := filepath.Join(e.dir, e.socket), filepath.Join(e.dir, kubeletSocket)
	known := socket.Identify(theirs)
	if known == (socket.ID{}) {
		return fmt.Errorf("register with the kubelet: %s does not exist: check that a kubelet runs on this node and --kubelet-dir names its directory", theirs)
	}
	if err := os.Remove(own); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("remove what an earlier agent left: %w", err)
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "unix", own)
	if err != nil {
		return fmt.Errorf("listen for the kubelet: %w", err)
	}
	ours := socket.Identify(own)
	server := grpc.NewServer()
	kubelet.RegisterDevicePluginServer(server, e.server(ctx.Done()))
	var fault error
	served := make(chan struct{})
	go func() {
		defer close(served)
		fault = server.Serve(listener)
	}()
	defer func() { cancel(); server.Stop(); <-served }()
	if err := e.register(ctx, theirs); err != nil {
		return err
	}
	again := time.NewTicker(apartAgain)
	defer again.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-served:
			return fmt.Errorf("serve the kubelet: %w", fault)
		case <-watcher.Changed():
		case <-again.C:
		}
		if socket.Identify(theirs) != known || socket.Identify(own) != ours {
			return errKubeletRestarted
		}
		if err := e.apart(); err != nil {
			return err
		}
	}
}

// apartAgain is how often it is asked who else serves the resource: a socket is seen when it is made, and its owner may listen a moment
// later.
const apartAgain = 2 * time.Second

func (e *endpoint) register(ctx context.Context, path string) error {
	ctx, cancel := context.WithTimeout(ctx, registerTimeout)
	defer cancel()
	conn, err := grpc.NewClient("unix://"+path, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return fmt.Errorf("connect to the kubelet: %w", err)
	}
	defer func() { _ = conn.Close() }()
	_, err = kubelet.NewRegistrationClient(conn).Register(ctx, &kubelet.RegisterRequest{
		Version: kubelet.Version, Endpoint: e.socket, ResourceName: e.resource, Options: e.options,
	})
	if err != nil {
		return fmt.Errorf("register with the kubelet: %w", err)
	}
	return nil
}

// service answers the kubelet.
type service struct {
	kubelet.UnimplementedDevicePluginServer
	config  Config
	stopped <-chan struct{}
}

// GetDevicePluginOptions asks to be asked before a container is made. All slots are equal.
func (s *service) GetDevicePluginOptions(context.Context, *kubelet.Empty) (*kubelet.DevicePluginOptions, error) {
	return slotOptions(), nil
}

func slotOptions() *kubelet.DevicePluginOptions {
	return &kubelet.DevicePluginOptions{PreStartRequired: true}
}

// ListAndWatch sends the slots, and again when they change.
func (s *service) ListAndWatch(_ *kubelet.Empty, stream grpc.ServerStreamingServer[kubelet.ListAndWatchResponse]) error {
	var down error
	devices := sending[count]{
		units: func() (units []count, changed [3]<-chan struct{}) {
			gpus, gpusChanged := s.config.GPUs()
			changed[0] = gpusChanged
			changed[1], down = s.config.Guard.Down()
			if s.config.Held != nil {
				_, changed[2] = s.config.Held()
			}
			return []count{countSlots(gpus, down)}, changed
		},
		shown: func(units []count) []*kubelet.Device { return units[0].slots() }, what: "slots", stopped: s.stopped,
		noted: func(units []count) {
			s.config.Log.Info("advertised slots", "slots", units[0].total, "healthy", units[0].healthy, "guard", down)
		},
	}
	return devices.run(stream)
}

// Allocate sets the variable that keeps NVIDIA's runtime from giving every GPU to a
// container that names none, and keeps it from starting without its share.
func (s *service) Allocate(_ context.Context, request *kubelet.AllocateRequest) (*kubelet.AllocateResponse, error) {
	answer := &kubelet.AllocateResponse{}
	for range request.GetContainerRequests() {
		answer.ContainerResponses = append(answer.ContainerResponses, &kubelet.ContainerAllocateResponse{
			Envs: map[string]string{"NVIDIA_VISIBLE_DEVICES": "void"}, Mounts: stopper(),
		})
	}
	return answer, nil
}

// count is how many slots there are, and how many of them can be given out.
type count struct {
	total, healthy int
}

// countSlots counts the slots. Those of a faulty GPU stay in the node's capacity and
// leave what is allocatable. It is pure.
func countSlots(gpus []v1alpha1.NodeGPU, down error) count {
	if down != nil {
		return count{}
	}
	var n count
	for _, g := range gpus {
		n.total += v1alpha1.SlotsPerGPU
		if g.Fault == "" {
			n.healthy += v1alpha1.SlotsPerGPU
		}
	}
	return n
}

// slots lists them. No slot belongs to a GPU, so any of them may be the unhealthy ones.
func (n count) slots() []*kubelet.Device {
	var all []*kubelet.Device
	for i := range n.total {
		health := kubelet.Healthy
		if i >= n.healthy {
			health = kubelet.Unhealthy
		}
		all = append(all, &kubelet.Device{ID: fmt.Sprintf("slot-%d", i), Health: health})
	}
	return all
}
