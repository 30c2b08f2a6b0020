/* NVML: how devices reach each other and their host. */
#include <string.h>

#include "simgpu/nvml/call.h"

/* A PCIe switch counts as one bridge, whatever its number of ports. */
static nvmlGpuTopologyLevel_t level(const sim_pci *a, const sim_pci *b) {
    if (a == b) {
        return NVML_TOPOLOGY_INTERNAL;
    }
    if (a->switch_place != SIM_NONE && a->switch_place == b->switch_place) {
        return NVML_TOPOLOGY_SINGLE;
    }
    if (strcmp(a->host_bridge, b->host_bridge) == 0) {
        return NVML_TOPOLOGY_HOSTBRIDGE;
    }
    return a->numa_node == b->numa_node ? NVML_TOPOLOGY_NODE : NVML_TOPOLOGY_SYSTEM;
}

/* The other device of a call; NULL when it is none. */
static const sim_gpu *other_gpu(const struct nvml_call *call, nvmlDevice_t other) {
    uint32_t index = nvml_handle_index(other);

    return index < call->machine->gpu_count ? &call->machine->gpus[index] : NULL;
}

nvmlReturn_t nvmlDeviceGetTopologyCommonAncestor(nvmlDevice_t device, nvmlDevice_t other,
                                                 nvmlGpuTopologyLevel_t *ancestor) {
    NVML_DEVICE(call, device)
    const sim_gpu *to = other_gpu(&call, other);
    NVML_REQUIRE(ancestor && to);
    *ancestor = level(&call.gpu->pci, &to->pci);
    return NVML_SUCCESS;
}

/* Answers a list of devices. Unlike NVML's other lists, these take a count of 0 as the question how
 * many there are and succeed, and fill whatever room they are given. */
static nvmlReturn_t give(unsigned int *count, nvmlDevice_t *devices, unsigned int n,
                         const nvmlDevice_t *found) {
    NVML_REQUIRE(count && (*count == 0 || devices));
    for (unsigned int i = 0; i < n && i < *count; i++) {
        devices[i] = found[i];
    }
    if (*count == 0 || n < *count) {
        *count = n;
    }
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetTopologyNearestGpus(nvmlDevice_t device, nvmlGpuTopologyLevel_t at,
                                              unsigned int *count, nvmlDevice_t *devices) {
    nvmlDevice_t near[SG_GPUS_MAX];
    unsigned int n = 0;

    NVML_DEVICE(call, device)
    for (uint32_t i = 0; i < call.machine->gpu_count; i++) {
        if (i != call.index && level(&call.gpu->pci, &call.machine->gpus[i].pci) == at) {
            near[n++] = nvml_handle(i);
        }
    }
    return give(count, devices, n, near);
}

nvmlReturn_t nvmlSystemGetTopologyGpuSet(unsigned int cpu, unsigned int *count,
                                         nvmlDevice_t *devices) {
    nvmlDevice_t near[SG_GPUS_MAX];
    unsigned int n = 0;

    NVML_SYSTEM(call)
    NVML_REQUIRE(cpu < 64 * SIM_CPU_WORDS);
    for (uint32_t i = 0; i < call.machine->gpu_count; i++) {
        const sim_node *node = &call.machine->nodes[call.machine->gpus[i].pci.numa_node];
        if (node->cpus[cpu / 64] >> (cpu % 64) & 1) {
            near[n++] = nvml_handle(i);
        }
    }
    return give(count, devices, n, near);
}

/* Fills a mask of words words; CPUs or nodes beyond it are left out. */
static void fill_mask(unsigned long *mask, unsigned int words, const uint64_t *bits,
                      unsigned int have) {
    for (unsigned int i = 0; i < words; i++) {
        mask[i] = i < have ? bits[i] : 0;
    }
}

nvmlReturn_t nvmlDeviceGetCpuAffinity(nvmlDevice_t device, unsigned int words,
                                      unsigned long *mask) {
    NVML_DEVICE(call, device)
    NVML_REQUIRE(mask && words > 0);
    fill_mask(mask, words, call.machine->nodes[call.gpu->pci.numa_node].cpus, SIM_CPU_WORDS);
    return NVML_SUCCESS;
}

/* A socket has one NUMA node. */
nvmlReturn_t nvmlDeviceGetCpuAffinityWithinScope(nvmlDevice_t device, unsigned int words,
                                                 unsigned long *mask, nvmlAffinityScope_t scope) {
    NVML_REQUIRE(scope <= NVML_AFFINITY_SCOPE_SOCKET);
    return nvmlDeviceGetCpuAffinity(device, words, mask);
}

nvmlReturn_t nvmlDeviceGetMemoryAffinity(nvmlDevice_t device, unsigned int words,
                                         unsigned long *mask, nvmlAffinityScope_t scope) {
    NVML_DEVICE(call, device)
    NVML_REQUIRE(mask && words > 0 && scope <= NVML_AFFINITY_SCOPE_SOCKET);
    uint64_t node = 1ull << call.gpu->pci.numa_node;
    fill_mask(mask, words, &node, 1);
    return NVML_SUCCESS;
}

/* Links between two GPUs: direct ones, or all when both hang on switches. */
static unsigned int links_between(const sim_gpu *from, const sim_gpu *to, uint32_t to_place) {
    unsigned int n = 0;

    for (uint32_t i = 0; i < from->link_count; i++) {
        const sim_link *link = &from->links[i];
        n += link->remote == SIM_REMOTE_SWITCH && to->link_count > 0;
        n += link->remote == SIM_REMOTE_GPU && link->remote_place == to_place;
    }
    return n;
}

nvmlReturn_t nvmlDeviceGetP2PStatus(nvmlDevice_t device, nvmlDevice_t other,
                                    nvmlGpuP2PCapsIndex_t what, nvmlGpuP2PStatus_t *status) {
    NVML_DEVICE(call, device)
    const sim_gpu *to = other_gpu(&call, other);
    NVML_REQUIRE(status && to && what < NVML_P2P_CAPS_INDEX_UNKNOWN);
    bool linked = to != call.gpu && links_between(call.gpu, to, nvml_handle_index(other)) > 0;
    bool needs_link = what == NVML_P2P_CAPS_INDEX_NVLINK || what == NVML_P2P_CAPS_INDEX_ATOMICS;
    *status = NVML_P2P_STATUS_OK;
    if (to == call.gpu || (needs_link && !linked)) {
        *status = NVML_P2P_STATUS_NOT_SUPPORTED;
    } else if (!linked && level(&call.gpu->pci, &to->pci) == NVML_TOPOLOGY_SYSTEM) {
        *status = NVML_P2P_STATUS_CHIPSET_NOT_SUPPORTED; /* not across sockets without NVLink */
    }
    return NVML_SUCCESS;
}
