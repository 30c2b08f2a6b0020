// Package simgpu describes simulated machines, makes instances of them and
// reads what really happened on them.
//
// A machine file is YAML, read strictly: an unknown field is an error.
//
//	apiVersion: divvy.dev/v1alpha1
//	kind: SimulatedMachine
//	name: lab                      # lower case letters, digits and dashes
//	description: two small GPUs
//	clock: real                    # or virtual: time passes on command alone
//	deadHandles: end               # or count, reuse: what happens to who passes one that has ended
//	driver: {version: 550.90.07, cuda: "12.4"}
//	gpu:                           # every GPU of the machine is of this model
//	  model: NVIDIA T4
//	  brand: nvidia                # tesla, geforce, quadro, titan or nvidia
//	  architecture: turing         # turing, ampere, ada, hopper or blackwell
//	  computeCapability: "7.5"
//	  memory: 16Gi                 # all of it, as NVML's total
//	  reserved: 256Mi              # what the driver keeps for itself
//	  context: 104Mi               # what the first context of a process takes
//	  bar1: 256Mi
//	  multiprocessors: 40
//	  clocks: {graphics: 1590, memory: 5001}    # MHz
//	  bandwidth: {host: 12G, memory: 300G}      # bytes per second
//	  powerLimit: 70               # watts
//	  pcie: {generation: 3, width: 16}
//	  deviceID: "0x1eb810de"       # device and vendor, as NVML gives them
//	  subsystemID: "0x12a210de"
//	  ecc: true
//	  mig: false                   # whether the model has MIG
//	                               # migProfiles: see the file of a100-80g
//	costs:
//	  alloc: 0s                    # each call that takes device memory
//	  launch: 0s                   # each launch, on the CPU
//	  kernel: 100us                # each kernel not known by name, on the GPU
//	  event: 500ns                 # each record of an event, on the GPU
//	  timeSlice: 1024us            # one process's turn on a contended GPU
//	  queue: 1024                  # launches of one stream before one more waits
//	sampling: {window: 167ms, lag: 300ms}       # NVML's utilisation
//	                               # processes: hidden, foreign; processLag: 1s; see docs/simgpu.md
//	numaNodes: [{cpus: 0-15}]
//	switches: [{pci: "0000:10:00.0", hostBridge: "pci0000:0f", numaNode: 0}]
//	gpus:
//	  - {pci: "0000:12:00.0", switch: "0000:10:00.0"}
//	  - {pci: "0000:3b:00.0", hostBridge: "pci0000:3a", numaNode: 0}    # migMode: true; see docs/simgpu.md
//	nics:
//	  - {name: mlx5_0, pci: "0000:13:00.0", switch: "0000:10:00.0", role: gpu}
//	nvlink:                        # one of the two forms
//	  switches: 4                  # NVSwitches, every GPU linked to all of them
//	  links: 18                    # links of each GPU
//	  pairs: [{gpus: [0, 1], links: 4}]         # bridges without a switch
//
// Amounts of memory are written as on the command line (16Gi, 800M, bytes);
// memory less reserved must be whole blocks of 2 MiB, the unit in which the
// driver hands it out. Durations are written as Go writes them (100us, 1.5ms).
// NVML's window is rounded up to whole sixths of a second, the period of its
// samples. NVML numbers the GPUs by PCI address, whatever their order in the file.
//
// The package shares nothing with the library under test except those words:
// its figures come from the simulated driver alone ([Report]).
package simgpu
