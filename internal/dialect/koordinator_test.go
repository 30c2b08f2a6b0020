package dialect

import "testing"

func TestKoordinator(t *testing.T) {
	const of16 = ` [device.capacity["divvy.dev"].memory.compareTo(quantity("17179869184")) == 0]`
	const gpu, shared, core, memory, ratio = "koordinator.sh/gpu: ", "koordinator.sh/gpu.shared: ", "koordinator.sh/gpu-core: ", "koordinator.sh/gpu-memory: ", "koordinator.sh/gpu-memory-ratio: "
	checkExamples(t, newTranslator(t, "{koordinator: {}}"), sixteen, []example{
		{"half of time and memory", limitsOf(t, gpu+"50"), "main: 1 share memory=8Gi cores=50" + of16 + " fixed"},
		{"one", limitsOf(t, gpu+"100"), "main: 1 gpu"},
		{"two", limitsOf(t, gpu+"200"), "main: 2 gpu"},
		{"one and a half", limitsOf(t, gpu+"150"), `container "main": koordinator.sh/gpu-core: 150 is more than one GPU and no multiple of 100`},
		{"both said apart", limitsOf(t, core+"50", ratio+"60"), "main: 1 share memory=9830Mi cores=50" + of16 + " fixed"},
		{"bytes", limitsOf(t, core+"60", memory+"4Gi"), "main: 1 share memory=4Gi cores=60 fixed"},
		{"bytes that are no whole MiB", limitsOf(t, memory+"4G"), "main: 1 share memory=3814Mi weighted"},
		{"next to no bytes", limitsOf(t, memory+"4k"), `container "main": koordinator.sh/gpu-memory: 4000 bytes of each GPU are less than 1Mi`},
		{"memory alone", limitsOf(t, ratio+"25"), "main: 1 share memory=4Gi" + of16 + " weighted"},
		{"totals of two", limitsOf(t, shared+"2", core+"100", memory+"4Gi"), "main: 2 share memory=2Gi cores=50 fixed"},
		{"percent of two", limitsOf(t, shared+"2", ratio+"100"), "main: 2 share memory=8Gi" + of16 + " weighted"},
		{"all of two", limitsOf(t, shared+"2", core+"200", ratio+"200"), "main: 2 gpu"},
		{"all the time, some memory", limitsOf(t, core+"100", memory+"8Gi"), "main: 1 share memory=8Gi cores=100 fixed"},
		{"what the manual writes", limitsOf(t, "koordinator.sh/gpu-shared: 1", core+"50", ratio+"50"), "main: 1 share memory=8Gi cores=50" + of16 + " fixed"},
		{"both spellings", limitsOf(t, "koordinator.sh/gpu-shared: 1", shared+"1", ratio+"50"), `container "main": koordinator.sh/gpu.shared and koordinator.sh/gpu-shared exclude each other`},
		{"the first domain", limitsOf(t, "kubernetes.io/gpu: 100"), "main: 1 gpu"},
		{"both domains", limitsOf(t, "kubernetes.io/gpu: 100", gpu+"100"), `container "main": kubernetes.io/gpu and koordinator.sh/gpu exclude each other`},
		{"not divisible", limitsOf(t, shared+"3", ratio+"100"), `container "main": koordinator.sh/gpu-memory-ratio: 100 is not divisible by 3 GPUs`},
		{"more than there is", limitsOf(t, shared+"1", ratio+"200"), `container "main": koordinator.sh/gpu-memory-ratio: 200 is more than 1 GPUs have`},
		{"time alone", limitsOf(t, core+"50"), `container "main": give one of koordinator.sh/gpu-memory and koordinator.sh/gpu-memory-ratio`},
		{"two measures", limitsOf(t, memory+"4Gi", ratio+"50"), `container "main": give one of koordinator.sh/gpu-memory and koordinator.sh/gpu-memory-ratio`},
		{"twice", limitsOf(t, gpu+"50", core+"50"), `container "main": koordinator.sh/gpu stands for time and memory, and excludes koordinator.sh/gpu-core, koordinator.sh/gpu-memory-ratio, koordinator.sh/gpu-memory and koordinator.sh/gpu.shared`},
		{"a hundred GPUs", limitsOf(t, shared+"100", ratio+"100"), `container "main": 100 GPUs are more than the 32 that one container can have`},
	})
}
