package dialect

import "testing"

func TestPlain(t *testing.T) {
	const of16 = `[device.capacity["divvy.dev"].memory.compareTo(quantity("17179869184")) == 0]`
	checkExamples(t, newTranslator(t, "{plain: {}}"), sixteen, []example{
		{"the design's", limitsOf(t, "divvy.dev/gpu: 1", "divvy.dev/gpu-memory: 4Gi", "divvy.dev/gpu-cores: 30"), "main: 1 share memory=4Gi cores=30 fixed"},
		{"memory alone", limitsOf(t, "divvy.dev/gpu-memory: 4Gi"), "main: 1 share memory=4Gi weighted"},
		{"cores alone", limitsOf(t, "divvy.dev/gpu-cores: 30"), "main: 1 share cores=30 fixed"},
		{"half of a GPU", limitsOf(t, "divvy.dev/gpu-memory-percent: 50"), "main: 1 share memory=8Gi " + of16 + " weighted"},
		{"half of each of two", limitsOf(t, "divvy.dev/gpu: 2", "divvy.dev/gpu-memory-percent: 50", "divvy.dev/gpu-cores: 50"), "main: 2 share memory=8Gi cores=50 " + of16 + " fixed"},
		{"all of the memory is a share", limitsOf(t, "divvy.dev/gpu-memory-percent: 100"), "main: 1 share weighted"},
		{"more memory than all", limitsOf(t, "divvy.dev/gpu-memory-percent: 101"), `container "main": divvy.dev/gpu-memory-percent: 101 percent is more than one GPU: give 1 to 100`},
		{"no memory at all", limitsOf(t, "divvy.dev/gpu-memory-percent: 0", "divvy.dev/gpu: 1"), `container "main": divvy.dev/gpu-memory-percent is 0: leave it out, or give a number above 0`},
		{"an amount and a percentage", limitsOf(t, "divvy.dev/gpu-memory-percent: 50", "divvy.dev/gpu-memory: 4Gi"), `container "main": divvy.dev/gpu-memory and divvy.dev/gpu-memory-percent exclude each other`},
		{"half a percent", limitsOf(t, "divvy.dev/gpu-memory-percent: 500m"), `container "main": divvy.dev/gpu-memory-percent: 500m is not a whole number from 0 to what a GPU can have`},
		{"amounts are per GPU", limitsOf(t, "divvy.dev/gpu: 2", "divvy.dev/gpu-memory: 4Gi"), "main: 2 share memory=4Gi weighted"},
		{"whole", limitsOf(t, "divvy.dev/gpu: 2"), "main: 2 gpu"},
		{"none", limitsOf(t, "divvy.dev/gpu: 0", "cpu: 1"), ""},
		{"nothing of ours", limitsOf(t, "cpu: 1", "memory: 1Gi"), ""},
		{"no GPU with memory", limitsOf(t, "divvy.dev/gpu: 0", "divvy.dev/gpu-memory: 4Gi"), `container "main": divvy.dev/gpu is 0: leave it out, or give a number above 0`},
		{"half MiB", limitsOf(t, "divvy.dev/gpu-memory: 800M"), `container "main" asks for 800000000 bytes of GPU memory: it is given in whole MiB, such as 762Mi`},
		{"fraction", limitsOf(t, "divvy.dev/gpu: 500m"), `container "main": divvy.dev/gpu: 500m is not a whole number from 0 to what a GPU can have`},
		{"negative", limitsOf(t, "divvy.dev/gpu-memory: -4Gi"), `container "main": divvy.dev/gpu-memory: -4Gi is not a whole number from 0 to what a GPU can have`},
		{"huge", limitsOf(t, "divvy.dev/gpu-memory: 9E"), `container "main": divvy.dev/gpu-memory: 9E is not a whole number from 0 to what a GPU can have`},
		{"an exponent that takes seconds to expand", limitsOf(t, "divvy.dev/gpu: 1e10000000"), `container "main": divvy.dev/gpu: 10e9999999 is not a whole number from 0 to what a GPU can have`},
		{"a whole number in thousandths", limitsOf(t, "divvy.dev/gpu: 2000m"), "main: 2 gpu"},
		{"more than a GPU's time", limitsOf(t, "divvy.dev/gpu-cores: 101"), `container "main": divvy.dev/gpu-cores: 101 percent is more than one GPU: give 1 to 100`},
		{"too many", limitsOf(t, "divvy.dev/gpu: 33"), `container "main": divvy.dev/gpu: 33 GPUs are more than the 32 that one container can have`},
		{"privileged", readPod(t, `{spec: {containers: [{name: main, securityContext: {privileged: true}, resources: {limits: {divvy.dev/gpu-memory: 4Gi}}}]}}`),
			`container "main" is privileged and would see every GPU of its node: use a container without the privilege`},
		{"privileged and whole", readPod(t, `{spec: {containers: [{name: main, securityContext: {privileged: true}, resources: {limits: {divvy.dev/gpu: 1}}}]}}`),
			`container "main" is privileged and would see every GPU of its node: use a container without the privilege`},
		{"named node", readPod(t, `{spec: {nodeName: n1, containers: [{name: main, resources: {limits: {divvy.dev/gpu: 1}}}]}}`),
			`the pod names its node "n1", so that nothing would allocate its GPU: use a node selector`},
		{"requests differ", readPod(t, `{spec: {containers: [{name: main, resources: {limits: {divvy.dev/gpu-memory: 4Gi}, requests: {divvy.dev/gpu-memory: 2Gi}}}]}}`),
			`container "main": divvy.dev/gpu-memory is 2Gi in requests and 4Gi in limits: write the same in both, or limits alone`},
		{"requests alone", readPod(t, `{spec: {containers: [{name: main, resources: {requests: {divvy.dev/gpu-memory: 4Gi}}}]}}`), "main: 1 share memory=4Gi weighted"},
		{"two containers", readPod(t, `{spec: {containers: [{name: a, resources: {limits: {divvy.dev/gpu-memory: 4Gi}}}, {name: b}, {name: c, resources: {limits: {divvy.dev/gpu-memory: 8Gi}}}]}}`),
			"a: 1 share memory=4Gi weighted; c: 1 share memory=8Gi weighted"},
	})
}
