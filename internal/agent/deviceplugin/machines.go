package deviceplugin

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	kubelet "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"github.com/divvy-gpu/divvy/internal/agent/socket"
)

// MachineUnit is a device that a virtual machine can have.
type MachineUnit struct {
	// ID names the device, and Resource is the name under which it is counted.
	ID, Resource string
	// NUMANode is negative where it is unknown.
	NUMANode int
	// Faulty is true while it cannot be given away.
	Faulty bool
}

// MachineDevice is one that was given to a virtual machine.
type MachineDevice struct {
	// Address is the PCI function's, or UUID a mediated device's; the other one is empty.
	Address, UUID string
	// Nodes are the device nodes that the virtual machine opens.
	Nodes []string
}

// Machines is what [Machines.Run] works with.
type Machines struct {
	// Dir is the kubelet's for device plugins; left out it is the usual one.
	Dir string
	// Units returns what there is, and a channel that is closed when that changes.
	Units func() (units []MachineUnit, changed <-chan struct{})
	// Give makes a device ready for a new virtual machine.
	Give func(ctx context.Context, id string) (MachineDevice, error)
	Log  *slog.Logger
}

// The beginnings of the variables by which KubeVirt finds devices of a resource: PCI functions, and mediated devices.
const (
	pciVariable  = "PCI_RESOURCE_"
	mdevVariable = "MDEV_PCI_RESOURCE_"
)

// variableName writes a resource as KubeVirt does in the names of variables.
var variableName = strings.NewReplacer("/", "_", ".", "_")

// Run counts devices for the kubelet until ctx is done. A resource is counted from its first device on.
func (m *Machines) Run(ctx context.Context) error {
	if m.Dir == "" {
		m.Dir = kubelet.DevicePluginPath
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var running sync.WaitGroup
	defer running.Wait()
	defer cancel()
	counted := map[string]bool{}
	for {
		units, changed := m.Units()
		for _, u := range units {
			if counted[u.Resource] {
				continue
			}
			counted[u.Resource] = true
			watcher, err := socket.Watch(filepath.Join(m.Dir, kubeletSocket))
			if err != nil {
				return fmt.Errorf("wait for the kubelet: %w", err)
			}
			running.Go(func() { m.follow(ctx, watcher, u.Resource) })
		}
		select {
		case <-ctx.Done():
			return nil
		case <-changed:
		}
	}
}

// follow counts one resource for each kubelet that starts, until ctx is done.
func (m *Machines) follow(ctx context.Context, watcher *socket.Watcher, resource string) {
	defer watcher.Close()
	e := endpoint{
		dir: m.Dir, socket: socketOf(resource), resource: resource, options: &kubelet.DevicePluginOptions{},
		apart: func() error { return nil },
		server: func(stopped <-chan struct{}) kubelet.DevicePluginServer {
			return &machineService{machines: m, resource: resource, stopped: stopped}
		},
	}
	watcher.Follow(ctx,
		func(ctx context.Context) error { return e.serve(ctx, watcher) },
		func(err error) {
			if errors.Is(err, errKubeletRestarted) {
				m.Log.Info("the kubelet was restarted: counting devices for virtual machines again", "resource", resource)
				return
			}
			m.Log.Warn("cannot count devices for virtual machines for the kubelet", "resource", resource, "error", err)
		})
}

// machineService answers the kubelet about one resource.
type machineService struct {
	kubelet.UnimplementedDevicePluginServer
	machines *Machines
	resource string
	stopped  <-chan struct{}
}

// GetDevicePluginOptions asks for nothing optional.
func (s *machineService) GetDevicePluginOptions(context.Context, *kubelet.Empty) (*kubelet.DevicePluginOptions, error) {
	return &kubelet.DevicePluginOptions{}, nil
}

// units are those of the resource.
func (s *machineService) units() (units []MachineUnit, changed <-chan struct{}) {
	all, changed := s.machines.Units()
	return slices.DeleteFunc(slices.Clone(all), func(u MachineUnit) bool { return u.Resource != s.resource }), changed
}

// ListAndWatch sends the devices, and again when they change.
func (s *machineService) ListAndWatch(_ *kubelet.Empty, stream grpc.ServerStreamingServer[kubelet.ListAndWatchResponse]) error {
	var sent []MachineUnit
	for first := true; ; first = false {
		units, changed := s.units()
		if first || !slices.Equal(units, sent) {
			if err := stream.Send(&kubelet.ListAndWatchResponse{Devices: listed(units)}); err != nil {
				return fmt.Errorf("send devices to the kubelet: %w", err)
			}
			s.machines.Log.Info("counted devices for virtual machines", "resource", s.resource, "devices", len(units))
			sent = units
		}
		select {
		case <-changed:
		case <-s.stopped:
			return nil
		case <-stream.Context().Done():
			return nil
		}
	}
}

// listed renders units for the kubelet. It is pure.
func listed(units []MachineUnit) []*kubelet.Device {
	var all []*kubelet.Device
	for _, u := range units {
		d := &kubelet.Device{ID: u.ID, Health: kubelet.Healthy}
		if u.Faulty {
			d.Health = kubelet.Unhealthy
		}
		if u.NUMANode >= 0 {
			d.Topology = &kubelet.TopologyInfo{Nodes: []*kubelet.NUMANode{{ID: int64(u.NUMANode)}}}
		}
		all = append(all, d)
	}
	return all
}

// Allocate makes devices ready, and gives their nodes to the container with the variables by which KubeVirt finds them.
func (s *machineService) Allocate(ctx context.Context, request *kubelet.AllocateRequest) (*kubelet.AllocateResponse, error) {
	units, _ := s.units()
	answer := &kubelet.AllocateResponse{}
	for _, container := range request.GetContainerRequests() {
		var given []MachineDevice
		for _, id := range container.GetDevicesIds() {
			if !slices.ContainsFunc(units, func(u MachineUnit) bool { return u.ID == id }) {
				return nil, status.Errorf(codes.InvalidArgument, "%s has no %s any more", s.resource, id)
			}
			device, err := s.machines.Give(ctx, id)
			if err != nil {
				s.machines.Log.WarnContext(ctx, "cannot give a device to a virtual machine", "device", id, "error", err)
				return nil, status.Errorf(codes.Unavailable, "give %s to a virtual machine: %v", id, err)
			}
			given = append(given, device)
		}
		answer.ContainerResponses = append(answer.ContainerResponses, handedOver(s.resource, given))
	}
	return answer, nil
}

// handedOver is what a container gets with devices of a resource. It is pure.
func handedOver(resource string, given []MachineDevice) *kubelet.ContainerAllocateResponse {
	answer := &kubelet.ContainerAllocateResponse{Envs: map[string]string{}}
	name := strings.ToUpper(variableName.Replace(resource))
	nodes := []string{"/dev/vfio/vfio"}
	for _, d := range given {
		variable, value := pciVariable+name, d.Address
		if d.UUID != "" {
			variable, value = mdevVariable+name, d.UUID
		}
		if answer.Envs[variable] != "" {
			value = answer.Envs[variable] + "," + value
		}
		answer.Envs[variable] = value
		nodes = append(nodes, d.Nodes...)
	}
	for i, node := range nodes {
		if !slices.Contains(nodes[:i], node) {
			answer.Devices = append(answer.Devices, &kubelet.DeviceSpec{ContainerPath: node, HostPath: node, Permissions: "rwm"})
		}
	}
	return answer
}
