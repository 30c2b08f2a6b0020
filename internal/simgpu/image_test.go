package simgpu

import (
	"bytes"
	"encoding/binary"
	"testing"
)

func imageOf(t *testing.T, machine *Machine, seed string) SimMachine {
	t.Helper()
	var image SimMachine
	if err := binary.Read(bytes.NewReader(machine.image(seed)), binary.LittleEndian, &image); err != nil {
		t.Fatal(err)
	}
	if image.Magic != SimMagic || image.Version != SimVersion || image.Size != SizeOfSimMachine {
		t.Errorf("image header %x, version %d, %d bytes", image.Magic, image.Version, image.Size)
	}
	return image
}

func text(b []byte) string {
	content, _, _ := bytes.Cut(b, []byte{0})
	return string(content)
}

func TestImageOfMIGMode(t *testing.T) {
	machine := load(t, "h100x8")
	machine.GPUs[2].MIGMode = true
	image := imageOf(t, machine, "s")
	for i, place := range machine.byPCI() {
		want := uint32(SimMIGOff)
		if place == 2 {
			want = SimMIGOn
		}
		if image.Gpus[i].MIG != want {
			t.Errorf("GPU %d: %d, want %d", i, image.Gpus[i].MIG, want)
		}
	}
}

func TestImageOfTheEightGPUHost(t *testing.T) {
	image := imageOf(t, load(t, "a800x8"), "s")
	if image.GPUCount != 8 || image.NICCount != 10 || image.SwitchCount != 4 || image.NodeCount != 2 || image.CudaVersion != 12020 {
		t.Fatalf("%d GPUs, %d NICs, %d switches, %d nodes, CUDA %d",
			image.GPUCount, image.NICCount, image.SwitchCount, image.NodeCount, image.CudaVersion)
	}
	storage := 0
	for i := range 10 {
		if image.Nics[i].Role == 1 {
			storage++
			continue
		}
		if image.Nics[i].PCI.SwitchPlace == SimNone {
			t.Errorf("%s serves a GPU but is under no switch", text(image.Nics[i].Name[:]))
		}
	}
	if storage != 2 {
		t.Errorf("%d storage NICs; want 2", storage)
	}
	for i := range 8 {
		gpu := image.Gpus[i]
		if gpu.PCI.SwitchPlace != uint32(i/2) || gpu.PCI.NUMANode != uint32(i/4) || gpu.Minor != uint32(i) {
			t.Errorf("GPU %d: switch %d, node %d, minor %d", i, gpu.PCI.SwitchPlace, gpu.PCI.NUMANode, gpu.Minor)
		}
		if gpu.LinkCount != 8 || gpu.Links[0] != (SimLink{Remote: SimRemoteSwitch}) || gpu.Links[7].RemotePlace != 5 {
			t.Errorf("GPU %d: %d links, %v", i, gpu.LinkCount, gpu.Links)
		}
	}
	first := image.Gpus[0].PCI
	if first.Bus != 0x0e || first.Device != 0 || text(first.HostBridge[:]) != "pci0000:0b" {
		t.Errorf("GPU 0 is at %+v", first)
	}
	if image.Nodes[1].Cpus[0] != 0xffffffff<<32 || image.Nodes[1].Cpus[1] != 0xffffffff<<32 {
		t.Errorf("CPUs of node 1: %x", image.Nodes[1].Cpus[:2])
	}
}

func TestImageOfManagedMemory(t *testing.T) {
	image := imageOf(t, load(t, "p100-16g"), "s")
	if image.FaultNs != 30_000 || image.FaultBatch != 256 || image.ScatteredRate != 2_900_000_000 || image.HalfDuplex != 1 ||
		image.NamedTouched != 0 || image.HostBytes != 0 || image.Gpus[0].HostRate != 12_200_000_000 {
		t.Errorf("%+v", image)
	}
	machine := load(t, "t4")
	if image = imageOf(t, machine, "s"); image.FaultNs != 0 || image.HalfDuplex != 0 {
		t.Errorf("a machine whose file says nothing of managed memory: %d, %d", image.FaultNs, image.HalfDuplex)
	}
	machine.Managed = Managed{Kernels: "named", HostMemory: 1 << 30, Duplex: "full"}
	if image = imageOf(t, machine, "s"); image.NamedTouched != 1 || image.HostBytes != 1<<30 || image.HalfDuplex != 0 {
		t.Errorf("named kernels and 1 GiB: %d, %d, %d", image.NamedTouched, image.HostBytes, image.HalfDuplex)
	}
}

func TestImageNumbersGPUsByPCIAddress(t *testing.T) {
	content := file(t, "gpus:", `gpus:
  - {pci: "0001:00:1e.0", hostBridge: "pci0001:00", numaNode: 0}
  - {pci: "0000:ff:1e.0", hostBridge: "pci0000:ff", numaNode: 0}`)
	content = append(content, "nvlink: {pairs: [{gpus: [0, 2], links: 3}, {gpus: [2, 1], links: 1}]}\n"...)
	machine, err := Parse("lab.yaml", content)
	if err != nil {
		t.Fatal(err)
	}
	image := imageOf(t, machine, "s")
	// In the file: 0 is 0001:00, 1 is 0000:ff, 2 is 0000:00.
	if image.Gpus[0].PCI.Bus != 0 || image.Gpus[1].PCI.Bus != 0xff || image.Gpus[2].PCI.Domain != 1 {
		t.Errorf("order %+v, %+v, %+v", image.Gpus[0].PCI, image.Gpus[1].PCI, image.Gpus[2].PCI)
	}
	counts := [3]uint32{image.Gpus[0].LinkCount, image.Gpus[1].LinkCount, image.Gpus[2].LinkCount}
	if counts != [3]uint32{4, 1, 3} {
		t.Errorf("links %v; want 4, 1 and 3", counts)
	}
	if got := image.Gpus[2].Links[0]; got != (SimLink{Remote: SimRemoteGPU, RemotePlace: 0}) {
		t.Errorf("GPU 2's first link leads to %v", got)
	}
}

func TestIdentitiesDifferByGPUAndSeed(t *testing.T) {
	seen := map[string]bool{}
	for _, seed := range []string{"a", "b"} {
		for gpu := range 16 {
			id := newIdentity(seed, gpu)
			if id.uuid[6]>>4 != 4 || id.uuid[8]>>6 != 2 || len(id.serial) != 13 {
				t.Errorf("identity %+v", id)
			}
			seen[string(id.uuid[:])], seen[id.serial] = true, true
		}
	}
	if len(seen) != 64 {
		t.Errorf("%d different identities of 64", len(seen))
	}
}
