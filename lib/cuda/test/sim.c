#define _GNU_SOURCE
#include "cuda/test/sim.h"

#include <dirent.h>
#include <stddef.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "abi/generated/machine_layout.h"

/* Set by the build. */
#ifndef SIM_DRIVER
#error "SIM_DRIVER, SIM_NVML, OUR_NVML and SIM_CTL name the products that the test puts together"
#endif

uint64_t sim_dead_handles = SIM_DEAD_END;
uint64_t sim_load_ns;
uint32_t sim_cuda_version = 12040;
const char *sim_driver = SIM_DRIVER;
bool sim_mig;
static char machine_directory[64];
static pid_t owner;

static void remove_machine(void) {
    if (getpid() != owner) {
        return;
    }
    DIR *entries = opendir(machine_directory);
    for (struct dirent *e; entries != NULL && (e = readdir(entries)) != NULL;) {
        unlinkat(dirfd(entries), e->d_name, 0);
    }
    if (entries != NULL) {
        closedir(entries);
    }
    rmdir(machine_directory);
}

static void describe(sim_machine *machine) {
    memset(machine, 0, sizeof *machine);
    machine->magic = SIM_MAGIC;
    machine->version = SIM_VERSION;
    machine->size = sizeof *machine;
    strcpy(machine->name, "test");
    strcpy(machine->driver_version, "550.90.07");
    machine->cuda_version = sim_cuda_version;
    machine->gpu_count = SIM_GPUS;
    machine->node_count = 1;
    machine->event_ns = 500;
    machine->dead_handles = sim_dead_handles;
    machine->load_ns = sim_load_ns;
    machine->slice_ns = 1000000;
    machine->queue_depth = 1024;
    machine->sample_window_ns = 166666667;
    for (unsigned i = 0; i < SIM_GPUS; i++) {
        sim_gpu *gpu = &machine->gpus[i];
        memset(gpu->uuid, (int)(i + 1), sizeof gpu->uuid);
        strcpy(gpu->name, "Simulated GPU");
        gpu->pci = (sim_pci){.bus = 0x11 + i, .switch_place = SIM_NONE};
        strcpy(gpu->pci.host_bridge, "pci0000:10");
        gpu->memory_bytes = SIM_TOTAL;
        gpu->reserved_bytes = 16 * MIB;
        gpu->context_bytes = SIM_CONTEXT;
        gpu->bar1_bytes = 64 * MIB;
        gpu->multiprocessors = 10;
        gpu->host_rate = 20000000000;
        gpu->memory_rate = 500000000000;
        gpu->compute_major = 8;
        gpu->pcie_generation = 4;
        gpu->pcie_width = 16;
        gpu->graphics_mhz = 1400;
        gpu->memory_mhz = 1500;
        gpu->power_limit_watts = 300;
        gpu->minor = i;
    }
}

static void describe_mig(sim_machine *machine) {
    static const sim_mig_profile profiles[] = {
        {.name = "1g.2gb", .kind = 0, .id = 19, .slices = 1, .size = 1, .starts = 0x7f},
        {.name = "3g.8gb", .kind = 2, .id = 9, .slices = 3, .size = 4, .starts = 0x11},
    };
    machine->mig_slices = 8;
    machine->mig_profile_count = sizeof profiles / sizeof profiles[0];
    for (unsigned i = 0; i < machine->mig_profile_count; i++) {
        machine->mig_profiles[i] = profiles[i];
        machine->mig_profiles[i].instances = 7 / profiles[i].slices;
        machine->mig_profiles[i].multiprocessors = profiles[i].slices;
        machine->mig_profiles[i].memory_mib = profiles[i].size * 2048;
    }
    machine->gpus[0].mig = machine->gpus[1].mig = SIM_MIG_ON;
}

static void make_machine(void) {
    static sim_machine machine;
    char command[256];
    describe(&machine);
    if (sim_mig) {
        describe_mig(&machine);
    }
    strcpy(machine_directory, "/tmp/divvy-cuda-test-sim-XXXXXX");
    CHECK(mkdtemp(machine_directory) != NULL);
    owner = getpid();
    atexit(remove_machine);
    snprintf(command, sizeof command, "%s create %s", SIM_CTL, machine_directory);
    FILE *create = popen(command, "w");
    CHECK(create != NULL);
    CHECK_EQUAL(fwrite(&machine, sizeof machine, 1, create), 1);
    CHECK_EQUAL(pclose(create), 0);
}

static void link_in(const struct setting *setting, const char *target, const char *name) {
    CHECK(symlink(target, setting_path(setting, name)) == 0);
}

void sim_make_neighbour(struct setting *setting, unsigned gpus, uint64_t limit) {
    uint64_t context = SIM_CONTEXT;
    setting_make(setting, gpus, limit, sim_driver);
    for (unsigned i = 0; i < gpus; i++) {
        setting_write(setting, i, offsetof(dv_page_device, context_bytes), &context,
                      sizeof context);
    }
    link_in(setting, machine_directory, "simgpu");
    link_in(setting, SIM_DRIVER, "libcuda-simgpu.so.1");
    link_in(setting, SIM_NVML, "libnvidia-ml-real.so.1");
    setting_install(setting, OUR_NVML, "libnvidia-ml.so.1");
}

void sim_make_swap_closed(struct setting *setting, unsigned gpus, uint64_t limit, uint64_t kept) {
    uint32_t flags = DV_PAGE_FLAG_SWAP;
    sim_make_closed(setting, 2 * gpus, limit - kept);
    tenant_write(&setting->tenant, "config", offsetof(dv_page_config, flags), &flags, sizeof flags);
    for (unsigned i = 0; i < gpus; i++) {
        uint8_t uuid[16];
        memset(uuid, (int)(i + 1), sizeof uuid);
        setting_uuid(setting, gpus + i, uuid);
        setting_write(setting, gpus + i, offsetof(dv_page_device, limit), &kept, sizeof kept);
    }
}

void sim_make_swap(struct setting *setting, unsigned gpus, uint64_t limit, uint64_t kept) {
    sim_make_swap_closed(setting, gpus, limit, kept);
    setting_open(setting);
}

void sim_make_closed(struct setting *setting, unsigned gpus, uint64_t limit) {
    make_machine();
    sim_make_neighbour(setting, gpus, limit);
}

void sim_make(struct setting *setting, unsigned gpus, uint64_t limit) {
    sim_make_closed(setting, gpus, limit);
    setting_open(setting);
}

static char report[1 << 20];

void sim_look(void) {
    char command[256];
    snprintf(command, sizeof command, "%s report %s", SIM_CTL, machine_directory);
    FILE *out = popen(command, "r");
    CHECK(out != NULL);
    size_t size = fread(report, 1, sizeof report - 1, out);
    CHECK_EQUAL(pclose(out), 0);
    report[size] = '\0';
}

uint64_t sim_seen(const struct setting *setting, unsigned gpu, const char *name) {
    char key[128];
    const char *at = strstr(report, "\"tenants\":");
    CHECK(at != NULL);
    snprintf(key, sizeof key, "\"tenant\": \"%s\"", strrchr(setting->tenant.directory, '/') + 1);
    at = strstr(at, key);
    if (at == NULL) {
        return 0; /* it has not come to the machine yet */
    }
    snprintf(key, sizeof key, "{\"index\": %u,", gpu);
    at = strstr(at, key);
    CHECK(at != NULL);
    snprintf(key, sizeof key, "\"%s\": ", name);
    at = strstr(at, key);
    CHECK(at != NULL);
    return strtoull(at + strlen(key), NULL, 10);
}

const char *sim_machine_directory(void) {
    return machine_directory;
}

void sim_join(const char *machine) {
    snprintf(machine_directory, sizeof machine_directory, "%s", machine);
}

uint64_t sim_seen_of(pid_t pid, const char *name) {
    char key[64];
    snprintf(key, sizeof key, "{\"pid\": %d,", (int)pid);
    const char *at = strstr(report, key);
    const char *end = at != NULL ? strstr(at, "]}") : NULL;
    snprintf(key, sizeof key, "\"%s\": ", name);
    at = at != NULL ? strstr(at, key) : NULL;
    return at != NULL && at < end ? strtoull(at + strlen(key), NULL, 10) : UINT64_MAX;
}

void sim_instance_of(pid_t pid, char name[48]) {
    char key[64];
    snprintf(key, sizeof key, "{\"pid\": %d,", (int)pid);
    const char *at = strstr(report, key);
    const char *end = at != NULL ? strstr(at, "\"gpus\": [") : NULL;
    at = at != NULL ? strstr(at, "\"mig\": \"") : NULL;
    name[0] = '\0';
    if (at != NULL && at < end) {
        sscanf(at, "\"mig\": \"%47[^\"]", name);
    }
}

/* A figure of now. */
static uint64_t figure(const struct setting *setting, unsigned gpu, const char *name) {
    sim_look();
    return sim_seen(setting, gpu, name);
}

uint64_t sim_time(const struct setting *setting, unsigned gpu) {
    return figure(setting, gpu, "gpuNs");
}

uint64_t sim_used(const struct setting *setting, unsigned gpu) {
    return figure(setting, gpu, "used");
}

uint64_t sim_peak(const struct setting *setting, unsigned gpu) {
    return figure(setting, gpu, "peak");
}
