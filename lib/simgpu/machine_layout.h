/* Written by go run ./abi/gen from abi/simgpu.yaml; do not edit. */
#ifndef DIVVY_SIM_LAYOUT_H
#define DIVVY_SIM_LAYOUT_H

#include <stddef.h>
#include <stdint.h>

/* DGSIMACH read as little-endian bytes */
#define SIM_MAGIC UINT64_C(0x4843414d49534744)

/* changes with every change of this description */
#define SIM_VERSION UINT32_C(2)

#define SIM_GPUS_MAX UINT32_C(16)

#define SIM_NICS_MAX UINT32_C(32)

#define SIM_SWITCHES_MAX UINT32_C(32)

#define SIM_NODES_MAX UINT32_C(16)

/* most NVLinks of one GPU */
#define SIM_LINKS_MAX UINT32_C(18)

/* 64-bit words of a CPU mask, 1024 CPUs */
#define SIM_CPU_WORDS UINT32_C(16)

/* no switch */
#define SIM_NONE UINT32_C(0xffffffff)

/* an inactive NVLink */
#define SIM_REMOTE_NONE UINT32_C(0)

/* an NVLink to a GPU */
#define SIM_REMOTE_GPU UINT32_C(1)

/* an NVLink to an NVSwitch */
#define SIM_REMOTE_SWITCH UINT32_C(2)

/* A PCI address and where it hangs. */
typedef struct sim_pci {
    uint32_t domain;
    uint32_t bus;
    uint32_t device;
    uint32_t function;
    /* place in switches or none */
    uint32_t switch_place;
    uint32_t numa_node;
    /* as sysfs names it, pci0000:3a */
    char host_bridge[24];
} sim_pci;
_Static_assert(sizeof(sim_pci) == 48, "sim_pci");
_Static_assert(_Alignof(sim_pci) == 4, "sim_pci");
_Static_assert(offsetof(sim_pci, domain) == 0, "sim_pci.domain");
_Static_assert(offsetof(sim_pci, bus) == 4, "sim_pci.bus");
_Static_assert(offsetof(sim_pci, device) == 8, "sim_pci.device");
_Static_assert(offsetof(sim_pci, function) == 12, "sim_pci.function");
_Static_assert(offsetof(sim_pci, switch_place) == 16, "sim_pci.switch_place");
_Static_assert(offsetof(sim_pci, numa_node) == 20, "sim_pci.numa_node");
_Static_assert(offsetof(sim_pci, host_bridge) == 24, "sim_pci.host_bridge");

/* One NVLink of a GPU. */
typedef struct sim_link {
    /* one of the remote constants */
    uint32_t remote;
    /* number of the GPU or NVSwitch at the other end */
    uint32_t remote_place;
} sim_link;
_Static_assert(sizeof(sim_link) == 8, "sim_link");
_Static_assert(_Alignof(sim_link) == 4, "sim_link");
_Static_assert(offsetof(sim_link, remote) == 0, "sim_link.remote");
_Static_assert(offsetof(sim_link, remote_place) == 4, "sim_link.remote_place");

/* One GPU. */
typedef struct sim_gpu {
    _Alignas(8) uint8_t uuid[16];
    char name[96];
    char serial[32];
    sim_pci pci;
    /* all of the memory */
    uint64_t memory_bytes;
    /* the driver's own part of it */
    uint64_t reserved_bytes;
    /* taken by the first context of a process */
    uint64_t context_bytes;
    uint64_t bar1_bytes;
    /* copies to and from the host, bytes per second in each direction */
    uint64_t host_rate;
    /* copies and fills within the memory, bytes per second */
    uint64_t memory_rate;
    uint32_t multiprocessors;
    uint32_t compute_major;
    uint32_t compute_minor;
    /* nvmlBrandType_t */
    uint32_t brand;
    /* nvmlDeviceArchitecture_t */
    uint32_t architecture;
    uint32_t graphics_mhz;
    uint32_t memory_mhz;
    uint32_t power_limit_watts;
    uint32_t pcie_generation;
    uint32_t pcie_width;
    /* device and vendor, 0x20b510de */
    uint32_t device_id;
    uint32_t subsystem_id;
    /* 1 where the memory is checked */
    uint32_t ecc;
    /* 1 where the model has MIG; it is always off */
    uint32_t mig;
    /* number of /dev/nvidia<minor> */
    uint32_t minor;
    uint32_t link_count;
    sim_link links[SIM_LINKS_MAX];
} sim_gpu;
_Static_assert(sizeof(sim_gpu) == 448, "sim_gpu");
_Static_assert(_Alignof(sim_gpu) == 8, "sim_gpu");
_Static_assert(offsetof(sim_gpu, uuid) == 0, "sim_gpu.uuid");
_Static_assert(offsetof(sim_gpu, name) == 16, "sim_gpu.name");
_Static_assert(offsetof(sim_gpu, serial) == 112, "sim_gpu.serial");
_Static_assert(offsetof(sim_gpu, pci) == 144, "sim_gpu.pci");
_Static_assert(offsetof(sim_gpu, memory_bytes) == 192, "sim_gpu.memory_bytes");
_Static_assert(offsetof(sim_gpu, reserved_bytes) == 200, "sim_gpu.reserved_bytes");
_Static_assert(offsetof(sim_gpu, context_bytes) == 208, "sim_gpu.context_bytes");
_Static_assert(offsetof(sim_gpu, bar1_bytes) == 216, "sim_gpu.bar1_bytes");
_Static_assert(offsetof(sim_gpu, host_rate) == 224, "sim_gpu.host_rate");
_Static_assert(offsetof(sim_gpu, memory_rate) == 232, "sim_gpu.memory_rate");
_Static_assert(offsetof(sim_gpu, multiprocessors) == 240, "sim_gpu.multiprocessors");
_Static_assert(offsetof(sim_gpu, compute_major) == 244, "sim_gpu.compute_major");
_Static_assert(offsetof(sim_gpu, compute_minor) == 248, "sim_gpu.compute_minor");
_Static_assert(offsetof(sim_gpu, brand) == 252, "sim_gpu.brand");
_Static_assert(offsetof(sim_gpu, architecture) == 256, "sim_gpu.architecture");
_Static_assert(offsetof(sim_gpu, graphics_mhz) == 260, "sim_gpu.graphics_mhz");
_Static_assert(offsetof(sim_gpu, memory_mhz) == 264, "sim_gpu.memory_mhz");
_Static_assert(offsetof(sim_gpu, power_limit_watts) == 268, "sim_gpu.power_limit_watts");
_Static_assert(offsetof(sim_gpu, pcie_generation) == 272, "sim_gpu.pcie_generation");
_Static_assert(offsetof(sim_gpu, pcie_width) == 276, "sim_gpu.pcie_width");
_Static_assert(offsetof(sim_gpu, device_id) == 280, "sim_gpu.device_id");
_Static_assert(offsetof(sim_gpu, subsystem_id) == 284, "sim_gpu.subsystem_id");
_Static_assert(offsetof(sim_gpu, ecc) == 288, "sim_gpu.ecc");
_Static_assert(offsetof(sim_gpu, mig) == 292, "sim_gpu.mig");
_Static_assert(offsetof(sim_gpu, minor) == 296, "sim_gpu.minor");
_Static_assert(offsetof(sim_gpu, link_count) == 300, "sim_gpu.link_count");
_Static_assert(offsetof(sim_gpu, links) == 304, "sim_gpu.links");

/* One network card. */
typedef struct sim_nic {
    _Alignas(4) char name[16];
    sim_pci pci;
    /* 0 gpu, 1 storage, 2 host */
    uint32_t role;
} sim_nic;
_Static_assert(sizeof(sim_nic) == 68, "sim_nic");
_Static_assert(_Alignof(sim_nic) == 4, "sim_nic");
_Static_assert(offsetof(sim_nic, name) == 0, "sim_nic.name");
_Static_assert(offsetof(sim_nic, pci) == 16, "sim_nic.pci");
_Static_assert(offsetof(sim_nic, role) == 64, "sim_nic.role");

/* One NUMA node. */
typedef struct sim_node {
    /* mask of its CPUs */
    uint64_t cpus[SIM_CPU_WORDS];
} sim_node;
_Static_assert(sizeof(sim_node) == 128, "sim_node");
_Static_assert(_Alignof(sim_node) == 8, "sim_node");
_Static_assert(offsetof(sim_node, cpus) == 0, "sim_node.cpus");

/* The whole machine. */
typedef struct sim_machine {
    uint64_t magic;
    uint32_t version;
    /* bytes of this struct */
    uint32_t size;
    char name[48];
    char driver_version[80];
    /* 12040 is 12.4 */
    uint32_t cuda_version;
    uint32_t gpu_count;
    uint32_t nic_count;
    uint32_t switch_count;
    uint32_t node_count;
    uint32_t nvswitch_count;
    /* CPU time of each call that takes device memory */
    uint64_t alloc_ns;
    /* CPU time of each launch */
    uint64_t launch_ns;
    /* GPU time of each kernel that is not known by name */
    uint64_t kernel_ns;
    /* GPU time of an event's record */
    uint64_t event_ns;
    /* time slice of one process */
    uint64_t slice_ns;
    /* launches of one stream before one more waits */
    uint64_t queue_depth;
    /* NVML's utilisation window */
    uint64_t sample_window_ns;
    /* delay until NVML tells it */
    uint64_t sample_lag_ns;
    /* 1 where time passes on command alone */
    uint64_t virtual_clock;
    sim_pci switches[SIM_SWITCHES_MAX];
    sim_node nodes[SIM_NODES_MAX];
    sim_nic nics[SIM_NICS_MAX];
    sim_gpu gpus[SIM_GPUS_MAX];
} sim_machine;
_Static_assert(sizeof(sim_machine) == 13168, "sim_machine");
_Static_assert(_Alignof(sim_machine) == 8, "sim_machine");
_Static_assert(offsetof(sim_machine, magic) == 0, "sim_machine.magic");
_Static_assert(offsetof(sim_machine, version) == 8, "sim_machine.version");
_Static_assert(offsetof(sim_machine, size) == 12, "sim_machine.size");
_Static_assert(offsetof(sim_machine, name) == 16, "sim_machine.name");
_Static_assert(offsetof(sim_machine, driver_version) == 64, "sim_machine.driver_version");
_Static_assert(offsetof(sim_machine, cuda_version) == 144, "sim_machine.cuda_version");
_Static_assert(offsetof(sim_machine, gpu_count) == 148, "sim_machine.gpu_count");
_Static_assert(offsetof(sim_machine, nic_count) == 152, "sim_machine.nic_count");
_Static_assert(offsetof(sim_machine, switch_count) == 156, "sim_machine.switch_count");
_Static_assert(offsetof(sim_machine, node_count) == 160, "sim_machine.node_count");
_Static_assert(offsetof(sim_machine, nvswitch_count) == 164, "sim_machine.nvswitch_count");
_Static_assert(offsetof(sim_machine, alloc_ns) == 168, "sim_machine.alloc_ns");
_Static_assert(offsetof(sim_machine, launch_ns) == 176, "sim_machine.launch_ns");
_Static_assert(offsetof(sim_machine, kernel_ns) == 184, "sim_machine.kernel_ns");
_Static_assert(offsetof(sim_machine, event_ns) == 192, "sim_machine.event_ns");
_Static_assert(offsetof(sim_machine, slice_ns) == 200, "sim_machine.slice_ns");
_Static_assert(offsetof(sim_machine, queue_depth) == 208, "sim_machine.queue_depth");
_Static_assert(offsetof(sim_machine, sample_window_ns) == 216, "sim_machine.sample_window_ns");
_Static_assert(offsetof(sim_machine, sample_lag_ns) == 224, "sim_machine.sample_lag_ns");
_Static_assert(offsetof(sim_machine, virtual_clock) == 232, "sim_machine.virtual_clock");
_Static_assert(offsetof(sim_machine, switches) == 240, "sim_machine.switches");
_Static_assert(offsetof(sim_machine, nodes) == 1776, "sim_machine.nodes");
_Static_assert(offsetof(sim_machine, nics) == 3824, "sim_machine.nics");
_Static_assert(offsetof(sim_machine, gpus) == 6000, "sim_machine.gpus");

#endif
