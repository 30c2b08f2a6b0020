package dialect

import "testing"

func TestHAMi(t *testing.T) {
	const of16 = `[device.capacity["divvy.dev"].memory.compareTo(quantity("17179869184")) == 0]`
	checkExamples(t, newTranslator(t, "{hami: {}}"), sixteen, []example{
		// examples/nvidia of HAMi v2.10.0
		{"default_use", limitsOf(t, "nvidia.com/gpu: 1", "nvidia.com/gpumem: 3000", "nvidia.com/gpucores: 30"), "main: 1 share memory=3000Mi cores=30 fixed"},
		{"default_use_legacy", limitsOf(t, "nvidia.com/gpu: 2"), "main: 2 gpu"},
		{"example", limitsOf(t, "nvidia.com/gpu: 1", "nvidia.com/gpumem: 3000"), "main: 1 share memory=3000Mi weighted"},
		{"use_exclusive_card", limitsOf(t, "nvidia.com/gpu: 2", "nvidia.com/gpumem-percentage: 100", "nvidia.com/gpucores: 100"), "main: 2 gpu"},
		{"use_memory_fraction", limitsOf(t, "nvidia.com/gpu: 2", "nvidia.com/gpumem-percentage: 50", "nvidia.com/gpucores: 30"), "main: 2 share memory=8Gi cores=30 " + of16 + " fixed"},
		{"use_sharing_card", limitsOf(t, "nvidia.com/gpu: 1", "nvidia.com/gpumem-percentage: 40", "nvidia.com/gpucores: 60"), "main: 1 share memory=6552Mi cores=60 " + of16 + " fixed"},
		{"mig_example", limitsOf(t, "nvidia.com/mig-3g.20gb: 1"), `main: 1 mig [device.attributes["divvy.dev"].profile == "3g.20gb"]`},
		annotated(t, `nvidia.com/vgpu-mode: mig`, `nvidia.com/gpu: 2, nvidia.com/gpumem: 8000`).becomes("dynamic_mig_example",
			`container "main": nvidia.com/vgpu-mode mig and 2 GPUs: ask for 1, because a process can use one MIG instance only`),
		annotated(t, `nvidia.com/vgpu-mode: mig`, `nvidia.com/gpu: 1, nvidia.com/gpumem: 8000`).becomes("one of dynamic_mig_example", "main: 1 mig memory=8000Mi"),
		annotated(t, `nvidia.com/vgpu-mode: mig`, `nvidia.com/gpumem: 8000, nvidia.com/gpucores: 30`).becomes("an instance with cores", "main: 1 mig memory=8000Mi cores=30"),
		annotated(t, `nvidia.com/vgpu-mode: mig, nvidia.com/use-gpuuuid: GPU-aaaa-1`, `nvidia.com/gpumem: 8000`).becomes("an instance of one GPU",
			`main: 1 mig memory=8000Mi [device.attributes["divvy.dev"].parentUUID == "GPU-aaaa-1"]`),
		annotated(t, `nvidia.com/vgpu-mode: mig`, `nvidia.com/gpu: 1`).becomes("an instance of no size", `container "main": nvidia.com/vgpu-mode mig: give the memory in MiB, which chooses the MIG instance`),
		annotated(t, `nvidia.com/vgpu-mode: mig`, `nvidia.com/gpumem-percentage: 50`).becomes("an instance of half a GPU", `container "main": nvidia.com/vgpu-mode mig: give the memory in MiB, which chooses the MIG instance`),
		annotated(t, `nvidia.com/vgpu-mode: mig`, `nvidia.com/gpumem: 8000, nvidia.com/priority: 1`).becomes("an instance that gives way",
			`container "main": invalid request: backend mig gives the share an instance of its own: leave out class offline, or add --backend slice to divide an instance`),
		annotated(t, `nvidia.com/vgpu-mode: mps`, `nvidia.com/gpumem: 8000`).becomes("HAMi's MPS", `container "main": annotation nvidia.com/vgpu-mode: "mps" is not offered: write hami-core or mig`),
		annotated(t, `nvidia.com/use-gputype: "A100,V100"`, `nvidia.com/gpu: 2`).becomes("specify_card_type_to_use",
			`main: 2 gpu [("NVIDIA-" + device.attributes["divvy.dev"].model).lowerAscii().contains("a100") || ("NVIDIA-" + device.attributes["divvy.dev"].model).lowerAscii().contains("v100")]`),
		annotated(t, `hami.io/node-scheduler-policy: spread, hami.io/gpu-scheduler-policy: binpack`, `nvidia.com/gpu: 1`).becomes("specify_scheduling_policy", "main: 1 gpu"),
		// quirks
		{"memory alone", limitsOf(t, "nvidia.com/gpumem: 3000"), "main: 1 share memory=3000Mi weighted"},
		{"all cores are a whole card, whatever memory", limitsOf(t, "nvidia.com/gpu: 1", "nvidia.com/gpumem: 22000", "nvidia.com/gpucores: 100"), `main: 1 gpu [device.capacity["divvy.dev"].memory.compareTo(quantity("23068672000")) >= 0]`},
		{"all cores and a part of the memory", limitsOf(t, "nvidia.com/gpucores: 100", "nvidia.com/gpumem-percentage: 50"), "main: 1 gpu"},
		{"all cores that give way", limitsOf(t, "nvidia.com/gpumem: 300", "nvidia.com/gpucores: 100", "nvidia.com/priority: 1"), `container "main": nvidia.com/priority: 1 gives way to others, and a whole GPU has no others`},
		withEnv(t, "GPU_CORE_UTILIZATION_POLICY", "force", "nvidia.com/gpumem: 3000, nvidia.com/gpucores: 30").becomes("a cap at all times", "main: 1 share memory=3000Mi cores=30 fixed"),
		withEnv(t, "GPU_CORE_UTILIZATION_POLICY", "default", "nvidia.com/gpumem: 3000, nvidia.com/gpucores: 30").becomes("a cap beside others", "main: 1 share memory=3000Mi cores=30 burst to 100"),
		withEnv(t, "GPU_CORE_UTILIZATION_POLICY", "disable", "nvidia.com/gpumem: 3000, nvidia.com/gpucores: 30").becomes("no cap", "main: 1 share memory=3000Mi cores=30 weighted"),
		withEnv(t, "GPU_CORE_UTILIZATION_POLICY", "hard", "nvidia.com/gpumem: 3000, nvidia.com/gpucores: 30").becomes("no such policy", `container "main": variable GPU_CORE_UTILIZATION_POLICY: "hard": write default, force or disable`),
		{"cores alone take all memory", limitsOf(t, "nvidia.com/gpucores: 30"), "main: 1 share cores=30 fixed"},
		{"all memory, no cores said", limitsOf(t, "nvidia.com/gpu: 1", "nvidia.com/gpumem-percentage: 100"), "main: 1 gpu"},
		{"all memory, no cores wanted", limitsOf(t, "nvidia.com/gpu: 1", "nvidia.com/gpucores: 0"), "main: 1 share weighted"},
		{"zero percent", limitsOf(t, "nvidia.com/gpu: 1", "nvidia.com/gpumem-percentage: 0"), `container "main": nvidia.com/gpumem-percentage is 0: leave it out, or give a number above 0`},
		{"zero memory", limitsOf(t, "nvidia.com/gpu: 1", "nvidia.com/gpumem: 0"), `container "main": nvidia.com/gpumem is 0: leave it out, or give a number above 0`},
		{"more cores than there are", limitsOf(t, "nvidia.com/gpu: 1", "nvidia.com/gpucores: 120"), `container "main": nvidia.com/gpucores: 120 percent is more than one GPU: give 1 to 100`},
		{"two measures", limitsOf(t, "nvidia.com/gpumem: 1", "nvidia.com/gpumem-percentage: 1"), `container "main": nvidia.com/gpumem and nvidia.com/gpumem-percentage exclude each other`},
		{"bytes by mistake", limitsOf(t, "nvidia.com/gpumem: 4Gi"), `container "main": nvidia.com/gpumem: 4294967296 is more memory than any GPU has`},
		{"low priority gives way", limitsOf(t, "nvidia.com/gpumem: 3000", "nvidia.com/gpucores: 30", "nvidia.com/priority: 1"), "main: 1 share memory=3000Mi cores=30 fixed offline"},
		{"high priority", limitsOf(t, "nvidia.com/gpumem: 3000", "nvidia.com/priority: 0"), "main: 1 share memory=3000Mi weighted"},
		{"no such priority", limitsOf(t, "nvidia.com/gpumem: 3000", "nvidia.com/priority: 2"), `container "main": nvidia.com/priority: 2: 0 is high and 1 is low`},
		annotated(t, `nvidia.com/use-gpuuuid: "GPU-aaaa-1, GPU-bbbb-2", nvidia.com/numa-bind: "true"`, `nvidia.com/gpu: 2, nvidia.com/gpumem: 100`).becomes("uuids",
			`main: 2 share memory=100Mi [device.attributes["divvy.dev"].uuid == "GPU-aaaa-1" || device.attributes["divvy.dev"].uuid == "GPU-bbbb-2"] same divvy.dev/numaNode weighted`),
		annotated(t, `nvidia.com/nouse-gpuuuid: GPU-aaaa-1, nvidia.com/nouse-gputype: T4`, `nvidia.com/gpumem: 100`).becomes("exclusions",
			`main: 1 share memory=100Mi [!(("NVIDIA-" + device.attributes["divvy.dev"].model).lowerAscii().contains("t4"))] [!(device.attributes["divvy.dev"].uuid == "GPU-aaaa-1")] weighted`),
		annotated(t, `nvidia.com/use-gputype: '") || true || ("'`, `nvidia.com/gpumem: 100`).becomes("an expression in a name",
			`container "main": annotation nvidia.com/use-gputype: "\") || true || (\"": give at most 16 names, separated by commas`),
		annotated(t, `hami.io/gpu-scheduler-policy: "mutex,numa"`, `nvidia.com/gpumem: 100`).becomes("mutex",
			`container "main": annotation hami.io/gpu-scheduler-policy: mutex is not offered: ask for a whole GPU`),
	})
	checkExamples(t, newTranslator(t, "{hami: {memoryFactor: 10, defaultMemory: 100, corePolicy: burst}}"), sixteen, []example{
		{"units of 10 MiB, idle time lent", limitsOf(t, "nvidia.com/gpumem: 300", "nvidia.com/gpucores: 30"), "main: 1 share memory=3000Mi cores=30 burst to 100"},
		{"default memory is still an exclusive card", limitsOf(t, "nvidia.com/gpu: 1"), `main: 1 gpu [device.capacity["divvy.dev"].memory.compareTo(quantity("1048576000")) >= 0]`},
		{"a unit that no GPU has so many of", limitsOf(t, "nvidia.com/gpumem: 3000"), `container "main" asks for 30000 MiB of one GPU's memory, and no GPU has more than 16384 MiB: a unit of nvidia.com/gpumem is 10 MiB here, so if the pod means MiB, set memoryFactor: 1`},
	})
}

func TestParadigm(t *testing.T) {
	checkExamples(t, newTranslator(t, "{4paradigm: {}}"), sixteen, []example{
		{"README", limitsOf(t, "nvidia.com/gpu: 2", "nvidia.com/gpumem: 3000", "nvidia.com/gpucores: 30"), "main: 2 share memory=3000Mi cores=30 fixed"},
		{"all cores", limitsOf(t, "nvidia.com/gpu: 1", "nvidia.com/gpumem: 3000", "nvidia.com/gpucores: 100"), `main: 1 gpu [device.capacity["divvy.dev"].memory.compareTo(quantity("3145728000")) >= 0]`},
		{"nothing said is 5000 MiB", limitsOf(t, "nvidia.com/gpu: 1"), "main: 1 share memory=5000Mi weighted"},
	})
}

// withEnv is a pod of one container with these limits and a variable.
func withEnv(t *testing.T, name, value, limits string) example {
	t.Helper()
	return example{pod: readPod(t, `{spec: {containers: [{name: main, env: [{name: `+name+`, value: "`+value+`"}], resources: {limits: {`+limits+`}}}]}}`)}
}
