package dialect

import "testing"

func TestVolcano(t *testing.T) {
	const of16 = `[device.capacity["divvy.dev"].memory.compareTo(quantity("17179869184")) == 0]`
	checkExamples(t, newTranslator(t, "{volcano: {}}"), sixteen, []example{
		// README and examples of volcano-vgpu-device-plugin, user guides of Volcano
		annotated(t, "volcano.sh/vgpu-mode: hami-core", "volcano.sh/vgpu-number: 2, volcano.sh/vgpu-memory: 3000, volcano.sh/vgpu-cores: 50").becomes("gpu-pod1", "main: 2 share memory=3000Mi cores=50 fixed"),
		{"vgpu-case01", limitsOf(t, "volcano.sh/vgpu-memory: 1024", "volcano.sh/vgpu-number: 1"), "main: 1 share memory=1Gi weighted"},
		{"vgpu-case03, the other way", limitsOf(t, "volcano.sh/vgpu-number: 2", "volcano.sh/vgpu-memory-percentage: 50"), "main: 2 share memory=8Gi " + of16 + " weighted"},
		{"gpu-share", limitsOf(t, "volcano.sh/gpu-memory: 1024"), "main: 1 share memory=1Gi weighted"},
		{"exclusive cards", limitsOf(t, "volcano.sh/gpu-number: 1"), "main: 1 gpu"},
		annotated(t, "volcano.sh/vgpu-mode: mig", "volcano.sh/vgpu-number: 1, volcano.sh/vgpu-memory: 3000").becomes("mig-pod",
			"main: 1 mig memory=3000Mi"),
		annotated(t, "volcano.sh/vgpu-mode: mig", "volcano.sh/vgpu-number: 2, volcano.sh/vgpu-memory: 8000").becomes("two instances",
			`container "main": volcano.sh/vgpu-mode mig and 2 GPUs: ask for 1, because a process can use one MIG instance only`),
		annotated(t, "volcano.sh/vgpu-mode: mps", "volcano.sh/vgpu-memory: 3000").becomes("no such mode", `container "main": annotation volcano.sh/vgpu-mode: "mps" is not offered: write hami-core or mig`),
		annotated(t, "volcano.sh/vgpu-use-gpuuuid: GPU-03f69c50-207a-2038-9b45-23cac89cb67d", "volcano.sh/vgpu-number: 1, volcano.sh/vgpu-memory: 3000").becomes("by UUID",
			`main: 1 share memory=3000Mi [device.attributes["divvy.dev"].uuid == "GPU-03f69c50-207a-2038-9b45-23cac89cb67d"] weighted`),
		annotated(t, "volcano.sh/vgpu-podgroup-policy: spread", "volcano.sh/vgpu-number: 1").becomes("apart from its group", `container "main": annotation volcano.sh/vgpu-podgroup-policy: "spread" is not offered`),
		// quirks
		{"memory alone is one", limitsOf(t, "volcano.sh/vgpu-memory: 1024"), "main: 1 share memory=1Gi weighted"},
		{"a number alone has all memory", limitsOf(t, "volcano.sh/vgpu-number: 1"), "main: 1 share weighted"},
		{"all cores are a whole card", limitsOf(t, "volcano.sh/vgpu-number: 1", "volcano.sh/vgpu-memory: 3000", "volcano.sh/vgpu-cores: 100"), `main: 1 gpu [device.capacity["divvy.dev"].memory.compareTo(quantity("3145728000")) >= 0]`},
		{"cores alone", limitsOf(t, "volcano.sh/vgpu-cores: 30"), `container "main": volcano.sh/vgpu-number is missing`},
		{"two measures", limitsOf(t, "volcano.sh/vgpu-number: 1", "volcano.sh/vgpu-memory: 1", "volcano.sh/vgpu-memory-percentage: 1"), `container "main": volcano.sh/vgpu-memory and volcano.sh/vgpu-memory-percentage exclude each other`},
		{"both plugins", limitsOf(t, "volcano.sh/gpu-memory: 1024", "volcano.sh/vgpu-number: 1"), `container "main": volcano.sh/gpu-memory, volcano.sh/gpu-number and volcano.sh/vgpu-* exclude each other`},
		{"three hundred cores", limitsOf(t, "volcano.sh/vgpu-number: 1", "volcano.sh/vgpu-cores: 300"), `container "main": volcano.sh/vgpu-cores: 300 percent is more than one GPU: give 1 to 100`},
	})
	checkExamples(t, newTranslator(t, "{volcano: {memoryFactor: 10}}"), sixteen, []example{
		{"units of 10 MiB", limitsOf(t, "volcano.sh/vgpu-memory: 300"), "main: 1 share memory=3000Mi weighted"},
		{"for the older plugin too", limitsOf(t, "volcano.sh/gpu-memory: 300"), "main: 1 share memory=3000Mi weighted"},
	})
}
