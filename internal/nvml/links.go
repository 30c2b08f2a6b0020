package nvml

import (
	"encoding/hex"

	gonvml "github.com/NVIDIA/go-nvml/pkg/nvml"
)

// mostLinks is NVML_NVLINK_MAX_LINKS of the newest driver.
const mostLinks = 36

// NVLink is one active link of a GPU.
type NVLink struct {
	Number int
	// Remote is the PCI address of the device at the other end. Switch tells that it is a switch.
	Remote string
	Switch bool
}

// NVLinks returns the active links of a GPU, if it has any, and the name of the clique of GPUs that its switches
// connect. The name is "" without switches and on drivers before 535.
func (l *Library) NVLinks(index int) (links []NVLink, clique string) {
	l.use.RLock()
	defer l.use.RUnlock()
	device, ret := l.device(index)
	if ret != gonvml.SUCCESS || !l.has("nvmlDeviceGetNvLinkState") || !l.has("nvmlDeviceGetNvLinkRemotePciInfo_v2") {
		return nil, ""
	}
	for number := range mostLinks {
		state, ret := device.GetNvLinkState(number)
		if ret == gonvml.ERROR_INVALID_ARGUMENT || ret == gonvml.ERROR_NOT_SUPPORTED {
			break // the GPU has no link of this number, and so none of a higher one
		}
		if ret != gonvml.SUCCESS || state != gonvml.FEATURE_ENABLED {
			continue
		}
		remote, ret := device.GetNvLinkRemotePciInfo(number)
		if ret != gonvml.SUCCESS {
			continue
		}
		links = append(links, NVLink{Number: number, Remote: text(remote.BusId[:]), Switch: l.toSwitch(device, number)})
	}
	return links, l.clique(device)
}

// toSwitch reads the type of the remote device. Drivers before 510 do not report it, and knew no switch whose links
// look like a GPU's.
func (l *Library) toSwitch(device gonvml.Device, number int) bool {
	if !l.has("nvmlDeviceGetNvLinkRemoteDeviceType") {
		return false
	}
	kind, ret := device.GetNvLinkRemoteDeviceType(number)
	return ret == gonvml.SUCCESS && kind == gonvml.NVLINK_DEVICE_TYPE_SWITCH
}

func (l *Library) clique(device gonvml.Device) string {
	if !l.has("nvmlDeviceGetGpuFabricInfo") {
		return ""
	}
	info, ret := device.GetGpuFabricInfo()
	if ret != gonvml.SUCCESS || info.State != gonvml.GPU_FABRIC_STATE_COMPLETED {
		return ""
	}
	number := []byte{byte(info.CliqueId >> 24), byte(info.CliqueId >> 16), byte(info.CliqueId >> 8), byte(info.CliqueId)}
	return hex.EncodeToString(info.ClusterUuid[:]) + "." + hex.EncodeToString(number)
}
