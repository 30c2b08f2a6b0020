/* Ways out of a share under MPS: each gets the share's multiprocessors and memory, or nothing. The
   simulated driver's own figures judge. */
#define _GNU_SOURCE
#include "cuda/test/busy.h"
#include "cuda/test/control.h"

#include <dlfcn.h>
#include <signal.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define CORES 30
#define SMS 3 /* of ten */
#define LIMIT ((uint64_t)64 * MIB)
#define PATIENCE_S 300
#define PIPE "CUDA_MPS_PIPE_DIRECTORY"
#define PERCENTAGE "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"
#define MEMORY "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"
#define EACH "CUDA_MPS_ENABLE_PER_CTX_DEVICE_MULTIPROCESSOR_PARTITIONING"

static struct setting s;
static char place[64] = "/tmp/divvy-sim-mps-XXXXXX";
static struct control controls[2];
static pid_t maker;

static void clean_up(void) {
    char command[128];
    if (getpid() == maker) {
        snprintf(command, sizeof command, "rm -rf %s", place);
        CHECK(system(command) == 0);
    }
}

static const char *const uuids[] = {"GPU-01010101-0101-0101-0101-010101010101",
                                    "GPU-02020202-0202-0202-0202-020202020202"};

/* What the machine says of this process, which has a context. */
static void check_limited(void) {
    int count = -1, sms = -1;
    CHECK_EQUAL(CUDA(&s, cuDeviceGetCount)(&count), CUDA_SUCCESS);
    CHECK_EQUAL(count, 1);
    CHECK_EQUAL(CUDA(&s, cuDeviceGetAttribute)(&sms, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, 0),
                CUDA_SUCCESS);
    CHECK_EQUAL(sms, SMS);
    sim_look();
    CHECK_EQUAL(sim_seen_of(getpid(), "multiprocessors"), SMS);
    CHECK_EQUAL(sim_seen_of(getpid(), "memoryLimit"), LIMIT);
    CHECK(sim_seen_of(getpid(), "mpsServer") != 0);
}

/* Allocates until nothing fits any more; the share's contexts count too. */
static void fill(void) {
    CUdeviceptr address;
    while (CUDA(&s, cuMemAlloc_v2)(&address, 2 * MIB) == CUDA_SUCCESS) {
    }
    CHECK(sim_used(&s, 0) <= LIMIT);
}

static void begin(void) {
    setting_open(&s);
    setting_context(&s);
}

static void honest(void *arg) {
    (void)arg;
    begin();
    check_limited();
    fill();
}

static void cleared(void *arg) {
    (void)arg;
    clearenv();
    honest(NULL);
}

static void raise_all(void) {
    setenv(PERCENTAGE, "100", 1);
    setenv(MEMORY, "0=16G", 1);
    setenv(EACH, "1", 1);
}

static void raised(void *arg) {
    (void)arg;
    raise_all();
    setenv("CUDA_MPS_CLIENT_PRIORITY", "0", 1);
    honest(NULL);
}

static void of_other_gpus(void *arg) {
    setenv("CUDA_VISIBLE_DEVICES", arg, 1);
    setenv(MEMORY, "1=16G", 1);
    honest(NULL);
}

static void of_another_daemon(void *arg) {
    setenv(PIPE, arg, 1);
    honest(NULL);
}

static void set_after_start(void *arg) {
    CUcontext context;
    (void)arg;
    setting_open(&s);
    CHECK_EQUAL(CUDA(&s, cuInit)(0), CUDA_SUCCESS);
    raise_all();
    setenv(PIPE, "/nowhere", 1);
    CHECK_EQUAL(CUDA(&s, cuInit)(0), CUDA_SUCCESS);
    CHECK_EQUAL(CUDA(&s, cuDevicePrimaryCtxRetain)(&context, 0), CUDA_SUCCESS);
    CHECK_EQUAL(CUDA(&s, cuCtxCreate_v2)(&context, 0, 0), CUDA_SUCCESS);
    check_limited();
    fill();
}

static void forks(void *arg) {
    (void)arg;
    raise_all();
    setting_open(&s);
    wait_exited(spawn(raised, NULL));
    wait_exited(spawn(cleared, NULL));
}

static void execs(void *arg) {
    (void)arg;
    raise_all();
    begin();
    unsetenv(PIPE);
    execl("/proc/self/exe", "client", s.tenant.directory, sim_machine_directory(), NULL);
    _exit(127);
}

static CUresult init_only(void) {
    setting_open(&s);
    return CUDA(&s, cuInit)(0);
}

static void refused(void *arg) {
    (void)arg;
    CUcontext context;
    CHECK_EQUAL(init_only(), CUDA_ERROR_MPS_CONNECTION_FAILED);
    CHECK(CUDA(&s, cuDevicePrimaryCtxRetain)(&context, 0) != CUDA_SUCCESS);
    CHECK_EQUAL(sim_used(&s, 0), 0);
}

/* The driver's own functions first, ours then: they may be no client's. */
static void past_the_library(void *arg) {
    CUcontext context;
    (void)arg;
    unsetenv(PIPE);
    setting_open(&s);
    __extension__ CUresult (*init)(unsigned) = (CUresult (*)(unsigned))setting_real(&s, "cuInit");
    CHECK_EQUAL(init(0), CUDA_SUCCESS);
    CHECK(CUDA(&s, cuCtxCreate_v2)(&context, 0, 0) != CUDA_SUCCESS);
    CHECK_EQUAL(sim_used(&s, 0), 0);
}

/* Several processes of a share hold no more than the share may, though MPS counts each alone. */
static void together(void *arg) {
    int ready[2], go_on[2];
    char byte;
    (void)arg;
    CHECK(pipe(ready) == 0 && pipe(go_on) == 0);
    pid_t child = fork();
    if (child == 0) {
        die_with_parent();
        begin();
        CHECK_EQUAL(write(ready[1], "c", 1), 1);
        CHECK_EQUAL(read(go_on[0], &byte, 1), 1);
        fill();
        CHECK_EQUAL(write(ready[1], "f", 1), 1);
        pause();
    }
    CHECK_EQUAL(read(ready[0], &byte, 1), 1);
    begin();
    CHECK_EQUAL(write(go_on[1], "g", 1), 1);
    CHECK_EQUAL(read(ready[0], &byte, 1), 1);
    fill();
    check_limited();
    CHECK(kill(child, SIGKILL) == 0);
    wait_killed(child);
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

static void without_its_daemon(void) {
    char kept[128];
    CHECK(kill(controls[0].daemon, SIGSTOP) == 0);
    try(refused, NULL);
    CHECK(kill(controls[0].daemon, SIGCONT) == 0);
    try(honest, NULL);
    snprintf(kept, sizeof kept, "%s.kept", controls[0].pipe);
    CHECK(rename(controls[0].pipe, kept) == 0);
    try(refused, NULL);
    CHECK(symlink(controls[1].pipe, controls[0].pipe) == 0);
    try(refused, NULL);
    CHECK(unlink(controls[0].pipe) == 0 && rename(kept, controls[0].pipe) == 0);
    control_end(&controls[0]);
    try(refused, NULL);
    /* The daemon of another GPU where its own was: its server has not this GPU. */
    snprintf(kept, sizeof kept, "%s.kept", controls[0].pipe);
    CHECK(rename(controls[0].pipe, kept) == 0 && rename(controls[1].pipe, controls[0].pipe) == 0);
    setting_open(&s);
    CUcontext context;
    CHECK(CUDA(&s, cuInit)(0) != CUDA_SUCCESS ||
          CUDA(&s, cuCtxCreate_v2)(&context, 0, 0) != CUDA_SUCCESS);
    CHECK_EQUAL(sim_used(&s, 0), 0);
}

int main(int argc, char **argv) {
    if (argc == 3) { /* after exec */
        strcpy(s.tenant.directory, argv[1]);
        sim_join(argv[2]);
        honest(NULL);
        return 0;
    }
    maker = getpid();
    alarm(PATIENCE_S);
    CHECK(mkdtemp(place) != NULL && chmod(place, 0755) == 0);
    atexit(clean_up);
    sim_make_closed(&s, 1, LIMIT);
    for (unsigned gpu = 0; gpu < 2; gpu++) {
        snprintf(controls[gpu].pipe, sizeof controls[gpu].pipe, "%s/%u", place, gpu);
        CHECK(mkdir(controls[gpu].pipe, 0755) == 0);
        control_begin(&controls[gpu], uuids[gpu]);
    }
    control_serve(&s, &controls[0], 0, CORES);
    try(honest, NULL);
    try(cleared, NULL);
    try(raised, NULL);
    try(set_after_start, NULL);
    try(of_other_gpus, "0,1");
    try(of_other_gpus, "GPU-01010101");
    try(of_another_daemon, controls[1].pipe);
    try(of_another_daemon, "");
    try(forks, NULL);
    try(execs, NULL);
    try(past_the_library, NULL);
    try(together, NULL);
    try(no_launch_waits, NULL);
    without_its_daemon();
    return 0;
}
