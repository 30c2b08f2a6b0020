package dialect

import "testing"

func TestNVIDIA(t *testing.T) {
	checkExamples(t, newTranslator(t, "{nvidia: {}}"), sixteen, []example{
		{"a GPU", limitsOf(t, "nvidia.com/gpu: 1"), "main: 1 gpu"},
		{"two", limitsOf(t, "nvidia.com/gpu: 2"), "main: 2 gpu"},
		{"none, as charts write it", limitsOf(t, "nvidia.com/gpu: 0"), ""},
		{"MIG", limitsOf(t, "nvidia.com/mig-1g.5gb: 1"), `main: 1 mig [device.attributes["divvy.dev"].profile == "1g.5gb"]`},
		{"MIG with media", limitsOf(t, "nvidia.com/mig-1g.10gb.me: 1"), `main: 1 mig [device.attributes["divvy.dev"].profile == "1g.10gb+me"]`},
		{"MIG with all media", limitsOf(t, "nvidia.com/mig-1g.24gb.me.all: 1"), `main: 1 mig [device.attributes["divvy.dev"].profile == "1g.24gb+me.all"]`},
		{"MIG without media", limitsOf(t, "nvidia.com/mig-2g.48gb-me: 1"), `main: 1 mig [device.attributes["divvy.dev"].profile == "2g.48gb-me"]`},
		{"no MIG, as charts write it", limitsOf(t, "nvidia.com/mig-1g.5gb: 0"), ""},
		{"two of MIG", limitsOf(t, "nvidia.com/mig-1g.5gb: 2"), `container "main": nvidia.com/mig-1g.5gb: 2: ask for 1, because a process can use one MIG instance only`},
		{"two profiles", limitsOf(t, "nvidia.com/mig-1g.5gb: 1", "nvidia.com/mig-3g.20gb: 1"), `container "main": nvidia.com/mig-1g.5gb and nvidia.com/mig-3g.20gb exclude each other: a process can use one MIG instance and nothing beside it`},
		{"MIG beside a GPU", limitsOf(t, "nvidia.com/mig-1g.5gb: 1", "nvidia.com/gpu: 1"), `container "main": nvidia.com/mig-1g.5gb and nvidia.com/gpu exclude each other: a process can use one MIG instance and nothing beside it`},
		{"a replica of MIG", limitsOf(t, "nvidia.com/mig-1g.5gb.shared: 1"), `container "main": nvidia.com/mig-1g.5gb.shared is a replica of a MIG device: only the node's own configuration of the device plugin gives these out, in mode slots`},
		{"a part of a GPU instance", limitsOf(t, "nvidia.com/mig-1c.3g.20gb: 1"), `container "main": nvidia.com/mig-1c.3g.20gb shares a GPU instance with others: ask for a GPU instance, such as nvidia.com/mig-1g.10gb`},
		{"no profile", limitsOf(t, "nvidia.com/mig-small: 1"), `container "main": nvidia.com/mig-small names no MIG profile: write one such as nvidia.com/mig-1g.10gb`},
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
