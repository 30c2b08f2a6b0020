package dialect

import "testing"

func TestVGPUManager(t *testing.T) {
	const number, memory, cores = "nvidia.com/vgpu-number", "nvidia.com/vgpu-memory", "nvidia.com/vgpu-cores"
	checkExamples(t, newTranslator(t, "{vgpu-manager: {}}"), sixteen, []example{
		{"README", limitsOf(t, number+": 1", cores+": 10", memory+": 1024"), "main: 1 share memory=1Gi cores=10 fixed"},
		{"a number alone", limitsOf(t, number+": 2"), "main: 2 gpu"},
		{"all cores", limitsOf(t, number+": 1", cores+": 100"), "main: 1 gpu"},
		{"all cores and some memory", limitsOf(t, number+": 1", cores+": 100", memory+": 1024"), "main: 1 share memory=1Gi cores=100 fixed"},
		{"memory alone", limitsOf(t, memory+": 1024"), "main: 1 share memory=1Gi weighted"},
		{"cores alone take all memory", limitsOf(t, cores+": 30"), "main: 1 share cores=30 fixed"},
		{"more cores than there are", limitsOf(t, number+": 1", cores+": 101"), `container "main": nvidia.com/vgpu-cores: 101 percent is more than one GPU: give 1 to 100`},
		{"no memory", limitsOf(t, number+": 1", memory+": 0"), `container "main": nvidia.com/vgpu-memory is 0: leave it out, or give a number above 0`},
		annotated(t, `nvidia.com/vgpu-compute-policy: balance`, cores+`: 30`).becomes("balance", "main: 1 share cores=30 burst to 100"),
		annotated(t, `nvidia.com/vgpu-compute-policy: none`, cores+`: 30`).becomes("none", "main: 1 share cores=30 weighted"),
		annotated(t, `nvidia.com/vgpu-compute-policy: fixed`, memory+`: 1024`).becomes("a policy without cores", "main: 1 share memory=1Gi weighted"),
		annotated(t, `nvidia.com/vgpu-compute-policy: hard`, cores+`: 30`).becomes("no such policy", `container "main": annotation nvidia.com/vgpu-compute-policy: "hard": use fixed, balance or none`),
		annotated(t, `nvidia.com/include-gpu-type: "A10,"`, number+`: 1`).becomes("by type", `main: 1 gpu [device.attributes["divvy.dev"].model.lowerAscii().contains("a10")]`),
		annotated(t, `nvidia.com/include-gpu-type: ","`, number+`: 1`).becomes("a list of nothing is none", "main: 1 gpu"),
		annotated(t, `nvidia.com/exclude-gpu-uuid: GPU-aaaa-1`, number+`: 1`).becomes("not this one", `main: 1 gpu [!(device.attributes["divvy.dev"].uuid == "GPU-aaaa-1")]`),
		annotated(t, `nvidia.com/device-topology-mode: link`, number+`: 2`).becomes("a preference", "main: 2 gpu"),
		annotated(t, `nvidia.com/device-topology-mode: numa-strict`, number+`: 2`).becomes("one NUMA node", "main: 2 gpu same divvy.dev/numaNode"),
		annotated(t, `nvidia.com/device-topology-mode: numa-strict`, number+`: 1`).becomes("a NUMA node that is known", `main: 1 gpu [has(device.attributes["divvy.dev"].numaNode)]`),
		annotated(t, `nvidia.com/device-topology-mode: link-strict`, number+`: 2`).becomes("NVLink", `container "main": annotation nvidia.com/device-topology-mode: "link-strict" is not offered: use numa, link or numa-strict`),
		withEnv(t, "CUDA_MEM_OVERSOLD", "true", number+": 1").becomes("memory of the host", `container "main": variable CUDA_MEM_OVERSOLD is about vGPUs, and the container asks for whole GPUs: name nvidia.com/vgpu-memory, or leave the variable out`),
		withEnv(t, "CUDA_MEM_OVERSOLD", "false", number+": 1").becomes("none of the host", "main: 1 gpu"),
	})
	checkExamples(t, newTranslator(t, "{vgpu-manager: {memoryFactor: 10}}"), sixteen, []example{
		{"units of 10 MiB", limitsOf(t, memory+": 300"), "main: 1 share memory=3000Mi weighted"},
		{"MiB where the unit is 10", limitsOf(t, memory+": 3000"), `container "main" asks for 30000 MiB of one GPU's memory, and no GPU has more than 16384 MiB: a unit of nvidia.com/vgpu-memory is 10 MiB here, so if the pod means MiB, set memoryFactor: 1`},
	})
}
