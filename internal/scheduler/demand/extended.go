package demand

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
)

// extended reads the extended resources that a pod asks for without a claim and that device classes give, as
// nvidia.com/gpu where the chart makes class gpu.nvidia.com. Kubernetes' own plugin makes the claim for them, because whether
// a node's device plugin serves such a resource is for it to see.
func (d *Demand) extended(pod *corev1.Pod, wishes wishes, published Published) error {
	var spec resourcev1.ResourceClaimSpec
	var names []string
	for _, containers := range [][]corev1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range containers {
			all := containers[i].Resources.Requests
			for _, name := range slices.Sorted(maps.Keys(all)) {
				class := classGiving(string(name), published)
				quantity := all[name]
				if n, fits := counted(quantity); class == nil || n < 1 || !fits {
					continue
				} else if len(spec.Devices.Requests) < resourcev1.DeviceRequestsMaxSize {
					spec.Devices.Requests = append(spec.Devices.Requests, resourcev1.DeviceRequest{
						Name: fmt.Sprint("container-", len(spec.Devices.Requests)), Exactly: &resourcev1.ExactDeviceRequest{
							DeviceClassName: class.Name, AllocationMode: resourcev1.DeviceAllocationModeExactCount, Count: n,
						},
					})
				}
				names = append(names, string(name))
			}
		}
	}
	if len(names) == 0 {
		return nil
	}
	r := reader{claim: &Claim{Namespace: pod.Namespace, Name: "of extended resources", Spec: &spec}, published: published, wishes: wishes, demand: d}
	_ = r.read() // what can be expressed orders nodes
	return fmt.Errorf("%w: a device class gives %s", ErrElsewhere, strings.Join(slices.Compact(names), ", "))
}

// classGiving is the device class that gives an extended resource, nil for none.
func classGiving(name string, published Published) *resourcev1.DeviceClass {
	if class, implicit := strings.CutPrefix(name, resourcev1.ResourceDeviceClassPrefix); implicit {
		return published.DeviceClass(class)
	}
	if !strings.Contains(name, "/") {
		return nil
	}
	return published.DeviceClass(name)
}
