package nvml

import (
	"fmt"

	gonvml "github.com/NVIDIA/go-nvml/pkg/nvml"
)

// Brand returns NVIDIA's name of a GPU's brand, as its own components write it, or "" where it is unknown.
func (l *Library) Brand(index int) string {
	l.use.RLock()
	defer l.use.RUnlock()
	device, ret := l.device(index)
	if ret != gonvml.SUCCESS || !l.has("nvmlDeviceGetBrand") {
		return ""
	}
	brand, ret := device.GetBrand()
	if ret != gonvml.SUCCESS {
		return ""
	}
	return brands[brand]
}

var brands = map[gonvml.BrandType]string{
	gonvml.BRAND_QUADRO: "Quadro", gonvml.BRAND_TESLA: "Tesla", gonvml.BRAND_NVS: "NVS", gonvml.BRAND_GRID: "Grid",
	gonvml.BRAND_GEFORCE: "GeForce", gonvml.BRAND_TITAN: "Titan", gonvml.BRAND_NVIDIA_VAPPS: "NvidiaVApps",
	gonvml.BRAND_NVIDIA_VPC: "NvidiaVPC", gonvml.BRAND_NVIDIA_VCS: "NvidiaVCS", gonvml.BRAND_NVIDIA_VWS: "NvidiaVWS",
	gonvml.BRAND_NVIDIA_CLOUD_GAMING: "NvidiaCloudGaming", gonvml.BRAND_QUADRO_RTX: "QuadroRTX",
	gonvml.BRAND_NVIDIA_RTX: "NvidiaRTX", gonvml.BRAND_NVIDIA: "Nvidia", gonvml.BRAND_GEFORCE_RTX: "GeForceRTX",
	gonvml.BRAND_TITAN_RTX: "TitanRTX",
}

// MIGCapable reports whether a GPU knows MIG, in that mode or not.
func (l *Library) MIGCapable(index int) bool {
	l.use.RLock()
	defer l.use.RUnlock()
	device, ret := l.device(index)
	if ret != gonvml.SUCCESS || !l.has("nvmlDeviceGetMigMode") {
		return false
	}
	_, _, ret = device.GetMigMode()
	return ret == gonvml.SUCCESS
}

// Capability returns a GPU's compute capability, such as 8.0, or "" where it is unknown.
func (l *Library) Capability(index int) string {
	l.use.RLock()
	defer l.use.RUnlock()
	device, ret := l.device(index)
	if ret != gonvml.SUCCESS || !l.has("nvmlDeviceGetCudaComputeCapability") {
		return ""
	}
	major, minor, ret := device.GetCudaComputeCapability()
	if ret != gonvml.SUCCESS {
		return ""
	}
	return fmt.Sprintf("%d.%d", major, minor)
}
