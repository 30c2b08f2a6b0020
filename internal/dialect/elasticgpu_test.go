package dialect

import "testing"

func TestElasticGPU(t *testing.T) {
	checkExamples(t, newTranslator(t, "{elasticgpu: {}}"), sixteen, []example{
		// README of elastic-gpu-scheduler
		{"256 MiB", limitsOf(t, `elasticgpu.io/gpu-memory: "256"`), "main: 1 share memory=256Mi weighted"},
		{"two cards", limitsOf(t, `elasticgpu.io/gpu-core: "200"`), "main: 2 gpu"},
		// quirks
		{"both", limitsOf(t, "elasticgpu.io/gpu-core: 30", "elasticgpu.io/gpu-memory: 4096"), "main: 1 share memory=4Gi cores=30 fixed"},
		{"the domain of the code", limitsOf(t, "elasticgpu.com/gpu-memory: 256"), "main: 1 share memory=256Mi weighted"},
		{"memory beside whole cards counts for nothing", limitsOf(t, "elasticgpu.io/gpu-core: 100", "elasticgpu.io/gpu-memory: 256"), "main: 1 gpu"},
		{"two cards and a half", limitsOf(t, "elasticgpu.io/gpu-core: 250"), `container "main": elasticgpu.io/gpu-core: 250 is more than one GPU and no multiple of 100`},
		{"cores alone", limitsOf(t, "elasticgpu.io/gpu-core: 30"), `container "main": elasticgpu.io/gpu-core: 30 is a part of a GPU, and needs elasticgpu.io/gpu-memory`},
		{"both domains", limitsOf(t, "elasticgpu.io/gpu-memory: 256", "elasticgpu.com/gpu-memory: 256"), `container "main": elasticgpu.io and elasticgpu.com exclude each other`},
	})
}
