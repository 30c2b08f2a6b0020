package simgpu

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/divvy-gpu/divvy/internal/pci"
	"github.com/divvy-gpu/divvy/internal/rdma"
	"github.com/divvy-gpu/divvy/internal/vm/facts"
)

// A simulated machine has cards that containers can be given, each GPU's beside it, and no node of any is one of this machine's adapters.
func TestCardsOfASimulatedMachine(t *testing.T) {
	for name, want := range map[string]int{"a800x8": 8, "h100x8": 8, "t4": 0} {
		m, err := Load(name)
		if err != nil {
			t.Fatal(err)
		}
		dir := t.TempDir()
		if err := m.sysfs().write(filepath.Join(dir, "sys")); err != nil {
			t.Fatal(err)
		}
		root := os.DirFS(dir)
		devices, err := facts.ReadUsed(root)
		if err != nil {
			t.Fatal(err)
		}
		var gpus []pci.Device
		for i := range devices.Devices {
			if devices.Devices[i].IsGPU() {
				gpus = append(gpus, devices.Devices[i].Device)
			}
		}
		host := rdma.Read(root, devices)
		cards, left := host.Choose(rdma.Choice{}, gpus)
		if len(cards) != want || len(gpus) != len(m.GPUs) {
			t.Errorf("%s: %d cards, want %d; left are %v", name, len(cards), want, left)
		}
		for _, c := range cards {
			if c.Fault != "" || c.Verbs.Major != 1 || c.Verbs.Minor != 3 || c.PCI.OuterSwitch() == "" {
				t.Errorf("%s: %+v", name, c)
			}
		}
	}
}
