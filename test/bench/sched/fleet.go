package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/agent/dra/pool"
	"github.com/divvy-gpu/divvy/internal/hostfile"
	"github.com/divvy-gpu/divvy/internal/simgpu"
)

// machineName is the machine that every node is: eight GPUs, each with a PCIe switch, all linked.
const machineName = "h100x8"

// inventory is a simulated machine's GPUs, as its agent describes them.
type inventory []pool.GPU

// readInventory takes the model from the simulated machine and the places of the GPUs from the recorded host.
func readInventory(root string) (inventory, error) {
	machine, err := simgpu.Load(machineName)
	if err != nil {
		return nil, err
	}
	var major, minor int
	if _, err := fmt.Sscanf(machine.Driver.CUDA, "%d.%d", &major, &minor); err != nil {
		return nil, fmt.Errorf("read machine %s: CUDA version %q: %w", machineName, machine.Driver.CUDA, err)
	}
	file, err := os.Open(filepath.Join(root, "testdata", "hosts", machineName+".host"))
	if err != nil {
		return nil, fmt.Errorf("read machine %s: %w", machineName, err)
	}
	defer file.Close()
	recorded, err := hostfile.Parse(file, file.Name())
	if err != nil {
		return nil, err
	}
	host, err := recorded.Topology()
	if err != nil {
		return nil, err
	}
	if len(host.GPUs) != len(machine.GPUs) {
		return nil, fmt.Errorf("read machine %s: it has %d GPUs and its recorded host %d", machineName, len(machine.GPUs), len(host.GPUs))
	}
	locations := pool.Locations(host)
	var gpus inventory
	for i := range host.GPUs {
		location := locations[host.GPUs[i].UUID]
		gpus = append(gpus, pool.GPU{
			UUID: host.GPUs[i].UUID, Index: host.GPUs[i].Index, Model: machine.GPU.Name, Architecture: machine.GPU.Architecture,
			Memory: uint64(machine.GPU.Memory - machine.GPU.Reserved), DriverVersion: machine.Driver.Version,
			CUDA: major*1000 + minor*10, Location: &location,
		})
	}
	return gpus, nil
}

// of are the GPUs of one node: what names one GPU of the world differs from the other nodes'.
func (in inventory) of(node int) []pool.GPU {
	uuid := func(i int) string { return fmt.Sprintf("GPU-%08x-%04x-4333-8444-555555555555", node, i) }
	var gpus []pool.GPU
	for i := range in {
		gpu, location := in[i], *in[i].Location
		gpu.UUID, gpu.Location, gpu.Division = uuid(i), &location, instancesOf(gpu.Division, node, i)
		if location.Clique != "" {
			location.Clique = uuid(0)
		}
		gpus = append(gpus, gpu)
	}
	return gpus
}

func nodeName(i int) string { return fmt.Sprintf("node-%04d", i) }

// node is ready, and nobody will say otherwise.
func node(i int) *corev1.Node {
	amounts := corev1.ResourceList{
		corev1.ResourceCPU: resource.MustParse("128"), corev1.ResourceMemory: resource.MustParse("1Ti"), corev1.ResourcePods: resource.MustParse("1000"),
	}
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: nodeName(i), Labels: map[string]string{corev1.LabelHostname: nodeName(i), v1alpha1.NodeLabel: ""}},
		Status: corev1.NodeStatus{
			Capacity: amounts, Allocatable: amounts,
			Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue, LastHeartbeatTime: metav1.Now()}},
		},
	}
}

// slicesOf are what the agent of a node publishes, with what its helper library adds.
func (in inventory) slicesOf(i int) ([]*resourcev1.ResourceSlice, error) {
	resources, err := pool.Resources(nodeName(i), in.of(i))
	if err != nil {
		return nil, err
	}
	var all []*resourcev1.ResourceSlice
	for name, published := range resources.Pools {
		for k, slice := range published.Slices {
			made := sliceOf(v1alpha1.Driver, i, k, slice.Devices)
			made.Spec.Pool.Name, made.Spec.Pool.ResourceSliceCount = name, int64(len(published.Slices))
			made.Spec.SharedCounters, made.Spec.PerDeviceNodeSelection = slice.SharedCounters, slice.PerDeviceNodeSelection
			all = append(all, made)
		}
	}
	return all, nil
}

func sliceOf(driver string, node, number int, devices []resourcev1.Device) *resourcev1.ResourceSlice {
	name := nodeName(node)
	return &resourcev1.ResourceSlice{
		ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("%s-%s-%d", name, driver, number), Labels: map[string]string{driverLabel: driver}},
		Spec: resourcev1.ResourceSliceSpec{
			Driver: driver, NodeName: &name, Devices: devices,
			Pool: resourcev1.ResourcePool{Name: name, Generation: 1, ResourceSliceCount: 1},
		},
	}
}

// driverLabel lets the slices of one driver be removed together.
const driverLabel = "bench.divvy.dev/driver"

// otherDriver is another driver on the same nodes. It publishes eight devices on each, to be had whole.
const otherDriver = "gpu.example.com"

func otherSliceOf(i int) *resourcev1.ResourceSlice {
	var devices []resourcev1.Device
	for k := range 8 {
		index, uuid := int64(k), fmt.Sprintf("%d-%d", i, k)
		devices = append(devices, resourcev1.Device{
			Name: "device-" + strconv.Itoa(k),
			Attributes: map[resourcev1.QualifiedName]resourcev1.DeviceAttribute{
				"index": {IntValue: &index}, "uuid": {StringValue: &uuid},
			},
			Capacity: map[resourcev1.QualifiedName]resourcev1.DeviceCapacity{"memory": {Value: resource.MustParse("80Gi")}},
		})
	}
	return sliceOf(otherDriver, i, 0, devices)
}

func otherClass() *resourcev1.DeviceClass {
	return &resourcev1.DeviceClass{
		ObjectMeta: metav1.ObjectMeta{Name: otherDriver},
		Spec: resourcev1.DeviceClassSpec{Selectors: []resourcev1.DeviceSelector{
			{CEL: &resourcev1.CELDeviceSelector{Expression: fmt.Sprintf("device.driver == %q", otherDriver)}},
		}},
	}
}

// readClasses reads the device classes from what users install.
func readClasses(root string) ([]*resourcev1.DeviceClass, error) {
	text, err := os.ReadFile(filepath.Join(root, "deploy", "manifests", "divvy.yaml"))
	if err != nil {
		return nil, fmt.Errorf("read the device classes: %w", err)
	}
	var classes []*resourcev1.DeviceClass
	for document := range strings.SplitSeq(string(text), "\n---\n") {
		if !strings.Contains(document, "\nkind: DeviceClass\n") {
			continue
		}
		var class resourcev1.DeviceClass
		if err := yaml.Unmarshal([]byte(document), &class); err != nil {
			return nil, fmt.Errorf("read the device classes: %w", err)
		}
		classes = append(classes, &class)
	}
	if len(classes) == 0 {
		return nil, errors.New("read the device classes: the manifests have none")
	}
	return classes, nil
}

// writers is how many requests are made side by side.
const writers = 16

// each calls do for the numbers below n, several at a time, until all are done or one fails.
func each(ctx context.Context, n int, do func(ctx context.Context, i int) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	numbers := make(chan int)
	var group sync.WaitGroup
	for range writers {
		group.Go(func() {
			for i := range numbers {
				if err := do(ctx, i); err != nil {
					cancel(err)
				}
			}
		})
	}
	for i := 0; i < n && ctx.Err() == nil; i++ {
		select {
		case numbers <- i:
		case <-ctx.Done():
		}
	}
	close(numbers)
	group.Wait()
	return context.Cause(ctx)
}
