package dialect

import (
	"fmt"
	"strconv"

	resourcev1 "k8s.io/api/resource/v1"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
)

// perSize asks for a part of a GPU whose memory is not known yet. The request has one alternative for each size in the
// cluster, the smallest first. Each alternative selects its size, so that no GPU of a later size is taken by mistake.
//
// A claim has few alternatives. Where there are more sizes, near ones share an alternative, which asks for the part of
// the smallest: nobody gets more than was asked, and two halves fit every GPU.
func perSize(r Request, inventory Inventory, container string) ([]resourcev1.DeviceSubRequest, error) {
	spans := inventory.spans(resourcev1.FirstAvailableDeviceRequestMaxSize)
	if len(spans) == 0 {
		return nil, refuse("container %q asks for a part of a GPU's memory, and no GPU of the cluster is known: ask for an amount", container)
	}
	var ways []resourcev1.DeviceSubRequest
	for _, s := range spans {
		memory := r.Memory.Of(s.least)
		if memory == 0 {
			continue // less than a block of this GPU
		}
		ways = append(ways, resourcev1.DeviceSubRequest{
			Name: s.name(), DeviceClassName: v1alpha1.ClassOf(r.Config.Backend),
			AllocationMode: resourcev1.DeviceAllocationModeExactCount, Count: int64(r.Count),
			Selectors: selectors(append([]string{s.selector()}, r.Selectors...)), Capacity: capacity(r, memory),
		})
	}
	if len(ways) == 0 {
		return nil, refuse("container %q asks for a part of a GPU's memory that is less than %d MiB of any GPU in the cluster", container, v1alpha1.BlockBytes/mebibyte)
	}
	return ways, nil
}

// spanStart begins the names of alternatives for sizes.
const spanStart = "size-"

// name is that of the alternative for GPUs of these sizes.
func (s span) name() string {
	name := spanStart + strconv.FormatUint(s.least, 10)
	if s.most > s.least {
		name += "-to-" + strconv.FormatUint(s.most, 10)
	}
	return name
}

func (s span) selector() string {
	if s.most == s.least {
		return memoryIs("==", s.least)
	}
	return memoryIs(">=", s.least) + " && " + memoryIs("<=", s.most)
}

// memoryIs is the CEL expression that compares the memory of a device with a number of bytes.
func memoryIs(operator string, bytes uint64) string {
	return fmt.Sprintf(`%s.compareTo(quantity("%d")) %s 0`, capacityOf(v1alpha1.CapacityMemory), bytes, operator)
}

// noticeable is the loss above which a pod is told that some GPUs give less than the part it asks for.
const noticeable = 0.01

// shortfall warns of a part that some GPUs of the cluster round down by more than is noticeable; it is "" otherwise.
func shortfall(r Request, inventory Inventory, container string) string {
	if _, isPart := r.Memory.Part(); !isPart || r.Whole {
		return ""
	}
	worst := 0.0
	for _, s := range inventory.spans(resourcev1.FirstAvailableDeviceRequestMaxSize) {
		worst = max(worst, s.loss())
	}
	if worst <= noticeable {
		return ""
	}
	return fmt.Sprintf("container %q asks for a part of a GPU's memory: the cluster has GPUs of more sizes than a claim can tell apart, so that some give up to %.0f percent less than that part",
		container, 100*worst)
}
