package deviceplugin

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	kubelet "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
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
	r := resources{
		dir: m.Dir, what: "devices for virtual machines", options: &kubelet.DevicePluginOptions{}, log: m.Log,
		named: func() (names []string, changed, also <-chan struct{}) {
			units, changed := m.Units()
			for _, u := range units {
				names = append(names, u.Resource)
			}
			return names, changed, nil
		},
		apart: func(context.Context) error { return nil },
		server: func(resource string, stopped <-chan struct{}) kubelet.DevicePluginServer {
			return &machineService{machines: m, resource: resource, stopped: stopped}
		},
	}
	return r.run(ctx)
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
	devices := sending[MachineUnit]{
		units: func() (units []MachineUnit, changed [3]<-chan struct{}) {
			units, changed[0] = s.units()
			return units, changed
		},
		shown: listed, what: "devices", stopped: s.stopped,
		noted: func(units []MachineUnit) {
			s.machines.Log.Info("counted devices for virtual machines", "resource", s.resource, "devices", len(units))
		},
	}
	return devices.run(stream)
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

// giveWait is how long the kubelet waits for the devices of a container. It asks without a limit of its own and starts no pod of the
// node meanwhile, whatever the pod has (endpoint.go in pkg/kubelet/cm/devicemanager). A driver that lets go of a device may take
// seconds, and one that never does must not stop the node.
const giveWait = 15 * time.Second

// Allocate makes devices ready, and gives their nodes to the container with the variables by which KubeVirt finds them.
func (s *machineService) Allocate(ctx context.Context, request *kubelet.AllocateRequest) (*kubelet.AllocateResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, giveWait)
	defer cancel()
	units, _ := s.units()
	answer := &kubelet.AllocateResponse{}
	for _, container := range request.GetContainerRequests() {
		var given []MachineDevice
		for _, id := range container.GetDevicesIds() {
			if !slices.ContainsFunc(units, func(u MachineUnit) bool { return u.ID == id }) {
				return nil, status.Errorf(codes.InvalidArgument, "%s has no %s any more", s.resource, id)
			}
			device, err := s.give(ctx, id)
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

// give makes a device ready, or returns an error when ctx is done: what waits for the kernel heeds no context. What was begun ends by
// itself, and then the device is back or ready for the next container.
func (s *machineService) give(ctx context.Context, id string) (MachineDevice, error) {
	given := make(chan struct{})
	var made MachineDevice
	var fault error
	go func() {
		defer close(given)
		made, fault = s.machines.Give(ctx, id)
	}()
	select {
	case <-given:
		return made, fault
	case <-ctx.Done():
		return MachineDevice{}, fmt.Errorf("wait until its driver lets go of it: %w", ctx.Err())
	}
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
