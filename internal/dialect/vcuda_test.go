package dialect

import "testing"

// annotated writes a pod with annotations and one container with limits.
func annotated(t *testing.T, annotations, limits string) example {
	t.Helper()
	return example{pod: readPod(t, `{metadata: {annotations: {`+annotations+`}}, spec: {containers: [{name: main, resources: {limits: {`+limits+`}}}]}}`)}
}

func (e example) becomes(name, want string) example {
	e.name, e.want = name, want
	return e
}

func TestVCUDA(t *testing.T) {
	checkExamples(t, newTranslator(t, "{vcuda: {}}"), sixteen, []example{
		// README of gpu-manager
		annotated(t, `tencent.com/vcuda-core-limit: "50"`, `tencent.com/vcuda-core: 50, tencent.com/vcuda-memory: 30`).becomes("half of the time, 7680 MiB", "main: 1 share memory=7680Mi cores=50 fixed"),
		{"two cards", limitsOf(t, "tencent.com/vcuda-core: 200", "tencent.com/vcuda-memory: 60"), "main: 2 gpu"},
		// quirks
		annotated(t, `tencent.com/vcuda-core-limit: "50"`, `tencent.com/vcuda-core: 30, tencent.com/vcuda-memory: 30`).becomes("idle time up to a limit", "main: 1 share memory=7680Mi cores=30 burst to 50"),
		annotated(t, `tencent.com/vcuda-core-limit: "20"`, `tencent.com/vcuda-core: 30, tencent.com/vcuda-memory: 30`).becomes("a limit below", `container "main": annotation tencent.com/vcuda-core-limit: 20 is below the 30 that are asked`),
		annotated(t, `tencent.com/vcuda-core-limit: NaN`, `tencent.com/vcuda-core: 30, tencent.com/vcuda-memory: 30`).becomes("no limit at all", `container "main": annotation tencent.com/vcuda-core-limit: "NaN": give 30 to 100`),
		{"a unit is 256 MiB", limitsOf(t, "tencent.com/vcuda-core: 10", "tencent.com/vcuda-memory: 1"), "main: 1 share memory=256Mi cores=10 fixed"},
		{"one and a half cards", limitsOf(t, "tencent.com/vcuda-core: 150", "tencent.com/vcuda-memory: 60"), `container "main": tencent.com/vcuda-core: 150 is more than one GPU and no multiple of 100`},
		{"cores alone", limitsOf(t, "tencent.com/vcuda-core: 50"), `container "main": a part of a GPU needs both tencent.com/vcuda-core and tencent.com/vcuda-memory`},
		{"memory alone", limitsOf(t, "tencent.com/vcuda-memory: 50"), `container "main": a part of a GPU needs both tencent.com/vcuda-core and tencent.com/vcuda-memory`},
		{"more cards than any node has", limitsOf(t, "tencent.com/vcuda-core: 3300"), `container "main": tencent.com/vcuda-core: 33 GPUs are more than the 32 that one container can have`},
		{"bytes by mistake", limitsOf(t, "tencent.com/vcuda-core: 50", "tencent.com/vcuda-memory: 8Gi"), `container "main": tencent.com/vcuda-memory: 8589934592 is more memory than any GPU has`},
	})
}
