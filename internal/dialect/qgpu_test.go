package dialect

import "testing"

func TestQGPU(t *testing.T) {
	checkExamples(t, newTranslator(t, "{qgpu: {}}"), sixteen, []example{
		// Tencent Cloud's documents 457/59103, 457/127667, 457/81034
		{"a part", limitsOf(t, "tke.cloud.tencent.com/qgpu-core: 30", "tke.cloud.tencent.com/qgpu-memory: 5"), "main: 1 share memory=5Gi cores=30 fixed"},
		{"whole cards", limitsOf(t, "tke.cloud.tencent.com/qgpu-core: 200"), "main: 2 gpu"},
		{"two cards, divided", limitsOf(t, "tke.cloud.tencent.com/qgpu-core: 160", "tke.cloud.tencent.com/qgpu-memory: 60"), "main: 2 share memory=30Gi cores=80 fixed"},
		{"two cards, rounded down", limitsOf(t, "tke.cloud.tencent.com/qgpu-core: 121", "tke.cloud.tencent.com/qgpu-memory: 31"), "main: 2 share memory=15Gi cores=60 fixed"},
		annotated(t, `tke.cloud.tencent.com/app-class: online`, `tke.cloud.tencent.com/qgpu-memory: 5`).becomes("online", "main: 1 share memory=5Gi weighted"),
		annotated(t, `tke.cloud.tencent.com/app-class: offline`, `tke.cloud.tencent.com/qgpu-core-greedy: 30, tke.cloud.tencent.com/qgpu-memory: 8`).becomes("offline", "main: 1 share memory=8Gi cores=30 fixed offline"),
		// quirks
		{"steps of 5", limitsOf(t, "tke.cloud.tencent.com/qgpu-core: 7", "tke.cloud.tencent.com/qgpu-memory: 5"), `container "main": tke.cloud.tencent.com/qgpu-core: 7: give a multiple of 5`},
		{"time without memory", limitsOf(t, "tke.cloud.tencent.com/qgpu-core: 30"), `container "main": tke.cloud.tencent.com/qgpu-core: 30 is a part of a GPU, and needs tke.cloud.tencent.com/qgpu-memory`},
		{"memory without time", limitsOf(t, "tke.cloud.tencent.com/qgpu-memory: 5"), `container "main": tke.cloud.tencent.com/qgpu-memory needs tke.cloud.tencent.com/qgpu-core beside it`},
		{"three cards, divided", limitsOf(t, "tke.cloud.tencent.com/qgpu-core: 300", "tke.cloud.tencent.com/qgpu-memory: 60"), `container "main": tke.cloud.tencent.com/qgpu-core: 300 with tke.cloud.tencent.com/qgpu-memory: at most 2 GPUs are shared together`},
		{"nothing left to divide", limitsOf(t, "tke.cloud.tencent.com/qgpu-core: 160", "tke.cloud.tencent.com/qgpu-memory: 1"), `container "main": tke.cloud.tencent.com/qgpu-memory: 1 cannot be divided among 2 GPUs`},
		{"a whole card with less memory", limitsOf(t, "tke.cloud.tencent.com/qgpu-core: 100", "tke.cloud.tencent.com/qgpu-memory: 5"), "main: 1 share memory=5Gi cores=100 fixed"},
		{"greedy alone", limitsOf(t, "tke.cloud.tencent.com/qgpu-core-greedy: 30", "tke.cloud.tencent.com/qgpu-memory: 5"), `container "main": tke.cloud.tencent.com/qgpu-core-greedy is for pods with the annotation tke.cloud.tencent.com/app-class: offline`},
		annotated(t, `tke.cloud.tencent.com/app-class: offline`, `tke.cloud.tencent.com/qgpu-core-greedy: 101, tke.cloud.tencent.com/qgpu-memory: 8`).becomes("greedier than a card", `container "main": tke.cloud.tencent.com/qgpu-core-greedy: 101: an offline pod gives 1 to 100`),
		annotated(t, `tke.cloud.tencent.com/app-class: offline`, `tke.cloud.tencent.com/qgpu-core: 30, tke.cloud.tencent.com/qgpu-memory: 8`).becomes("offline with a guarantee", `container "main": annotation tke.cloud.tencent.com/app-class: offline excludes tke.cloud.tencent.com/qgpu-core`),
		annotated(t, `tke.cloud.tencent.com/app-class: batch`, `tke.cloud.tencent.com/qgpu-memory: 8`).becomes("no such class", `container "main": annotation tke.cloud.tencent.com/app-class: "batch": use online or offline`),
	})
	part := limitsOf(t, "tke.cloud.tencent.com/qgpu-core: 30", "tke.cloud.tencent.com/qgpu-memory: 5")
	checkExamples(t, newTranslator(t, "{qgpu: {policy: burst-share}}"), sixteen, []example{{"burst-share", part, "main: 1 share memory=5Gi cores=30 burst to 100"}})
	checkExamples(t, newTranslator(t, "{qgpu: {policy: best-effort}}"), sixteen, []example{{"best-effort", part, "main: 1 share memory=5Gi cores=30 weighted"}})
}
