package dialect

import "testing"

func TestKAI(t *testing.T) {
	const of16 = `[device.capacity["divvy.dev"].memory.compareTo(quantity("17179869184")) == 0]`
	pod := func(annotations, spec string) example {
		return example{pod: readPod(t, `{metadata: {annotations: {`+annotations+`}}, spec: {schedulerName: kai-scheduler, `+spec+`}}`)}
	}
	one := `containers: [{name: gpu-workload}]`
	checkExamples(t, newTranslator(t, "{kai: {}, nvidia: {}}"), sixteen, []example{
		// docs/gpu-sharing of KAI-Scheduler
		pod(`gpu-fraction: "0.5"`, one).becomes("gpu-sharing", "gpu-workload: 1 share memory=8Gi "+of16+" weighted"),
		pod(`gpu-memory: "2000"`, one).becomes("gpu-memory", "gpu-workload: 1 share memory=2000Mi weighted"),
		pod(`gpu-fraction: "0.5", gpu-fraction-container-name: gpu-workload`, `containers: [{name: sidecar}, {name: gpu-workload}, {name: another-sidecar}]`).becomes("non-default container", "gpu-workload: 1 share memory=8Gi "+of16+" weighted"),
		pod(`gpu-fraction: "0.5", gpu-fraction-container-name: gpu-init`, `initContainers: [{name: gpu-init}], containers: [{name: main-app}]`).becomes("init container", "gpu-init: 1 share memory=8Gi "+of16+" weighted"),
		// its validator, and quirks
		pod(`gpu-fraction: "0.5", gpu-fraction-num-devices: "2"`, one).becomes("half of each of two", "gpu-workload: 2 share memory=8Gi "+of16+" weighted"),
		pod(`gpu-memory: "2000", gpu-fraction-num-devices: "2"`, one).becomes("MiB of each of two", "gpu-workload: 2 share memory=2000Mi weighted"),
		pod(`gpu-fraction: "0.333"`, one).becomes("a third, rounded down", "gpu-workload: 1 share memory=5454Mi "+of16+" weighted"),
		pod(`gpu-fraction: "0.0001"`, one).becomes("next to nothing", `container "gpu-workload" asks for a part of a GPU's memory that is less than 2 MiB of any GPU in the cluster`),
		pod(`gpu-fraction: "1.0"`, one).becomes("all", `annotation gpu-fraction: "1.0": give a decimal fraction between 0 and 1, such as 0.5`),
		pod(`gpu-fraction: NaN`, one).becomes("no number", `annotation gpu-fraction: "NaN": give a decimal fraction between 0 and 1, such as 0.5`),
		pod(`gpu-fraction: "-0.5"`, one).becomes("negative", `annotation gpu-fraction: "-0.5": give a decimal fraction between 0 and 1, such as 0.5`),
		pod(`gpu-fraction: "0.5", gpu-memory: "2000"`, one).becomes("both", `annotations gpu-fraction and gpu-memory: give one of them`),
		pod(`gpu-fraction-num-devices: "2"`, one).becomes("devices alone", `annotations gpu-fraction and gpu-memory: give one of them`),
		pod(`gpu-memory: "2Gi"`, one).becomes("bytes", `annotation gpu-memory: "2Gi": give a whole number of MiB`),
		pod(`gpu-fraction: "0.5", gpu-fraction-num-devices: "1.2"`, one).becomes("a part of a device", `annotation gpu-fraction-num-devices: "1.2": give 1 to 32`),
		pod(`gpu-fraction: "0.5", gpu-fraction-container-name: other`, one).becomes("no such container", `annotation gpu-fraction-container-name: no container is named "other"`),
		pod(`gpu-fraction: "0.5", nvidia.com/container.main.gpu-memory.limit: 10Gi`, `containers: [{name: main}]`).becomes("a limit for a container",
			"annotation nvidia.com/container.main.gpu-memory.limit is not offered: ask by gpu-fraction or gpu-memory alone, or in the plain form"),
		pod(`gpu-memory: "2000", nvidia.com/container.main.gpu-compute.mode: sm-sharing`, `containers: [{name: main}]`).becomes("a way to divide time",
			"annotation nvidia.com/container.main.gpu-compute.mode is not offered: ask by gpu-fraction or gpu-memory alone, or in the plain form"),
		pod(`nvidia.com/container.main.gpu-memory.request: 8Gi`, `containers: [{name: main}]`).becomes("for a container alone",
			"annotation nvidia.com/container.main.gpu-memory.request is not offered: ask by gpu-fraction or gpu-memory alone, or in the plain form"),
		pod(`kai.scheduler/container.main.gpu-memory.portion.request: "0.5"`, `containers: [{name: main}]`).becomes("a part for a container alone",
			"annotation kai.scheduler/container.main.gpu-memory.portion.request is not offered: ask by gpu-fraction or gpu-memory alone, or in the plain form"),
		pod(`nvidia.com/containers: x`, `containers: [{name: main}]`).becomes("another annotation", ""),
		pod(`gpu-memory: "2000", kai.scheduler/container.main.gpu-memory.portion.limit: "0.9"`, `containers: [{name: main}]`).becomes("a part as a limit",
			"annotation kai.scheduler/container.main.gpu-memory.portion.limit is not offered: ask by gpu-fraction or gpu-memory alone, or in the plain form"),
		pod(`gpu-fraction: "0.5"`, `containers: [{name: main, env: [{name: RUNAI_GPU_MEMORY_LIMIT, value: "0.95"}]}]`).becomes("memory that is lent",
			`container "main": variable RUNAI_GPU_MEMORY_LIMIT: "0.95" is not what the pod asks for, and memory beyond that is not lent: leave the variable out, or ask for what it says`),
		pod(`gpu-fraction: "0.5"`, `containers: [{name: main, env: [{name: RUNAI_GPU_MEMORY_LIMIT, value: "0.50"}]}]`).becomes("no more than is asked", "main: 1 share memory=8Gi "+of16+" weighted"),
		pod(`gpu-memory: "2000"`, `containers: [{name: main, env: [{name: RUNAI_GPU_MEMORY_LIMIT, value: "2000Mi"}]}]`).becomes("no more MiB than are asked", "main: 1 share memory=2000Mi weighted"),
		pod(`gpu-memory: "2000"`, `containers: [{name: main, env: [{name: RUNAI_GPU_MEMORY_LIMIT, value: 4Gi}]}]`).becomes("more MiB",
			`container "main": variable RUNAI_GPU_MEMORY_LIMIT: "4Gi" is not what the pod asks for, and memory beyond that is not lent: leave the variable out, or ask for what it says`),
		pod(`gpu-fraction: "0.5", gpu-sm-percentage: "30"`, one).becomes("time in percent", `annotation gpu-sm-percentage is not offered: ask for gpu-memory and gpu-cores in the plain form`),
		pod(`gpu-fraction: "0.5", mps: "true"`, one).becomes("MPS", `annotation mps is not offered: shares are enforced by Divvy's library`),
		pod(`gpu-fraction: "0.5"`, `containers: [{name: main, resources: {limits: {nvidia.com/gpu: 1}}}]`).becomes("a limit too", `container "main" asks for GPUs by a limit, and the pod's annotations ask for a part of one: use one`),
		pod(``, `containers: [{name: main, resources: {limits: {nvidia.com/gpu: 1}}}]`).becomes("a whole GPU is NVIDIA's form", "main: 1 gpu"),
		pod(`gpu-fraction: "0.5"`, `containers: []`).becomes("no container", `annotation gpu-fraction-container-name: no container is named ""`),
	})
}

func TestKAILeavesNothingBehind(t *testing.T) {
	for _, scheduler := range []string{"kai-scheduler", "runai-scheduler"} {
		pod := readPod(t, `{metadata: {annotations: {gpu-fraction: "0.5", keep: me}}, spec: {schedulerName: `+scheduler+`, containers: [{name: main}]}}`)
		patch, _, err := translate(newTranslator(t, "{kai: {}}"), pod, sixteen)
		if err != nil {
			t.Fatal(err)
		}
		patched := apply(t, pod, patch)
		if len(patched.Annotations) != 1 || patched.Annotations["keep"] != "me" || patched.Spec.SchedulerName != "default-scheduler" {
			t.Errorf("of %s: annotations %v, scheduler %s", scheduler, patched.Annotations, patched.Spec.SchedulerName)
		}
	}
}
