/* simgpuctl create: makes an instance from the description on standard input. */
#include "simgpu/ctl/ctl.h"

#include <stdio.h>
#include <string.h>

_Static_assert(SG_GPUS_MAX == SIM_GPUS_MAX, "the instance has room for every described GPU");

static bool text_ends(const char *text, size_t size) {
    return memchr(text, '\0', size) != NULL;
}

static bool gpu_fits(const sim_machine *m, const sim_gpu *gpu) {
    for (uint32_t i = 0; i < gpu->link_count && i < SIM_LINKS_MAX; i++) {
        if (gpu->links[i].remote == SIM_REMOTE_GPU && gpu->links[i].remote_place >= m->gpu_count) {
            return false;
        }
    }
    return gpu->link_count <= SIM_LINKS_MAX && gpu->pci.numa_node < m->node_count &&
           gpu->reserved_bytes < gpu->memory_bytes && gpu->host_rate && gpu->memory_rate &&
           gpu->multiprocessors >= 1 && gpu->multiprocessors <= SG_MULTIPROCESSORS_MAX &&
           gpu->pcie_generation >= 1 && gpu->pcie_generation <= 7 &&
           text_ends(gpu->name, sizeof gpu->name) && text_ends(gpu->serial, sizeof gpu->serial) &&
           text_ends(gpu->pci.host_bridge, sizeof gpu->pci.host_bridge);
}

/* The simulated driver indexes its tables by these figures without checking them again. */
static bool machine_fits(const sim_machine *m) {
    if (m->magic != SIM_MAGIC || m->version != SIM_VERSION || m->size != sizeof *m ||
        m->event_ns == 0 || m->dead_handles > SIM_DEAD_REUSE || m->gpu_count == 0 ||
        m->gpu_count > SIM_GPUS_MAX || m->nic_count > SIM_NICS_MAX ||
        m->switch_count > SIM_SWITCHES_MAX || m->node_count > SIM_NODES_MAX ||
        !text_ends(m->name, sizeof m->name) ||
        !text_ends(m->driver_version, sizeof m->driver_version)) {
        return false;
    }
    for (uint32_t i = 0; i < m->gpu_count; i++) {
        if (!gpu_fits(m, &m->gpus[i])) {
            return false;
        }
    }
    return true;
}

int ctl_create(const char *dir) {
    static sim_machine machine;
    struct sg_create spec = {.machine = &machine, .machine_bytes = sizeof machine};

    if (fread(&machine, sizeof machine, 1, stdin) != 1 || fgetc(stdin) != EOF ||
        !machine_fits(&machine)) {
        fprintf(stderr, "%s: standard input holds no machine description of this version\n", dir);
        return 1;
    }
    spec.gpu_count = machine.gpu_count;
    spec.slice_ns = machine.slice_ns;
    spec.virtual_clock = machine.virtual_clock != 0;
    spec.pages = (struct sg_page_costs){.fault_ns = machine.fault_ns,
                                        .batch = machine.fault_batch,
                                        .rate = machine.gpus[0].host_rate,
                                        .scattered_rate = machine.scattered_rate,
                                        .half_duplex = machine.half_duplex,
                                        .host_bytes = machine.host_bytes};
    for (uint32_t i = 0; i < machine.gpu_count; i++) {
        spec.gpus[i] = (struct sg_create_gpu){.total_bytes = machine.gpus[i].memory_bytes,
                                              .reserved_bytes = machine.gpus[i].reserved_bytes,
                                              .mig = machine.gpus[i].mig == SIM_MIG_ON};
    }
    int result = sg_state_create(dir, &spec);
    return result == 0 ? 0 : ctl_fail(dir, result);
}
