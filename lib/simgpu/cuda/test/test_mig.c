/* A process in an instance of a divided GPU: what it sees, what it may have, and who notices. */
#define _GNU_SOURCE
#include "simgpu/cuda/test/cuda.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define USABLE 16 /* MiB of an instance of one slice: 28 less the driver's 12 */

static struct sg_instance admin;

static uint32_t make(uint32_t gpu, uint32_t profile, uint32_t slices) {
    sg_state_lock(&admin);
    int gi = sg_mig_create(&admin, gpu, profile, SG_MIG_ANYWHERE);
    CHECK(gi >= 0);
    int ci = sg_mig_compute_create(&admin, gpu, (uint32_t)gi, slices, SG_MIG_ANYWHERE);
    CHECK(ci >= 0);
    sg_state_unlock(&admin);
    return sg_place_of(gpu, (uint32_t)gi, (uint32_t)ci);
}

/* The name of an instance for CUDA_VISIBLE_DEVICES, in the form of today or the older one. */
static void see(uint32_t place, bool older) {
    uint8_t uuid[16];
    char name[96], *at = name;

    memset(uuid, (int)(0xa0 + sg_place_gpu(place)), sizeof uuid);
    if (!older) {
        sg_mig_uuid(&admin, place, uuid);
    }
    at += sprintf(at, older ? "MIG-GPU-" : "MIG-");
    for (unsigned i = 0; i < 16; i++) {
        at += sprintf(at, i == 4 || i == 6 || i == 8 || i == 10 ? "-%02x" : "%02x", uuid[i]);
    }
    if (older) {
        sprintf(at, "/%u/%u", sg_place_gi(place), sg_place_ci(place));
    }
    CHECK_EQUAL(setenv("CUDA_VISIBLE_DEVICES", name, 1), 0);
}

static CUcontext begin(void) {
    CUcontext ctx;

    OK(cuInit(0));
    OK(cuDevicePrimaryCtxRetain(&ctx, 0));
    OK(cuCtxSetCurrent(ctx));
    return ctx;
}

/* In an instance of one slice. */
static int small(int channel) {
    CUdeviceptr memory;
    CUuuid uuid;
    size_t left, total;
    int count, value;
    char name[64];

    (void)channel;
    begin();
    OK(cuDeviceGetCount(&count));
    CHECK_EQUAL(count, 1);
    OK(cuDeviceGetName(name, sizeof name, 0));
    CHECK_EQUAL(strcmp(name, "Simulated GPU MIG 1g.28mb"), 0);
    OK(cuDeviceGetAttribute(&value, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, 0));
    CHECK_EQUAL(value, 1);
    OK(cuDeviceTotalMem_v2(&total, 0));
    CHECK_EQUAL(total, USABLE * MIB);
    OK(cuMemGetInfo_v2(&left, &total));
    CHECK_EQUAL(total, USABLE * MIB);
    CHECK_EQUAL(left, (USABLE - 4) * MIB); /* less the context */
    OK(cuMemAlloc_v2(&memory, left));
    FAILS(cuMemAlloc_v2(&memory, 2 * MIB), CUDA_ERROR_OUT_OF_MEMORY);
    OK(cuDeviceGetUuid(&uuid, 0));
    CHECK_EQUAL((unsigned char)uuid.bytes[0], 0xa0);
    OK(cuDeviceGetUuid_v2(&uuid, 0));
    CHECK_EQUAL(uuid.bytes[6] >> 4, 5);
    return 0;
}

/* In an instance: the driver saves none, and loses the process that it tried to. */
static int is_not_saved(int channel) {
    CUprocessState state;

    (void)channel;
    begin();
    OK(cuCheckpointProcessLock(getpid(), NULL));
    FAILS(cuCheckpointProcessCheckpoint(getpid(), NULL), CUDA_ERROR_NOT_SUPPORTED);
    OK(cuCheckpointProcessGetState(getpid(), &state));
    CHECK_EQUAL(state, CU_PROCESS_STATE_FAILED);
    return 0;
}

static int sees_nothing(int channel) {
    (void)channel;
    FAILS(cuInit(0), CUDA_ERROR_NO_DEVICE);
    return 0;
}

static int sees_others(int channel) {
    int count;

    (void)channel;
    OK(cuInit(0));
    OK(cuDeviceGetCount(&count));
    CHECK_EQUAL(count, GPU_COUNT - 1);
    return 0;
}

/* Uses the instance until the channel closes. */
static int stay(int channel) {
    CUdeviceptr memory;
    char byte = 'r';

    begin();
    OK(cuMemAlloc_v2(&memory, 8 * MIB));
    do {
        OK(cuda_busy(NULL, 1000));
        OK(cuCtxSynchronize());
        CHECK_EQUAL(write(channel, &byte, 1), 1);
    } while (read(channel, &byte, 1) == 1);
    return 0;
}

static int faulty(int channel) {
    (void)channel;
    begin();
    OK(cuLaunchKernel(cuda_kernel("divvy_fault"), 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL));
    FAILS(cuCtxSynchronize(), CUDA_ERROR_ILLEGAL_ADDRESS);
    return 0;
}

static uint32_t used(uint32_t place) {
    return sg_mig_gpu_instance(&admin, sg_place_gpu(place), sg_place_gi(place))->used_blocks;
}

/* Who takes the lock over from a process that died counts an instance's blocks anew: a context of 4 MiB and 8 MiB. */
static void check_recount(uint32_t place) {
    sg_state_lock(&admin);
    CHECK_EQUAL(used(place), 6);
    sg_recount(&admin);
    CHECK_EQUAL(used(place), 6);
    sg_state_unlock(&admin);
}

/* A process in one instance goes on while those in another fault, and holds its instance. */
static void check_neighbours(uint32_t mine, uint32_t other) {
    int ends[2], status;
    char byte;

    see(mine, false);
    CHECK_EQUAL(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        close(ends[0]);
        _exit(stay(ends[1]));
    }
    close(ends[1]);
    CHECK_EQUAL(read(ends[0], &byte, 1), 1);
    check_recount(mine);
    see(other, false);
    for (int i = 0; i < 20; i++) {
        CHECK_EQUAL(cuda_child(faulty, 0), 0);
        CHECK_EQUAL(write(ends[0], &byte, 1), 1);
        CHECK_EQUAL(read(ends[0], &byte, 1), 1);
    }
    CHECK_EQUAL(cuda_child(small, 0), 0); /* all of its memory, whatever the neighbour has */
    sg_state_lock(&admin);
    CHECK_EQUAL(sg_mig_compute_destroy(&admin, 0, sg_place_gi(mine), 0), -EBUSY);
    CHECK_EQUAL(sg_mig_compute_destroy(&admin, 0, sg_place_gi(other), 0), 0);
    CHECK_EQUAL(sg_mig_destroy(&admin, 0, sg_place_gi(other)), 0);
    sg_state_unlock(&admin);
    close(ends[0]);
    CHECK_EQUAL(waitpid(child, &status, 0), child);
    CHECK_EQUAL(status, 0);
    sg_state_lock(&admin);
    CHECK_EQUAL(sg_mig_compute_destroy(&admin, 0, sg_place_gi(mine), 0), 0);
    CHECK_EQUAL(sg_mig_destroy(&admin, 0, sg_place_gi(mine)), 0);
    sg_state_unlock(&admin);
}

/* The node of an instance, or of its GPU instance, with that mode; 0 removes it. */
static void put_node(const char *directory, uint32_t place, bool whole, mode_t mode) {
    char path[256];

    snprintf(path, sizeof path, "%s/dev/nvidia-caps/nvidia-cap%u", directory,
             sg_mig_minor(&admin, place, whole));
    if (mode == 0) {
        CHECK_EQUAL(unlink(path), 0);
        return;
    }
    int fd = open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0444);
    CHECK(fd >= 0);
    CHECK_EQUAL(fchmod(fd, mode), 0);
    close(fd);
}

/* Whether another user sees an instance. */
static void check_seen(bool seen) {
    int status;
    pid_t child = fork();

    CHECK(child >= 0);
    if (child == 0) {
        CHECK_EQUAL(setresuid(65534, 65534, 65534), 0);
        _exit(cuInit(0) == (seen ? CUDA_SUCCESS : CUDA_ERROR_NO_DEVICE) ? 0 : 1);
    }
    CHECK_EQUAL(waitpid(child, &status, 0), child);
    CHECK_EQUAL(status, 0);
}

/* Who may not open an instance's node does not see the instance. */
static void check_denied(const char *directory, uint32_t place) {
    char path[256];

    if (geteuid() != 0) {
        fputs("a user without the node of an instance: not tried, it needs root\n", stderr);
        return;
    }
    CHECK_EQUAL(chmod(directory, 0755), 0);
    see(place, false);
    check_seen(true); /* no folder, as in a container */
    snprintf(path, sizeof path, "%s/dev", directory);
    mkdir(path, 0755);
    snprintf(path, sizeof path, "%s/dev/nvidia-caps", directory);
    mkdir(path, 0755);
    check_seen(false);
    put_node(directory, place, true, 0444);
    check_seen(false);
    put_node(directory, place, false, 0444);
    check_seen(true);
    put_node(directory, place, false, 0400);
    check_seen(false);
    put_node(directory, place, false, 0);
    put_node(directory, place, true, 0);
    CHECK_EQUAL(rmdir(path), 0);
}

/* A client of a compute instance. */
static void join(struct sg_instance *in, uint32_t place) {
    CHECK_EQUAL(sg_open(in, getenv("DIVVY_SIMGPU"), "", true), 0);
    sg_state_lock(in);
    CHECK(sg_mig_enter(in, place));
    sg_state_unlock(in);
}

/* Memory of another process can be opened in the same GPU instance alone. */
static void check_sharing(void) {
    uint32_t first = make(0, 3, 1), other = make(0, 2, 1), block, object, number;
    struct sg_instance maker, near, far;

    sg_state_lock(&admin);
    int ci = sg_mig_compute_create(&admin, 0, sg_place_gi(first), 1, SG_MIG_ANYWHERE);
    CHECK(ci > 0);
    sg_state_unlock(&admin);
    join(&maker, first);
    join(&near, sg_place_of(0, sg_place_gi(first), (uint32_t)ci));
    join(&far, other);
    sg_state_lock(&maker);
    CHECK_EQUAL(sg_blocks_take(&maker, 0, SG_VMM, 1, &block), 0);
    CHECK_EQUAL(sg_object_create(&maker, 0, 1, &block, BLOCK, &object), 0);
    uint64_t key = sg_object_key(&maker, object);
    sg_state_unlock(&maker);
    sg_state_lock(&far);
    CHECK_EQUAL(sg_object_hold(&far, object, key, &number, 1), -ENOENT);
    sg_state_unlock(&far);
    sg_state_lock(&near);
    CHECK_EQUAL(sg_object_hold(&near, object, key, &number, 1), 0);
    CHECK_EQUAL(number, block);
    sg_state_unlock(&near);
    sg_close(&maker);
    CHECK_EQUAL(used(first), 1); /* it lives as long as somebody holds it */
    sg_close(&near);
    sg_close(&far);
    sg_state_lock(&admin);
    sg_reap(&admin);
    CHECK_EQUAL(used(first), 0);
    sg_state_unlock(&admin);
}

#define MS 1000000ull

/* Gives its instance a kernel that fills it, and stays until the channel closes. */
static int compute(int channel) {
    uint64_t work = 20 * MS;
    void *params[] = {&work};
    char byte;

    begin();
    OK(cuLaunchKernel(cuda_kernel("divvy_busy_ns"), 100, 1, 1, 1, 1, 1, 0, NULL, params, NULL));
    CHECK_EQUAL(write(channel, "r", 1), 1);
    CHECK_EQUAL(read(channel, &byte, 1), 0);
    return 0;
}

/* What two processes in these instances execute in 20 ms. */
static void check_share(uint32_t first, uint32_t second, uint64_t each) {
    uint32_t places[] = {first, second};
    int channels[2], ends[2], status;
    char byte;

    for (unsigned i = 0; i < 2; i++) {
        see(places[i], false);
        CHECK_EQUAL(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
        pid_t child = fork();
        CHECK(child >= 0);
        if (child == 0) {
            close(ends[0]);
            if (i) {
                close(channels[0]);
            }
            _exit(compute(ends[1]));
        }
        close(ends[1]);
        channels[i] = ends[0];
        CHECK_EQUAL(read(channels[i], &byte, 1), 1);
    }
    uint64_t busy = admin.state->gpus[0].busy_ns;
    admin.state->time += 20 * MS;
    sg_advance(&admin, 0, sg_time(&admin));
    CHECK_EQUAL(admin.state->gpus[0].busy_ns - busy, 20 * MS);
    for (uint32_t i = 0; (i = sg_next_client(&admin, i)) < SG_CLIENTS_MAX; i++) {
        CHECK_EQUAL(sg_channel(&admin, i, 0)->executed, each);
    }
    for (unsigned i = 0; i < 2; i++) {
        close(channels[i]);
        CHECK(wait(&status) > 0);
        CHECK_EQUAL(status, 0);
    }
    sg_state_lock(&admin);
    sg_reap(&admin);
    sg_state_unlock(&admin);
}

/* Instances compute at once; two processes in one share it. */
static void check_time(void) {
    static sim_machine machine;

    setting_describe(&machine);
    machine.gpus[0].mig = SIM_MIG_ON;
    machine.virtual_clock = 1;
    CHECK_EQUAL(sg_open(&admin, setting_make(&machine), "", false), 0);
    uint32_t first = make(0, 0, 1), second = make(0, 4, 3);
    check_share(first, second, 20 * MS);
    check_share(first, first, 10 * MS);
    check_share(second, second, 10 * MS);
    sg_close(&admin);
}

int main(void) {
    static sim_machine machine;

    setting_describe(&machine);
    machine.gpus[0].mig = SIM_MIG_ON;
    machine.cuda_version = 12080;
    const char *directory = setting_make(&machine);
    CHECK_EQUAL(sg_open(&admin, directory, "", false), 0);
    uint32_t first = make(0, 0, 1), second = make(0, 0, 1);
    see(first, false);
    CHECK_EQUAL(cuda_child(small, 0), 0);
    CHECK_EQUAL(cuda_child(is_not_saved, 0), 0);
    see(second, true);
    CHECK_EQUAL(cuda_child(small, 0), 0);
    CHECK_EQUAL(setenv("CUDA_VISIBLE_DEVICES", "MIG-0", 1), 0);
    CHECK_EQUAL(cuda_child(sees_nothing, 0), 0);
    unsetenv("CUDA_VISIBLE_DEVICES");
    CHECK_EQUAL(cuda_child(sees_others, 0), 0);
    check_denied(directory, first);
    check_neighbours(first, second);
    /* Where every GPU is divided, the first instance is what a process sees. */
    for (uint32_t i = 1; i < GPU_COUNT; i++) {
        admin.state->gpus[i].mig.on = 1;
    }
    unsetenv("CUDA_VISIBLE_DEVICES");
    CHECK_EQUAL(cuda_child(sees_nothing, 0), 0);
    make(0, 0, 1);
    CHECK_EQUAL(cuda_child(small, 0), 0);
    check_sharing();
    sg_close(&admin);
    check_time();
    return 0;
}
