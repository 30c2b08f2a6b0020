/* A share under MPS that is a part of a MIG instance: a ceiling of the instance's multiprocessors, the
   share's memory, and the instance's daemon or nothing. The simulated driver's own figures judge. */
#define _GNU_SOURCE
#include "cuda/test/busy.h"
#include "cuda/test/control.h"
#include "cuda/test/instance.h"

#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define CORES 50
#define SMS 2 /* of three, rounded up */
#define TOTAL ((uint64_t)8192 * MIB)
#define LIMIT ((uint64_t)64 * MIB)
#define PATIENCE_S 300

static struct setting s;
static struct instance own, other;
static struct control controls[2];
static char place[64] = "/tmp/divvy-sim-mig-mps-XXXXXX";
static pid_t maker;

static void clean_up(void) {
    char command[128];
    if (getpid() == maker) {
        snprintf(command, sizeof command, "rm -rf %s", place);
        CHECK(system(command) == 0);
    }
}

static void honest(void *arg) {
    CUdeviceptr address;
    CUuuid uuid;
    char name[48];
    int count = -1, sms = -1;
    (void)arg;
    setting_open(&s);
    setting_context(&s);
    CHECK_EQUAL(CUDA(&s, cuDeviceGetCount)(&count), CUDA_SUCCESS);
    CHECK_EQUAL(count, 1);
    CHECK_EQUAL(CUDA(&s, cuDeviceGetUuid_v2)(&uuid, 0), CUDA_SUCCESS);
    CHECK(memcmp(uuid.bytes, own.uuid, sizeof own.uuid) == 0);
    CHECK_EQUAL(CUDA(&s, cuDeviceGetAttribute)(&sms, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, 0),
                CUDA_SUCCESS);
    CHECK_EQUAL(sms, SMS);
    sim_look();
    sim_instance_of(getpid(), name);
    CHECK(strcmp(name, own.name) == 0);
    CHECK(sim_seen_of(getpid(), "mpsServer") != 0);
    CHECK_EQUAL(sim_seen_of(getpid(), "multiprocessors"), SMS);
    CHECK_EQUAL(sim_seen_of(getpid(), "memoryLimit"), LIMIT);
    while (CUDA(&s, cuMemAlloc_v2)(&address, 2 * MIB) == CUDA_SUCCESS) {
    }
    CHECK_EQUAL(sim_used(&s, own.gpu), LIMIT);
}

static void cleared(void *arg) {
    clearenv();
    honest(arg);
}

static void raised(void *arg) {
    setenv("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", "100", 1);
    setenv("CUDA_MPS_PINNED_DEVICE_MEM_LIMIT", "0=8G", 1);
    setenv("CUDA_VISIBLE_DEVICES", "0", 1);
    setenv("CUDA_MPS_PIPE_DIRECTORY", arg, 1);
    honest(NULL);
}

static void sees_nothing(void *arg) {
    setenv("CUDA_VISIBLE_DEVICES", arg, 1);
    setting_open(&s);
    CHECK_EQUAL(CUDA(&s, cuInit)(0), CUDA_ERROR_NO_DEVICE);
    CHECK_EQUAL(sim_used(&s, own.gpu), 0);
}

static void refused(void *arg) {
    CUcontext context;
    (void)arg;
    setting_open(&s);
    CHECK(CUDA(&s, cuInit)(0) != CUDA_SUCCESS);
    CHECK(CUDA(&s, cuDevicePrimaryCtxRetain)(&context, 0) != CUDA_SUCCESS);
    CHECK_EQUAL(sim_used(&s, own.gpu), 0);
}

static void try(void (*way)(void *), const char *arg) {
    wait_exited(spawn(way, (void *)(uintptr_t)arg));
}

int main(void) {
    maker = getpid();
    alarm(PATIENCE_S);
    CHECK(mkdtemp(place) != NULL && chmod(place, 0755) == 0);
    atexit(clean_up);
    sim_mig = true;
    sim_make_closed(&s, 1, LIMIT);
    instance_make(0, INSTANCE_HALF, &other);
    instance_make(0, INSTANCE_HALF, &own);
    for (unsigned i = 0; i < 2; i++) {
        snprintf(controls[i].pipe, sizeof controls[i].pipe, "%s/%u", place, i);
        CHECK(mkdir(controls[i].pipe, 0755) == 0);
        control_begin(&controls[i], i == 0 ? own.name : other.name);
    }
    instance_grant(&s, &own, TOTAL, LIMIT);
    control_serve(&s, &controls[0], DV_PAGE_FLAG_MIG, CORES);
    try(honest, NULL);
    try(cleared, NULL);
    try(raised, controls[1].pipe);
    try(sees_nothing, other.name);
    control_end(&controls[0]);
    try(refused, NULL);
    /* The other instance's daemon where its own was. */
    control_serve(&s, &controls[1], DV_PAGE_FLAG_MIG, CORES);
    try(refused, NULL);
    return 0;
}
