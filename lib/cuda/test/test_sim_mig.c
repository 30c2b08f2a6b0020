/* A share on a MIG instance: its programs get that instance or nothing, whatever they try. The
   simulated driver's own figures judge. */
#define _GNU_SOURCE
#include "cuda/test/busy.h"
#include "cuda/test/instance.h"

#include <signal.h>
#include <string.h>
#include <unistd.h>

#define TOTAL ((uint64_t)2048 * MIB) /* of a small instance, 12 MiB of which the driver keeps */
#define LIMIT ((uint64_t)64 * MIB)   /* of a part of one */
#define PATIENCE_S 300
#define VISIBLE "CUDA_VISIBLE_DEVICES"

static struct setting s;
static struct instance own, other, elsewhere;

static void begin(void) {
    setting_open(&s);
    setting_context(&s);
}

/* One device, which is the instance by what the library says and by the machine's report. */
static void check_own(void) {
    CUuuid uuid;
    char name[48];
    int count = -1, sms = -1;
    CHECK_EQUAL(CUDA(&s, cuDeviceGetCount)(&count), CUDA_SUCCESS);
    CHECK_EQUAL(count, 1);
    CHECK_EQUAL(CUDA(&s, cuDeviceGetUuid_v2)(&uuid, 0), CUDA_SUCCESS);
    CHECK(memcmp(uuid.bytes, own.uuid, sizeof own.uuid) == 0);
    CHECK_EQUAL(CUDA(&s, cuDeviceGetUuid)(&uuid, 0), CUDA_SUCCESS);
    CHECK_EQUAL(uuid.bytes[0], own.gpu + 1);
    CHECK_EQUAL(CUDA(&s, cuDeviceGetAttribute)(&sms, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, 0),
                CUDA_SUCCESS);
    CHECK_EQUAL(sms, 1);
    sim_look();
    sim_instance_of(getpid(), name);
    CHECK(strcmp(name, own.name) == 0);
}

static uint64_t limit_now(void) {
    return dv_share_limit(s.share, 0);
}

/* Allocates until nothing fits any more. */
static void fill(void) {
    CUdeviceptr address;
    while (CUDA(&s, cuMemAlloc_v2)(&address, 2 * MIB) == CUDA_SUCCESS) {
    }
    CHECK(sim_used(&s, own.gpu) <= limit_now());
    CHECK_EQUAL(sim_used(&s, own.gpu) + (limit_now() == TOTAL ? 12 * MIB : 0), limit_now());
}

static void honest(void *arg) {
    size_t total, left;
    (void)arg;
    begin();
    check_own();
    uint64_t most = limit_now() == TOTAL ? TOTAL - 12 * MIB : limit_now();
    CHECK_EQUAL(CUDA(&s, cuDeviceTotalMem_v2)(&total, 0), CUDA_SUCCESS);
    CHECK_EQUAL(total, most);
    CHECK_EQUAL(CUDA(&s, cuMemGetInfo_v2)(&left, &total), CUDA_SUCCESS);
    CHECK_EQUAL(total, most);
    CHECK_EQUAL(left, most - SIM_CONTEXT);
    fill();
}

static void cleared(void *arg) {
    (void)arg;
    clearenv();
    honest(NULL);
}

/* Names of the instance, and values that the library leaves aside. */
static void named(void *arg) {
    setenv(VISIBLE, arg, 1);
    setenv("CUDA_DEVICE_ORDER", "PCI_BUS_ID", 1);
    honest(NULL);
    CHECK(strcmp(getenv(VISIBLE), arg) == 0);
}

static void sees_nothing(void *arg) {
    CUcontext context;
    int count = 0;
    setenv(VISIBLE, arg, 1);
    setting_open(&s);
    CHECK_EQUAL(CUDA(&s, cuInit)(0), CUDA_ERROR_NO_DEVICE);
    CHECK(CUDA(&s, cuDeviceGetCount)(&count) != CUDA_SUCCESS || count == 0);
    CHECK(CUDA(&s, cuCtxCreate_v2)(&context, 0, 0) != CUDA_SUCCESS);
    CHECK(CUDA(&s, cuDevicePrimaryCtxRetain)(&context, 0) != CUDA_SUCCESS);
    CHECK_EQUAL(sim_used(&s, 0) + sim_used(&s, 1) + sim_used(&s, 2), 0);
}

/* What a program sets after the driver has started counts for nothing. */
static void set_after_start(void *arg) {
    CUcontext context;
    setting_open(&s);
    CHECK_EQUAL(CUDA(&s, cuInit)(0), CUDA_SUCCESS);
    setenv(VISIBLE, arg, 1);
    CHECK_EQUAL(CUDA(&s, cuInit)(0), CUDA_SUCCESS);
    CHECK_EQUAL(CUDA(&s, cuDevicePrimaryCtxRetain)(&context, 0), CUDA_SUCCESS);
    CHECK_EQUAL(CUDA(&s, cuCtxCreate_v2)(&context, 0, 0), CUDA_SUCCESS);
    check_own();
    fill();
}

static void forks(void *arg) {
    (void)arg;
    setting_open(&s);
    wait_exited(spawn(cleared, NULL));
    wait_exited(spawn(sees_nothing, other.name));
    honest(NULL);
}

static void execs(void *arg) {
    (void)arg;
    begin();
    unsetenv(VISIBLE);
    execl("/proc/self/exe", "tenant", s.tenant.directory, sim_machine_directory(), own.name, NULL);
    _exit(127);
}

/* The driver's own functions first, with another instance; then ours. */
static void past_the_library(void *arg) {
    CUcontext context;
    setenv(VISIBLE, arg, 1);
    setting_open(&s);
    __extension__ CUresult (*init)(unsigned) = (CUresult (*)(unsigned))setting_real(&s, "cuInit");
    CHECK_EQUAL(init(0), CUDA_SUCCESS);
    CHECK(CUDA(&s, cuInit)(0) != CUDA_SUCCESS);
    CHECK_EQUAL(CUDA(&s, cuCtxCreate_v2)(&context, 0, 0), CUDA_ERROR_INVALID_DEVICE);
    CHECK_EQUAL(CUDA(&s, cuDevicePrimaryCtxRetain)(&context, 0), CUDA_ERROR_INVALID_DEVICE);
    CHECK_EQUAL(sim_used(&s, 0) + sim_used(&s, 1) + sim_used(&s, 2), 0);
}

/* Two processes of a share hold together what it may hold. */
static void together(void *arg) {
    int ready[2], go_on[2];
    char byte;
    (void)arg;
    CHECK(pipe(ready) == 0 && pipe(go_on) == 0);
    pid_t child = fork();
    if (child == 0) {
        CUdeviceptr address;
        die_with_parent();
        begin();
        CHECK_EQUAL(CUDA(&s, cuMemAlloc_v2)(&address, 20 * MIB), CUDA_SUCCESS);
        CHECK_EQUAL(write(ready[1], "r", 1), 1);
        CHECK_EQUAL(read(go_on[0], &byte, 1), 1);
        _exit(0);
    }
    CHECK_EQUAL(read(ready[0], &byte, 1), 1);
    CHECK(!instance_end(&own)); /* the driver's own rule */
    begin();
    fill();
    check_own();
    CHECK_EQUAL(write(go_on[1], "g", 1), 1);
    wait_exited(child);
}

/* The driver's figure of the process counts, which it tells of the instance, and not the estimate. */
static void measured(void *arg) {
    (void)arg;
    begin();
    dv_reap(s.share); /* what those before held */
    CHECK_EQUAL(setting_used(&s), SIM_CONTEXT);
}

static void no_launch_waits(void *arg) {
    (void)arg;
    begin();
    for (int i = 0; i < 20; i++) {
        CHECK_EQUAL(busy_launch(&s, NULL, MS), CUDA_SUCCESS);
    }
    busy_sync(&s, NULL);
    CHECK_EQUAL(busy_bucket(&s, 0).launches, 0);
    CHECK_EQUAL(busy_bucket(&s, 0).waited, 0);
}

static void try(void (*way)(void *), const char *arg) {
    wait_exited(spawn(way, (void *)(uintptr_t)arg));
}

static void try_all(void) {
    static const char parent[] = "GPU-01010101-0101-0101-0101-010101010101";
    char older[96];
    try(honest, NULL);
    try(cleared, NULL);
    try(named, own.name);
    try(named, "0");
    try(named, "0,1");
    try(named, parent);
    try(named, "GPU-0101");
    try(sees_nothing, "");
    try(sees_nothing, "1");
    try(sees_nothing, other.name);
    try(sees_nothing, elsewhere.name);
    try(sees_nothing, "GPU-03030303-0303-0303-0303-030303030303");
    snprintf(older, sizeof older, "MIG-%s/%u/%u", parent, other.gi, other.ci);
    try(sees_nothing, older);
    try(set_after_start, other.name);
    try(forks, NULL);
    try(execs, NULL);
    try(past_the_library, other.name);
    try(past_the_library, elsewhere.name);
    try(past_the_library, "0"); /* the whole GPU that the machine has beside them */
}

/* After exec: where the share is, and which instance it must be. */
static int resume(char **argv) {
    strcpy(s.tenant.directory, argv[1]);
    sim_join(argv[2]);
    snprintf(own.name, sizeof own.name, "%s", argv[3]);
    setting_open(&s);
    memcpy(own.uuid, dv_share_device(s.share, 0)->uuid, sizeof own.uuid);
    honest(NULL);
    return 0;
}

int main(int argc, char **argv) {
    uint64_t estimate = 3 * SIM_CONTEXT;
    if (argc == 4) {
        return resume(argv);
    }
    alarm(PATIENCE_S);
    sim_mig = true;
    sim_make_closed(&s, 1, LIMIT);
    instance_make(0, INSTANCE_SMALL, &other);
    instance_make(0, INSTANCE_SMALL, &own);
    instance_make(1, INSTANCE_HALF, &elsewhere);
    instance_grant(&s, &own, TOTAL, TOTAL);
    try_all();
    try(no_launch_waits, NULL);
    instance_grant(&s, &own, TOTAL, LIMIT);
    try_all();
    try(together, NULL);
    setting_write(&s, 0, offsetof(dv_page_device, context_bytes), &estimate, sizeof estimate);
    try(measured, NULL);
    CHECK(instance_end(&own));
    try(sees_nothing, "0"); /* no other takes its place */
    return 0;
}
