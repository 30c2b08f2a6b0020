package deviceplugin

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	kubelet "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
)

// Unit is a replica, a whole GPU or a whole MIG instance that containers can have.
type Unit struct {
	v1alpha1.Replica
	// Resource is the name under which it is counted.
	Resource string
	// Single is true where a container may have one of these alone.
	Single bool
	// Faulty is true while nothing new may use it.
	Faulty bool
}

// Replicas is what [Replicas.Run] works with.
type Replicas struct {
	// Dir is the kubelet's for device plugins; left out it is the usual one.
	Dir   string
	Guard Guard
	// Resources are the names that are counted also while there are no units of them. Others are counted from the first
	// unit on.
	Resources []string
	// Units returns what there is, and two channels of which one is closed when that changes.
	Units func() (units []Unit, divided, sick <-chan struct{})
	// Given is called with what a container gets before the kubelet is answered.
	Given func([]v1alpha1.Replica)
	// Packed prefers GPUs of which replicas are given out; otherwise those of which the fewest are.
	Packed func() bool
	Log    *slog.Logger
}

// ErrTheirs is returned while NVIDIA's own device plugin serves the kubelet of the node: two plugins would take the
// resource from each other and give away the same GPUs.
var ErrTheirs = errors.New("NVIDIA's device plugin serves this node: remove it from the node, or switch agent.devicePlugin off")

// Run counts replicas for the kubelet under the names of NVIDIA's device plugin until ctx is done. The container runtime
// gets them into containers, by [v1alpha1.ReplicasAnnotation] and package nri.
func (r *Replicas) Run(ctx context.Context) error {
	if r.Dir == "" {
		r.Dir = kubelet.DevicePluginPath
	}
	all := resources{
		dir: r.Dir, what: "replicas", options: replicaOptions(), log: r.Log,
		named: func() (names []string, divided, sick <-chan struct{}) {
			units, divided, sick := r.Units()
			names = slices.Clone(r.Resources)
			for _, o := range units {
				names = append(names, o.Resource)
			}
			return names, divided, sick
		},
		apart: func(ctx context.Context) error { return foreign(ctx, r.Dir) },
		server: func(resource string, stopped <-chan struct{}) kubelet.DevicePluginServer {
			return &replicaService{replicas: r, resource: resource, stopped: stopped}
		},
	}
	return all.run(ctx)
}

// KeepReplicas counts none of these resources until ctx is done, for containers that have some: see [Keep]. Dir is as in
// [Config].
func KeepReplicas(ctx context.Context, dir string, resources []string, log *slog.Logger) error {
	r := Replicas{
		Dir: dir, Guard: nobody{}, Resources: resources, Packed: func() bool { return false }, Given: func([]v1alpha1.Replica) {}, Log: log,
		Units: func() (units []Unit, divided, sick <-chan struct{}) { return nil, nil, nil },
	}
	return r.Run(ctx)
}

// foreign returns [ErrTheirs] if something listens at a socket of NVIDIA's device plugin, which it names after its
// resources: nvidia-gpu.sock.
func foreign(ctx context.Context, dir string) error {
	paths, err := filepath.Glob(filepath.Join(dir, "nvidia*.sock"))
	if err != nil {
		return fmt.Errorf("look for other device plugins: %w", err)
	}
	for _, path := range paths {
		conn, err := (&net.Dialer{Timeout: time.Second}).DialContext(ctx, "unix", path)
		if err == nil {
			_ = conn.Close()
			return fmt.Errorf("%w (%s)", ErrTheirs, filepath.Base(path))
		}
	}
	return nil
}

// replicaService answers the kubelet about one resource.
type replicaService struct {
	kubelet.UnimplementedDevicePluginServer
	replicas *Replicas
	resource string
	stopped  <-chan struct{}
}

// GetDevicePluginOptions asks to be asked which replicas go together, and before a container is made.
func (s *replicaService) GetDevicePluginOptions(context.Context, *kubelet.Empty) (*kubelet.DevicePluginOptions, error) {
	return replicaOptions(), nil
}

func replicaOptions() *kubelet.DevicePluginOptions {
	return &kubelet.DevicePluginOptions{GetPreferredAllocationAvailable: true, PreStartRequired: true}
}

// units are those of the resource.
func (s *replicaService) units() (units []Unit, divided, sick <-chan struct{}) {
	all, divided, sick := s.replicas.Units()
	return slices.DeleteFunc(slices.Clone(all), func(o Unit) bool { return o.Resource != s.resource }), divided, sick
}

// ListAndWatch sends the replicas, and again when they change.
func (s *replicaService) ListAndWatch(_ *kubelet.Empty, stream grpc.ServerStreamingServer[kubelet.ListAndWatchResponse]) error {
	var down error
	devices := sending[Unit]{
		units: func() (units []Unit, changed [3]<-chan struct{}) {
			units, changed[0], changed[1] = s.units()
			if changed[2], down = s.replicas.Guard.Down(); down != nil {
				units = nil
			}
			return units, changed
		},
		shown: counted, what: "replicas", stopped: s.stopped,
		noted: func(units []Unit) {
			s.replicas.Log.Info("counted replicas", "resource", s.resource, "replicas", len(units), "guard", down)
		},
	}
	return devices.run(stream)
}

// counted renders units for the kubelet. It is pure.
func counted(units []Unit) []*kubelet.Device {
	var all []*kubelet.Device
	for _, o := range units {
		health := kubelet.Healthy
		if o.Faulty {
			health = kubelet.Unhealthy
		}
		all = append(all, &kubelet.Device{ID: o.ID(), Health: health})
	}
	return all
}

// Allocate says to the runtime, by an annotation, what each container gets.
func (s *replicaService) Allocate(_ context.Context, request *kubelet.AllocateRequest) (*kubelet.AllocateResponse, error) {
	units, _, _ := s.units()
	answer := &kubelet.AllocateResponse{}
	for _, container := range request.GetContainerRequests() {
		given, err := give(units, s.resource, container.GetDevicesIds())
		if err != nil {
			return nil, status.Error(codes.InvalidArgument, err.Error())
		}
		s.replicas.Given(given)
		answer.ContainerResponses = append(answer.ContainerResponses, &kubelet.ContainerAllocateResponse{
			Envs:        map[string]string{"NVIDIA_VISIBLE_DEVICES": "void"},
			Mounts:      stopper(),
			Annotations: map[string]string{v1alpha1.ReplicasAnnotation: v1alpha1.ReplicasText(given)},
		})
	}
	return answer, nil
}

// give finds the replicas with these names. It is pure.
func give(units []Unit, resource string, ids []string) ([]v1alpha1.Replica, error) {
	var given []v1alpha1.Replica
	for _, id := range ids {
		i := slices.IndexFunc(units, func(o Unit) bool { return o.ID() == id })
		if i < 0 {
			return nil, fmt.Errorf("%s has no %s: the node's policy has changed", resource, id)
		}
		if units[i].Single && units[i].Of > 0 && len(ids) > 1 {
			return nil, fmt.Errorf("the container asks for %d of %s, and the node's failRequestsGreaterThanOne allows 1", len(ids), resource)
		}
		given = append(given, units[i].Replica)
		if first := given[0].Instance; first != units[i].Instance {
			return nil, fmt.Errorf("the container asks for %d of %s, which are several MIG instances: ask for 1, because a process can use one instance alone", len(ids), resource)
		}
	}
	return given, nil
}

// GetPreferredAllocation chooses replicas that go together.
func (s *replicaService) GetPreferredAllocation(_ context.Context, request *kubelet.PreferredAllocationRequest) (*kubelet.PreferredAllocationResponse, error) {
	units, _, _ := s.units()
	answer := &kubelet.PreferredAllocationResponse{}
	for _, c := range request.GetContainerRequests() {
		ids := prefer(units, c.GetAvailableDeviceIDs(), c.GetMustIncludeDeviceIDs(), int(c.GetAllocationSize()), s.replicas.Packed())
		answer.ContainerResponses = append(answer.ContainerResponses, &kubelet.ContainerPreferredAllocationResponse{DeviceIDs: ids})
	}
	return answer, nil
}

// prefer chooses size of the available replicas, among them those that must be: packed from the GPUs, or MIG instances, of
// which the most are given out, otherwise from those of which the fewest are. Replicas of one container are of one
// instance, as far as that has them. It is pure.
func prefer(units []Unit, available, must []string, size int, packed bool) []string {
	taken, instance := map[string]int{}, map[string]bool{}
	for _, o := range units {
		taken[o.Device()]++
		instance[o.Device()] = o.Instance != ""
	}
	gpu := func(id string) string { uuid, _, _ := strings.Cut(id, "::"); return uuid }
	for _, id := range available {
		taken[gpu(id)]--
	}
	chosen := slices.Clone(must)
	for _, id := range must {
		taken[gpu(id)]++
	}
	left := slices.DeleteFunc(slices.Clone(available), func(id string) bool { return slices.Contains(must, id) })
	for len(chosen) < size && len(left) > 0 {
		best := slices.MinFunc(left, func(a, b string) int {
			order := cmp.Compare(taken[gpu(a)], taken[gpu(b)])
			if packed {
				order = -order
			}
			if len(chosen) > 0 && instance[gpu(chosen[0])] {
				order = cmp.Or(differ(gpu(a), gpu(chosen[0]))-differ(gpu(b), gpu(chosen[0])), order)
			}
			return cmp.Or(order, cmp.Compare(a, b))
		})
		chosen = append(chosen, best)
		taken[gpu(best)]++
		left = slices.DeleteFunc(left, func(id string) bool { return id == best })
	}
	return chosen
}

// differ is 1 for two names and 0 for one.
func differ(a, b string) int {
	if a == b {
		return 0
	}
	return 1
}
