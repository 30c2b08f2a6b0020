package dialect

import (
	"testing"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
)

func gpusharePod(t *testing.T, label, env, limits string) example {
	t.Helper()
	return example{pod: readPod(t, `{metadata: {labels: {`+label+`}}, spec: {containers: [{name: main, env: [`+env+`], resources: {limits: {`+limits+`}}}]}}`)}
}

func TestGPUShare(t *testing.T) {
	checkExamples(t, newTranslator(t, "{gpushare: {}}"), sixteen, []example{
		// userguide of gpushare-scheduler-extender, Alibaba Cloud's documents
		{"binpack-1", limitsOf(t, "aliyun.com/gpu-mem: 3"), "main: 1 share memory=3Gi weighted"},
		gpusharePod(t, `aliyun.com/gpu-count: "2"`, "", "aliyun.com/gpu-mem: 8").becomes("8 GiB of two cards", "main: 2 share memory=4Gi weighted"),
		{"time and memory", limitsOf(t, "aliyun.com/gpu-core.percentage: 30", "aliyun.com/gpu-mem: 2"), "main: 1 share memory=2Gi cores=30 fixed"},
		// quirks
		gpusharePod(t, `aliyun.com/gpu-count: "3"`, "", "aliyun.com/gpu-mem: 8").becomes("not divisible", `container "main": aliyun.com/gpu-mem: 8 is not divisible by the 3 GPUs of the label aliyun.com/gpu-count`),
		gpusharePod(t, `aliyun.com/gpu-count: "0"`, "", "aliyun.com/gpu-mem: 8").becomes("no cards", `container "main": label aliyun.com/gpu-count: "0": give 1 to 32`),
		gpusharePod(t, `aliyun.com/gpu-count: "2"`, "", "aliyun.com/gpu-mem: 8, aliyun.com/gpu-core.percentage: 10").becomes("time of two cards", `container "main": aliyun.com/gpu-core.percentage and several GPUs exclude each other`),
		{"steps of 5", limitsOf(t, "aliyun.com/gpu-core.percentage: 12", "aliyun.com/gpu-mem: 2"), `container "main": aliyun.com/gpu-core.percentage: 12: give a multiple of 5`},
		{"time alone", limitsOf(t, "aliyun.com/gpu-core.percentage: 30"), `container "main": aliyun.com/gpu-mem is missing`},
		{"the label as a limit", limitsOf(t, "aliyun.com/gpu-count: 2", "aliyun.com/gpu-mem: 2"), `container "main": aliyun.com/gpu-count is a label of the pod, not a limit`},
		{"MiB on a cluster that counts GiB", limitsOf(t, "aliyun.com/gpu-mem: 16276"), `container "main" asks for 16666624 MiB of one GPU's memory, and no GPU has more than 16384 MiB: if aliyun.com/gpu-mem is in MiB on this cluster, set memoryUnit: MiB for the dialect gpushare`},
		{"all of the largest GPU", limitsOf(t, "aliyun.com/gpu-mem: 16"), "main: 1 share memory=16Gi weighted"},
		gpusharePod(t, `aliyun.com/gpu-count: "2"`, "", "aliyun.com/gpu-mem: 32").becomes("all of two", "main: 2 share memory=16Gi weighted"),
		{"a fraction", limitsOf(t, "aliyun.com/gpu-mem: 5.5"), `container "main": aliyun.com/gpu-mem: 5500m is not a whole number from 0 to what a GPU can have`},
	})
	checkExamples(t, newTranslator(t, "{gpushare: {}}"), Inventory{}, []example{
		{"no GPU is known", limitsOf(t, "aliyun.com/gpu-mem: 80"), "main: 1 share memory=80Gi weighted"},
		{"no GPU is known, and none can have so much", limitsOf(t, "aliyun.com/gpu-mem: 8138"), `container "main" asks for 8333312 MiB of one GPU's memory, and no GPU has more than 1048576 MiB: if aliyun.com/gpu-mem is in MiB on this cluster, set memoryUnit: MiB for the dialect gpushare`},
	})
	checkExamples(t, newTranslator(t, "{gpushare: {memoryUnit: MiB}}"), sixteen, []example{
		{"MiB by configuration", limitsOf(t, "aliyun.com/gpu-mem: 3000"), "main: 1 share memory=3000Mi weighted"},
		{"it waits for a larger GPU", limitsOf(t, "aliyun.com/gpu-mem: 30000"), "main: 1 share memory=30000Mi weighted"},
	})
}

func TestCGPUWeights(t *testing.T) {
	weight := func(value string) string { return `{name: ALIYUN_COM_GPU_SCHD_WEIGHT, value: "` + value + `"}` }
	checkExamples(t, newTranslator(t, "{gpushare: {}}"), sixteen, []example{
		gpusharePod(t, "", weight("3"), "aliyun.com/gpu-mem: 3").becomes("three", "main: 1 share memory=3Gi weighted weight 3"),
		gpusharePod(t, "", weight("1"), "aliyun.com/gpu-mem: 3").becomes("one", "main: 1 share memory=3Gi weighted"),
		gpusharePod(t, "", weight("2")+", "+weight("4"), "aliyun.com/gpu-mem: 3").becomes("the last counts", "main: 1 share memory=3Gi weighted weight 4"),
		gpusharePod(t, "", weight("0"), "aliyun.com/gpu-mem: 3").becomes("zero", `container "main": variable ALIYUN_COM_GPU_SCHD_WEIGHT: "0": write 1 to 1000`),
		gpusharePod(t, "", weight("1e3"), "aliyun.com/gpu-mem: 3").becomes("no number", `container "main": variable ALIYUN_COM_GPU_SCHD_WEIGHT: "1e3": write 1 to 1000`),
		gpusharePod(t, "", "{name: ALIYUN_COM_GPU_SCHD_WEIGHT, valueFrom: {fieldRef: {fieldPath: metadata.name}}}", "aliyun.com/gpu-mem: 3").becomes("from elsewhere", `container "main": variable ALIYUN_COM_GPU_SCHD_WEIGHT: "": write 1 to 1000`),
		gpusharePod(t, "", weight("2"), "aliyun.com/gpu-mem: 3, aliyun.com/gpu-core.percentage: 10").becomes("two policies", `container "main": variable ALIYUN_COM_GPU_SCHD_WEIGHT and aliyun.com/gpu-core.percentage are two policies: use one`),
	})
}

// cGPU's policy 5 leaves time to the driver.
func TestCGPUWithoutDivisionOfTime(t *testing.T) {
	translator := newTranslator(t, "{gpushare: {backend: timeslice}}")
	_, templates, err := translate(translator, limitsOf(t, "aliyun.com/gpu-mem: 3"), sixteen)
	if err != nil || len(templates) != 1 {
		t.Fatalf("%d templates, %v", len(templates), err)
	}
	for _, a := range requestsOf(&templates[0].Spec.Spec) {
		if a.class != v1alpha1.ClassTimeslice {
			t.Errorf("the claim is of class %s", a.class)
		}
	}
	checkExamples(t, translator, sixteen, []example{
		{"a percentage", limitsOf(t, "aliyun.com/gpu-core.percentage: 30", "aliyun.com/gpu-mem: 2"), `container "main": aliyun.com/gpu-core.percentage: the driver divides time on this cluster's GPUs, which keeps no percentage: leave it out`},
		gpusharePod(t, "", `{name: ALIYUN_COM_GPU_SCHD_WEIGHT, value: "2"}`, "aliyun.com/gpu-mem: 2").becomes("a weight", `container "main": variable ALIYUN_COM_GPU_SCHD_WEIGHT: the driver divides time on this cluster's GPUs, which knows no weights: leave it out`),
	})
}
