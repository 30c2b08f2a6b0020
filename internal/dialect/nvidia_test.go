package dialect

import "testing"

func TestNVIDIA(t *testing.T) {
	checkExamples(t, newTranslator(t, "{nvidia: {}}"), sixteen, []example{
		{"a GPU", limitsOf(t, "nvidia.com/gpu: 1"), "main: 1 gpu"},
		{"two", limitsOf(t, "nvidia.com/gpu: 2"), "main: 2 gpu"},
		{"none, as charts write it", limitsOf(t, "nvidia.com/gpu: 0"), ""},
		{"MIG", limitsOf(t, "nvidia.com/mig-1g.5gb: 1"), `container "main": MIG devices are not offered yet: ask for gpu-memory and gpu-cores instead of a MIG profile`},
		{"MIG with media", limitsOf(t, "nvidia.com/mig-1g.10gb.me: 1"), `container "main": MIG devices are not offered yet: ask for gpu-memory and gpu-cores instead of a MIG profile`},
		{"shared without size", limitsOf(t, "nvidia.com/gpu.shared: 1"), `container "main": nvidia.com/gpu.shared has no size until the webhook's configuration names replicas`},
		{"another's memory stays", limitsOf(t, "nvidia.com/gpu: 1", "example.com/thing: 2"), "main: 1 gpu"},
	})
	checkExamples(t, newTranslator(t, "{nvidia: {replicas: 4}}"), sixteenForty, []example{
		{"whole beside shared", limitsOf(t, "nvidia.com/gpu: 1"), "main: 1 gpu"},
		{"a replica", limitsOf(t, "nvidia.com/gpu.shared: 1"),
			`main: 1 share memory=4Gi [device.capacity["divvy.dev"].memory.compareTo(quantity("17179869184")) == 0] or ` +
				`1 share memory=10Gi [device.capacity["divvy.dev"].memory.compareTo(quantity("42949672960")) == 0] weighted`},
		{"two replicas", limitsOf(t, "nvidia.com/gpu.shared: 2"), `container "main": 2 replicas of a shared GPU have no certain size: ask for 1`},
		{"both", limitsOf(t, "nvidia.com/gpu.shared: 1", "nvidia.com/gpu: 1"), `container "main": nvidia.com/gpu and nvidia.com/gpu.shared exclude each other`},
	})
	checkExamples(t, newTranslator(t, "{nvidia: {replicas: 1}}"), sixteen, []example{
		{"one replica", limitsOf(t, "nvidia.com/gpu.shared: 1"), "main: 1 share weighted"},
	})
	checkExamples(t, newTranslator(t, "{nvidia: {replicas: 3, renamed: false}}"), sixteen, []example{
		{"a replica under the plain name, a third rounded down", limitsOf(t, "nvidia.com/gpu: 1"),
			`main: 1 share memory=5460Mi [device.capacity["divvy.dev"].memory.compareTo(quantity("17179869184")) == 0] weighted`},
		{"the other name", limitsOf(t, "nvidia.com/gpu.shared: 1"), `container "main": nvidia.com/gpu.shared is not advertised where replicas go by nvidia.com/gpu`},
	})
}
