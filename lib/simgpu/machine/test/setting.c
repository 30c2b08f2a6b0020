#define _GNU_SOURCE
#include "simgpu/machine/test/setting.h"

#include <errno.h>
#include <ftw.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static char directory[64];
static pid_t owner;

static void describe_gpu(sim_gpu *gpu, uint32_t i) {
    static const struct {
        uint32_t bus, switch_place, node;
        const char *bridge;
    } places[GPU_COUNT] = {
        {0x11, 0, 0, "pci0000:10"},
        {0x12, 0, 0, "pci0000:10"},
        {0x21, SIM_NONE, 0, "pci0000:20"},
        {0x81, SIM_NONE, 1, "pci0000:80"},
    };

    memset(gpu->uuid, (int)(0xa0 + i), sizeof gpu->uuid);
    snprintf(gpu->name, sizeof gpu->name, "Simulated GPU");
    snprintf(gpu->serial, sizeof gpu->serial, "serial-%u", i);
    gpu->pci = (sim_pci){
        .bus = places[i].bus, .switch_place = places[i].switch_place, .numa_node = places[i].node};
    snprintf(gpu->pci.host_bridge, sizeof gpu->pci.host_bridge, "%s", places[i].bridge);
    gpu->memory_bytes = GPU_BYTES;
    gpu->reserved_bytes = GPU_RESERVED;
    gpu->context_bytes = 4 * MIB;
    gpu->bar1_bytes = 64 * MIB;
    gpu->host_rate = 25000000000u;
    gpu->memory_rate = 2000000000000u;
    gpu->multiprocessors = 10;
    gpu->compute_major = 8;
    gpu->brand = 14;
    gpu->architecture = 7;
    gpu->graphics_mhz = 1400;
    gpu->memory_mhz = 1500;
    gpu->power_limit_watts = 300;
    gpu->pcie_generation = 4;
    gpu->pcie_width = 16;
    gpu->device_id = 0x20b510de;
    gpu->subsystem_id = 0x153310de;
    gpu->ecc = gpu->mig = 1;
    gpu->minor = i;
    if (i < 2) {
        gpu->link_count = 3;
        gpu->links[0] = gpu->links[1] = (sim_link){SIM_REMOTE_GPU, 1 - i};
    }
}

/* Instances of 28 MiB for each of eight memory slices, and a multiprocessor for each compute slice; the whole has all. */
static void describe_mig(sim_machine *machine) {
    static const struct {
        const char *name;
        uint32_t kind, id, slices, size, starts, instances;
    } profiles[] = {
        {"1g.28mb", 0, 19, 1, 1, 0x7f, 7}, {"1g.28mb+me", 7, 20, 1, 1, 0x7f, 1},
        {"1g.56mb", 9, 15, 1, 2, 0x55, 4}, {"2g.56mb", 1, 14, 2, 2, 0x15, 3},
        {"3g.112mb", 2, 9, 3, 4, 0x11, 2}, {"4g.112mb", 3, 5, 4, 4, 0x01, 1},
        {"7g.224mb", 4, 0, 7, 8, 0x01, 1},
    };

    machine->mig_slices = 8;
    machine->mig_profile_count = sizeof profiles / sizeof *profiles;
    for (uint32_t i = 0; i < machine->mig_profile_count; i++) {
        machine->mig_profiles[i] = (sim_mig_profile){.kind = profiles[i].kind,
                                                     .id = profiles[i].id,
                                                     .slices = profiles[i].slices,
                                                     .size = profiles[i].size,
                                                     .starts = profiles[i].starts,
                                                     .instances = profiles[i].instances,
                                                     .multiprocessors = profiles[i].slices,
                                                     .copy_engines = profiles[i].slices,
                                                     .memory_mib = 28 * profiles[i].size};
        snprintf(machine->mig_profiles[i].name, sizeof machine->mig_profiles[i].name, "%s",
                 profiles[i].name);
    }
    machine->mig_profiles[6].multiprocessors = 10;
}

void setting_describe(sim_machine *machine) {
    memset(machine, 0, sizeof *machine);
    machine->magic = SIM_MAGIC;
    machine->version = SIM_VERSION;
    machine->size = sizeof *machine;
    snprintf(machine->name, sizeof machine->name, "test");
    snprintf(machine->driver_version, sizeof machine->driver_version, "550.90.07");
    machine->cuda_version = 12040;
    machine->gpu_count = GPU_COUNT;
    machine->switch_count = 1;
    machine->node_count = 2;
    machine->slice_ns = 1000000;
    machine->queue_depth = 1024;
    machine->event_ns = 500;
    machine->dead_handles = SIM_DEAD_COUNT; /* tests look at the errors that calls answer */
    machine->sample_window_ns = SG_SAMPLE_NS;
    describe_mig(machine);
    machine->nodes[0].cpus[0] = 0x0f;
    machine->nodes[1].cpus[0] = 0xf0;
    for (uint32_t i = 0; i < GPU_COUNT; i++) {
        describe_gpu(&machine->gpus[i], i);
    }
}

static int remove_entry(const char *path, const struct stat *status, int type, struct FTW *at) {
    (void)status;
    (void)type;
    (void)at;
    remove(path);
    return 0;
}

void setting_remove(const char *instance) {
    nftw(instance, remove_entry, 8, FTW_DEPTH | FTW_PHYS);
}

static void remove_directory(void) {
    if (getpid() == owner) {
        setting_remove(directory);
    }
}

const char *setting_make(const sim_machine *machine) {
    struct sg_create spec = {.gpu_count = machine->gpu_count,
                             .slice_ns = machine->slice_ns,
                             .virtual_clock = machine->virtual_clock != 0,
                             .pages = {.fault_ns = machine->fault_ns,
                                       .batch = machine->fault_batch,
                                       .rate = machine->gpus[0].host_rate,
                                       .scattered_rate = machine->scattered_rate,
                                       .half_duplex = machine->half_duplex,
                                       .host_bytes = machine->host_bytes},
                             .machine = machine,
                             .machine_bytes = sizeof *machine};

    for (uint32_t i = 0; i < machine->gpu_count; i++) {
        spec.gpus[i] =
            (struct sg_create_gpu){machine->gpus[i].memory_bytes, machine->gpus[i].reserved_bytes,
                                   machine->gpus[i].mig == SIM_MIG_ON};
    }
    if (owner) {
        setting_remove(directory);
    }
    snprintf(directory, sizeof directory, "/tmp/divvy-simgpu-test-XXXXXX");
    CHECK(mkdtemp(directory));
    if (!owner) {
        atexit(remove_directory);
    }
    owner = getpid();
    CHECK_EQUAL(sg_state_create(directory, &spec), 0);
    CHECK_EQUAL(setenv("DIVVY_SIMGPU", directory, 1), 0);
    return directory;
}

uint64_t setting_submit(struct sg_instance *in, uint32_t gpu, uint64_t work_ns) {
    return sg_submit(
        in, gpu, sg_time(in),
        &(struct sg_work){.ns = work_ns, .engine = SG_ON_MULTIPROCESSORS, .multiprocessors = 1});
}

/* The process itself: says that it is ready, then computes until it is killed. */
_Noreturn static void live(const char *tag, uint32_t gpu, uint32_t blocks, uint64_t work_ns,
                           int ready) {
    static uint32_t numbers[GPU_BYTES / SG_BLOCK_BYTES];
    struct sg_instance in;

    prctl(PR_SET_PDEATHSIG, SIGKILL);
    CHECK_EQUAL(sg_open(&in, directory, tag, true), 0);
    sg_state_lock(&in);
    in.state->clients[in.id].contexts[gpu] = 1;
    CHECK_EQUAL(sg_blocks_take(&in, gpu, SG_LINEAR, blocks, numbers), 0);
    sg_state_unlock(&in);
    if (work_ns) {
        setting_submit(&in, gpu, work_ns);
    }
    CHECK_EQUAL(write(ready, "r", 1), 1);
    for (;;) {
        pause();
    }
}

pid_t setting_process(const char *tag, uint32_t gpu, uint32_t blocks, uint64_t work_ns) {
    int ends[2];
    char said;

    CHECK_EQUAL(pipe(ends), 0);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        close(ends[0]);
        live(tag, gpu, blocks, work_ns, ends[1]);
    }
    close(ends[1]);
    CHECK_EQUAL(read(ends[0], &said, 1), 1);
    close(ends[0]);
    return child;
}

void setting_kill(pid_t process) {
    kill(process, SIGKILL);
    while (waitpid(process, NULL, 0) < 0) {
        CHECK(errno == EINTR);
    }
}

void setting_pause(void) {
    const struct timespec pause = {.tv_nsec = 5000000};

    nanosleep(&pause, NULL);
}
