package deviceplugin

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	kubelet "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
)

const functions = "divvy.dev/vf_1002_74b5"

// offers are what a node offers to virtual machines, settable.
type offers struct {
	mu      sync.Mutex
	units   []MachineUnit
	changed chan struct{}
	fault   error
}

func (o *offers) Units() ([]MachineUnit, <-chan struct{}) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.units, o.changed
}

func (o *offers) set(fault error, units ...MachineUnit) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.units, o.fault = units, fault
	close(o.changed)
	o.changed = make(chan struct{})
}

func (o *offers) give(_ context.Context, id string) (MachineDevice, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return MachineDevice{Address: id, Nodes: []string{"/dev/vfio/" + id[len(id)-1:]}}, o.fault
}

func startMachines(t *testing.T, dir string, o *offers) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	m := Machines{Dir: dir, Units: o.Units, Give: o.give, Log: slog.New(slog.NewTextHandler(t.Output(), nil))}
	go func() { ended <- m.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := next(t, ended); err != nil {
			t.Error(err)
		}
	})
}

// Devices are counted from the first one on, given with what KubeVirt reads, and counted again when they change.
func TestMachinesAreCountedAndGiven(t *testing.T) {
	dir := t.TempDir()
	k := startRegistrar(t, dir)
	o := &offers{changed: make(chan struct{})}
	startMachines(t, dir, o)
	o.set(nil, MachineUnit{ID: "0000:c1:00.4", Resource: functions, NUMANode: 1}, MachineUnit{ID: "0000:c1:00.5", Resource: functions, NUMANode: -1, Faulty: true},
		MachineUnit{ID: "0000:5e:00.0", Resource: "divvy.dev/passthrough_10de_2235", NUMANode: -1})
	request := k.of(t, functions)
	plugin := dial(t, filepath.Join(dir, request.Endpoint))
	stream, err := plugin.ListAndWatch(t.Context(), &kubelet.Empty{})
	if err != nil {
		t.Fatal(err)
	}
	first, err := stream.Recv()
	if err != nil || len(first.Devices) != 2 || first.Devices[0].Health != kubelet.Healthy || first.Devices[0].Topology.Nodes[0].ID != 1 || first.Devices[1].Health != kubelet.Unhealthy || first.Devices[1].Topology != nil {
		t.Fatalf("%v, %v", first, err)
	}
	allocate := func(ids ...string) (*kubelet.AllocateResponse, error) {
		return plugin.Allocate(t.Context(), &kubelet.AllocateRequest{ContainerRequests: []*kubelet.ContainerAllocateRequest{{DevicesIds: ids}}})
	}
	answer, err := allocate("0000:c1:00.4", "0000:c1:00.5")
	if err != nil || len(answer.ContainerResponses) != 1 {
		t.Fatalf("%v, %v", answer, err)
	}
	if _, err := allocate("0000:5e:00.0"); status.Code(err) != codes.InvalidArgument {
		t.Errorf("a device of another resource: %v", err)
	}
	got := answer.ContainerResponses[0]
	if want := map[string]string{"PCI_RESOURCE_DIVVY_DEV_VF_1002_74B5": "0000:c1:00.4,0000:c1:00.5"}; !maps.Equal(got.Envs, want) {
		t.Errorf("variables %v, want %v", got.Envs, want)
	}
	var nodes []string
	for _, d := range got.Devices {
		nodes = append(nodes, d.ContainerPath)
	}
	if !slices.Equal(nodes, []string{"/dev/vfio/vfio", "/dev/vfio/4", "/dev/vfio/5"}) || len(got.Mounts) > 0 || len(got.Annotations) > 0 {
		t.Errorf("it gets %v", got)
	}
	o.set(errors.New("process 7 has it"), MachineUnit{ID: "0000:c1:00.4", Resource: functions})
	if second, err := stream.Recv(); err != nil || len(second.Devices) != 1 {
		t.Errorf("%v, %v", second, err)
	}
	o.set(errors.New("process 7 has it"), MachineUnit{ID: "0000:c1:00.4", Resource: functions, Faulty: true})
	if third, err := stream.Recv(); err != nil || len(third.Devices) != 1 || third.Devices[0].Health != kubelet.Unhealthy {
		t.Errorf("one that has become faulty: %v, %v", third, err)
	}
	if _, err := allocate("0000:c1:00.4"); status.Code(err) != codes.Unavailable || !strings.Contains(err.Error(), "give 0000:c1:00.4 to a virtual machine: process 7 has it") {
		t.Errorf("a device that somebody holds: %v", err)
	}
	if _, err := allocate("0000:c1:00.5"); status.Code(err) != codes.InvalidArgument {
		t.Errorf("a device that is gone: %v", err)
	}
}

// A device that does not get ready is refused after a while: the kubelet starts no pod before it has its answer.
func TestMachineThatDoesNotGetReady(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		released := make(chan struct{})
		defer close(released)
		o := &offers{units: []MachineUnit{{ID: "0000:c1:00.4", Resource: functions}}}
		s := machineService{resource: functions, machines: &Machines{
			Units: o.Units, Log: slog.New(slog.DiscardHandler),
			Give: func(context.Context, string) (MachineDevice, error) {
				select {
				case <-released:
				case <-time.After(time.Hour): // so that one without a limit fails the test, and does not hang it
				}
				return MachineDevice{}, nil
			},
		}}
		began := time.Now()
		_, err := s.Allocate(t.Context(), &kubelet.AllocateRequest{ContainerRequests: []*kubelet.ContainerAllocateRequest{{DevicesIds: []string{"0000:c1:00.4"}}}})
		if took := time.Since(began); took != giveWait || status.Code(err) != codes.Unavailable || !strings.Contains(err.Error(), "wait until its driver lets go of it") {
			t.Errorf("answered after %v: %v", took, err)
		}
	})
}

// The names of variables are those that KubeVirt makes of a resource's name.
func TestVariables(t *testing.T) {
	for _, c := range []struct {
		resource string
		given    []MachineDevice
		want     map[string]string
	}{
		{"divvy.dev/vgpu_471", []MachineDevice{{UUID: "u1"}, {UUID: "u2"}}, map[string]string{"MDEV_PCI_RESOURCE_DIVVY_DEV_VGPU_471": "u1,u2"}},
		{"divvy.dev/passthrough_10de_2331", []MachineDevice{{Address: "0000:3b:00.0"}}, map[string]string{"PCI_RESOURCE_DIVVY_DEV_PASSTHROUGH_10DE_2331": "0000:3b:00.0"}},
	} {
		if got := handedOver(c.resource, c.given); !maps.Equal(got.Envs, c.want) {
			t.Errorf("%v, want %v", got.Envs, c.want)
		}
	}
	// Devices of one group have one node, which a container cannot be given twice.
	shared := []MachineDevice{{Address: "0000:3b:00.0", Nodes: []string{"/dev/vfio/8"}}, {Address: "0000:3b:00.1", Nodes: []string{"/dev/vfio/8"}}}
	if got := handedOver("divvy.dev/passthrough_10de_2331", shared); len(got.Devices) != 2 {
		t.Errorf("it gets the nodes %v", got.Devices)
	}
}
