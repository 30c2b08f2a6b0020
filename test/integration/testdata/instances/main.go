// Instances prints as JSON the MIG instances that NVIDIA's own Go bindings for NVML list.
package main

import (
	"encoding/json"
	"fmt"
	"os"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
)

type gpu struct {
	UUID      string     `json:"uuid"`
	Mode      int        `json:"mode"`
	Instances []instance `json:"instances"`
}

type instance struct {
	Index int    `json:"index"`
	UUID  string `json:"uuid"`
	GI    int    `json:"gi"`
	CI    int    `json:"ci"`
}

func main() {
	gpus, err := list(nvml.New())
	if err == nil {
		err = json.NewEncoder(os.Stdout).Encode(map[string]any{"gpus": gpus})
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func list(library nvml.Interface) (gpus []gpu, err error) {
	if ret := library.Init(); ret != nvml.SUCCESS {
		return nil, fmt.Errorf("initialise NVML: %w", ret)
	}
	count, ret := library.DeviceGetCount()
	if ret != nvml.SUCCESS {
		return nil, fmt.Errorf("count GPUs: %w", ret)
	}
	for i := range count {
		device, ret := library.DeviceGetHandleByIndex(i)
		if ret != nvml.SUCCESS {
			return nil, fmt.Errorf("find GPU %d: %w", i, ret)
		}
		g, err := describe(device)
		if err != nil {
			return nil, fmt.Errorf("describe GPU %d: %w", i, err)
		}
		gpus = append(gpus, g)
	}
	return gpus, nil
}

func describe(device nvml.Device) (g gpu, err error) {
	uuid, ret1 := device.GetUUID()
	mode, _, ret2 := device.GetMigMode()
	most, ret3 := device.GetMaxMigDeviceCount()
	for _, ret := range []nvml.Return{ret1, ret2, ret3} {
		if ret != nvml.SUCCESS {
			return g, ret
		}
	}
	g = gpu{UUID: uuid, Mode: mode}
	for number := range most {
		mig, ret := device.GetMigDeviceHandleByIndex(number)
		if ret == nvml.ERROR_NOT_FOUND {
			continue
		}
		if ret != nvml.SUCCESS {
			return g, ret
		}
		index, ret1 := mig.GetIndex()
		name, ret2 := mig.GetUUID()
		gi, ret3 := mig.GetGpuInstanceId()
		ci, ret4 := mig.GetComputeInstanceId()
		for _, ret := range []nvml.Return{ret1, ret2, ret3, ret4} {
			if ret != nvml.SUCCESS {
				return g, ret
			}
		}
		g.Instances = append(g.Instances, instance{index, name, gi, ci})
	}
	return g, nil
}
