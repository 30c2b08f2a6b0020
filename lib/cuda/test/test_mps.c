/* A client of MPS gets the limits of its share and the daemon of its share, whatever its
   environment says and whenever it says it, or it gets no context. */
#define _GNU_SOURCE
#include "cuda/test/daemon.h"
#include "cuda/test/setting.h"

#include <fcntl.h>
#include <pthread.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define CORES 30
#define PIPE "CUDA_MPS_PIPE_DIRECTORY"
#define PERCENTAGE "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"
#define LIMIT "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"
#define EACH "CUDA_MPS_ENABLE_PER_CTX_DEVICE_MULTIPROCESSOR_PARTITIONING"

static struct setting s;
static char place[64] = "/tmp/divvy-mps-test-XXXXXX", control[96], kept[96];
static pid_t maker;

static void clean_up(void) {
    if (getpid() == maker) {
        unlink(control);
        rmdir(place);
        unlink(place);
        rmdir(kept);
    }
}

/* Marks the share as one under MPS. */
static void make_client(void) {
    uint32_t flags = DV_PAGE_FLAG_MPS, cores = CORES;
    tenant_write(&s.tenant, "config", offsetof(dv_page_config, flags), &flags, sizeof flags);
    tenant_write(&s.tenant, "config", offsetof(dv_page_config, mps_pipe), place, sizeof place);
    setting_write(&s, 0, offsetof(dv_page_device, cores), &cores, sizeof cores);
}

static void check_shown(const char *limit) {
    CHECK(strcmp(s.driver->mps[0], place) == 0);
    CHECK(strcmp(s.driver->mps[1], "30") == 0);
    CHECK(strcmp(s.driver->mps[2], limit) == 0);
    CHECK(strcmp(s.driver->mps[3], "(none)") == 0);
}

static void set_all(const char *percentage, const char *limit, const char *pipe) {
    setenv(PERCENTAGE, percentage, 1);
    setenv(LIMIT, limit, 1);
    setenv(PIPE, pipe, 1);
    setenv(EACH, "1", 1);
}

static void check_kept(const char *percentage, const char *limit, const char *pipe) {
    CHECK(strcmp(getenv(PERCENTAGE), percentage) == 0 && strcmp(getenv(LIMIT), limit) == 0);
    CHECK(strcmp(getenv(PIPE), pipe) == 0 && strcmp(getenv(EACH), "1") == 0);
}

/* A context of each kind, after the program has set the variables once more. */
static void contexts_are_limited_too(void) {
    CUcontext context, primary;
    set_all("100", "0=90G", "/nowhere");
    CHECK_EQUAL(CUDA(&s, cuCtxCreate_v2)(&context, 0, 0), CUDA_SUCCESS);
    check_shown("0=64M");
    memset(s.driver->mps, 0, sizeof s.driver->mps);
    CHECK_EQUAL(CUDA(&s, cuDevicePrimaryCtxRetain)(&primary, 0), CUDA_SUCCESS);
    check_shown("0=64M");
    check_kept("100", "0=90G", "/nowhere");
    CHECK_EQUAL(CUDA(&s, cuCtxDestroy_v2)(context), CUDA_SUCCESS);
    CHECK_EQUAL(CUDA(&s, cuDevicePrimaryCtxRelease_v2)(0), CUDA_SUCCESS);
    CHECK_EQUAL(s.driver->contexts, 0);
}

static void cleared(void *arg) {
    (void)arg;
    clearenv();
    setting_open(&s);
    CHECK_EQUAL(CUDA(&s, cuInit)(0), CUDA_SUCCESS);
    check_shown("0=64M");
    CHECK(getenv(PIPE) == NULL && getenv(PERCENTAGE) == NULL &&
          getenv("CUDA_VISIBLE_DEVICES") == NULL);
    contexts_are_limited_too();
}

static void raised(void *arg) {
    (void)arg;
    set_all("99", "0=64G,1=1G", "/tmp/nvidia-mps");
    setting_open(&s);
    CHECK_EQUAL(CUDA(&s, cuInit)(0), CUDA_SUCCESS);
    check_shown("0=64M");
    check_kept("99", "0=64G,1=1G", "/tmp/nvidia-mps");
    CHECK_EQUAL(CUDA(&s, cuInit)(0), CUDA_SUCCESS);
    contexts_are_limited_too();
}

/* A context may ask for less than the client has, never for more. */
static void affinity_only_tightens(void *arg) {
    CUcontext context;
    CUexecAffinityParam list[2] = {{.param.smCount.val = 7}, {.param.smCount.val = 7}};
    CUctxCreateParams params = {.execAffinityParams = list, .numExecAffinityParams = 1};
    (void)arg;
    setting_open(&s);
    CHECK_EQUAL(CUDA(&s, cuInit)(0), CUDA_SUCCESS);
    for (unsigned asked = FAKE_SMS - 1; asked <= FAKE_SMS + 1; asked++) {
        unsigned given = asked < FAKE_SMS ? asked : FAKE_SMS;
        list[0].param.smCount.val = asked;
        CHECK_EQUAL(CUDA(&s, cuCtxCreate_v3)(&context, list, 2, 0, 0), CUDA_SUCCESS);
        CHECK_EQUAL(s.driver->affinity, given);
        CHECK_EQUAL(CUDA(&s, cuCtxCreate_v4)(&context, &params, 0, 0), CUDA_SUCCESS);
        CHECK_EQUAL(s.driver->affinity, given);
        CHECK_EQUAL(list[0].param.smCount.val, asked);
    }
    CHECK_EQUAL(CUDA(&s, cuCtxCreate_v4)(&context, NULL, 0, 0), CUDA_SUCCESS);
    CHECK_EQUAL(CUDA(&s, cuCtxCreate_v3)(&context, NULL, 0, 0, 0), CUDA_SUCCESS);
    CHECK_EQUAL(CUDA(&s, cuCtxCreate_v3)(&context, list, 1000, 0, 0), CUDA_ERROR_INVALID_VALUE);
}

/* A list of limits that names a GPU which the client does not see is dropped as a whole. */
static void no_limit_for_a_hidden_gpu(void *arg) {
    (void)arg;
    setenv("CUDA_VISIBLE_DEVICES", "", 1);
    setenv(LIMIT, "0=64G", 1);
    setting_open(&s);
    CHECK_EQUAL(CUDA(&s, cuInit)(0), CUDA_ERROR_NO_DEVICE);
    check_shown("(none)");
}

static void in_the_child_of_a_fork(void *arg) {
    (void)arg;
    setting_open(&s);
    pid_t child = fork();
    if (child == 0) {
        die_with_parent();
        raised(NULL);
        _exit(0);
    }
    wait_exited(child);
}

static void refused(const char *why) {
    CUcontext context;
    char text[4096], log[128];
    snprintf(log, sizeof log, "%s", setting_path(&s, "log"));
    setenv("DIVVY_LOG", log, 1);
    setting_open(&s);
    CHECK_EQUAL(CUDA(&s, cuInit)(0), CUDA_ERROR_MPS_CONNECTION_FAILED);
    CHECK_EQUAL(s.driver->inits, 0);
    CHECK_EQUAL(CUDA(&s, cuCtxCreate_v2)(&context, 0, 0), CUDA_ERROR_NOT_INITIALIZED);
    int file = open(log, O_RDONLY | O_CLOEXEC);
    ssize_t got = read(file, text, sizeof text - 1);
    CHECK(got > 0 && close(file) == 0 && unlink(log) == 0);
    text[got] = '\0';
    CHECK(strstr(text, place) != NULL && strstr(text, why) != NULL);
}

static void without_a_daemon(void *arg) {
    refused(arg);
}

/* Once the daemon is there the same process gets its context. */
static void and_then_with_one(void *arg) {
    refused(arg);
    daemon_start(control, GREETS);
    CHECK_EQUAL(CUDA(&s, cuInit)(0), CUDA_SUCCESS);
    check_shown("0=64M");
    contexts_are_limited_too();
    daemon_end();
}

static void raise_meanwhile(void) {
    setenv(PERCENTAGE, "100", 1);
}

static void clear_meanwhile(void) {
    unsetenv(LIMIT);
}

static void replace_meanwhile(void) {
    static char *none[] = {NULL};
    environ = none;
}

static void set_each_meanwhile(void) {
    setenv(EACH, "1", 1);
}

static void exchange_daemon(void) {
    daemon_end();
    daemon_start(control, GREETS);
}

/* What the driver read, only the driver knows then. */
static void no_context_if_disturbed(void *arg) {
    CUcontext context;
    void (*const *meanwhile)(void) = arg;
    setting_open(&s);
    s.driver->during_init = *meanwhile;
    CHECK_EQUAL(CUDA(&s, cuInit)(0), CUDA_ERROR_MPS_CONNECTION_FAILED);
    CHECK_EQUAL(s.driver->inits, 1);
    s.driver->during_init = NULL;
    CHECK_EQUAL(CUDA(&s, cuInit)(0), CUDA_ERROR_MPS_CONNECTION_FAILED);
    CHECK(CUDA(&s, cuCtxCreate_v2)(&context, 0, 0) != CUDA_SUCCESS);
    CHECK(CUDA(&s, cuDevicePrimaryCtxRetain)(&context, 0) != CUDA_SUCCESS);
    CHECK_EQUAL(s.driver->contexts, 0);
}

static void no_context_if_disturbed_later(void *arg) {
    CUcontext context;
    void (*const *meanwhile)(void) = arg;
    setting_open(&s);
    CHECK_EQUAL(CUDA(&s, cuInit)(0), CUDA_SUCCESS);
    s.driver->during_context = *meanwhile;
    CHECK_EQUAL(CUDA(&s, cuDevicePrimaryCtxRetain)(&context, 0), CUDA_ERROR_MPS_CONNECTION_FAILED);
    CHECK_EQUAL(CUDA(&s, cuCtxCreate_v2)(&context, 0, 0), CUDA_ERROR_MPS_CONNECTION_FAILED);
    CHECK_EQUAL(s.driver->contexts, 0);
    CHECK_EQUAL(setting_used(&s), 0);
}

/* A driver that was initialised past us may be nobody's client. */
static void no_context_past_us(void *arg) {
    CUcontext context;
    (void)arg;
    setting_open(&s);
    __extension__ CUresult (*init)(unsigned) = (CUresult (*)(unsigned))setting_real(&s, "cuInit");
    CHECK_EQUAL(init(0), CUDA_SUCCESS);
    CHECK_EQUAL(CUDA(&s, cuCtxCreate_v2)(&context, 0, 0), CUDA_ERROR_NOT_INITIALIZED);
    CHECK_EQUAL(CUDA(&s, cuDevicePrimaryCtxRetain)(&context, 0), CUDA_ERROR_NOT_INITIALIZED);
    CHECK_EQUAL(s.driver->contexts, 0);
}

static void disturbances(void) {
    static void (*const each[])(void) = {raise_meanwhile, clear_meanwhile, replace_meanwhile,
                                         set_each_meanwhile};
    for (size_t i = 0; i < sizeof each / sizeof each[0]; i++) {
        wait_exited(spawn(no_context_if_disturbed, (void *)(uintptr_t)&each[i]));
        wait_exited(spawn(no_context_if_disturbed_later, (void *)(uintptr_t)&each[i]));
    }
}

/* Of a daemon that the child started, so that it can end it. */
static void no_context_if_daemon_changes(void *arg) {
    daemon_start(control, GREETS);
    no_context_if_disturbed(arg);
}

static void unreachable(void) {
    static void (*const exchange)(void) = exchange_daemon, (*const end)(void) = daemon_end;
    static char none[] = "No such file", nobody[] = "Connection refused",
                silent[] = "does not answer";
    static char link[] = "link", open_to_all[] = "another user can write",
                no_directory[] = "no directory", others[] = "another user's process listens";
    wait_exited(spawn(no_context_if_daemon_changes, (void *)(uintptr_t)&exchange));
    unlink(control);
    wait_exited(spawn(and_then_with_one, none));
    wait_exited(spawn(without_a_daemon, nobody)); /* the socket of one that was killed */
    wait_exited(spawn(no_context_if_daemon_changes, (void *)(uintptr_t)&end));
    daemon_start(control, SILENT);
    wait_exited(spawn(without_a_daemon, silent));
    daemon_end();
    daemon_start(control, HANGS_UP);
    wait_exited(spawn(without_a_daemon, silent));
    daemon_end();
    daemon_start(control, GREETS);
    CHECK(chmod(place, 0777) == 0);
    wait_exited(spawn(without_a_daemon, open_to_all));
    CHECK(chmod(place, 0755) == 0);
    snprintf(kept, sizeof kept, "%s.kept", place);
    CHECK(rename(place, kept) == 0);
    wait_exited(spawn(without_a_daemon, none));
    CHECK(symlink(kept, place) == 0);
    wait_exited(spawn(without_a_daemon, link));
    CHECK(unlink(place) == 0 && mknod(place, S_IFREG | 0600, 0) == 0);
    wait_exited(spawn(without_a_daemon, no_directory));
    CHECK(unlink(place) == 0 && rename(kept, place) == 0);
    if (getuid() == 0) {
        CHECK(chown(place, 4321, 0) == 0);
        wait_exited(spawn(without_a_daemon, open_to_all));
        CHECK(chown(place, 0, 0) == 0);
        daemon_end();
        daemon_start(control, STRANGER);
        wait_exited(spawn(without_a_daemon, others));
        daemon_end();
        daemon_start(control, GREETS);
    }
    wait_exited(spawn(cleared, NULL));
    daemon_end();
}

static bool stop;

/* The thread sanitizer does not see that the C library publishes entries to other threads. */
#ifdef __SANITIZE_THREAD__
enum { ENTRIES_ARE_READ = 0 };
#else
enum { ENTRIES_ARE_READ = 1 };
#endif

static void *reads(void *arg) {
    (void)arg;
    while (!__atomic_load_n(&stop, __ATOMIC_RELAXED)) {
        const char *home = getenv("HOME"), *path = getenv(PIPE);
        CHECK(home != NULL);
        if (ENTRIES_ARE_READ) {
            CHECK(strcmp(home, "/root") == 0 && (path == NULL || path[0] == '/'));
        }
    }
    return NULL;
}

/* Exchanges an entry, which makes no new array. */
static void *writes(void *arg) {
    (void)arg;
    for (unsigned i = 0; ENTRIES_ARE_READ && !__atomic_load_n(&stop, __ATOMIC_RELAXED); i++) {
        CHECK(setenv("DIVVY_TEST_COUNT", i % 2 ? "odd" : "even", 1) == 0);
    }
    return NULL;
}

/* Other threads look into the environment all the while. */
static void among_threads(void *arg) {
    pthread_t thread[4];
    CUcontext context;
    (void)arg;
    setenv("HOME", "/root", 1);
    setenv("DIVVY_TEST_COUNT", "none", 1);
    setting_open(&s);
    for (unsigned i = 0; i < 4; i++) {
        CHECK(pthread_create(&thread[i], NULL, i == 0 ? writes : reads, NULL) == 0);
    }
    CHECK_EQUAL(CUDA(&s, cuInit)(0), CUDA_SUCCESS);
    for (unsigned i = 0; i < 3000; i++) {
        CHECK_EQUAL(CUDA(&s, cuCtxCreate_v2)(&context, 0, 0), CUDA_SUCCESS);
        CHECK_EQUAL(CUDA(&s, cuCtxDestroy_v2)(context), CUDA_SUCCESS);
        char name[32];
        snprintf(name, sizeof name, "DIVVY_TEST_%u", i % 500);
        if (i % 10 == 0) { /* now and then the C library makes an array of its own out of ours */
            __atomic_store_n(&stop, true, __ATOMIC_RELAXED);
            for (unsigned k = 0; k < 4; k++) {
                pthread_join(thread[k], NULL);
            }
            CHECK(setenv(name, "x", 1) == 0);
            __atomic_store_n(&stop, false, __ATOMIC_RELAXED);
            for (unsigned k = 0; k < 4; k++) {
                CHECK(pthread_create(&thread[k], NULL, k == 0 ? writes : reads, NULL) == 0);
            }
        }
    }
    __atomic_store_n(&stop, true, __ATOMIC_RELAXED);
    for (unsigned i = 0; i < 4; i++) {
        pthread_join(thread[i], NULL);
    }
    check_shown("0=64M");
    CHECK(getenv(PIPE) == NULL && getenv("DIVVY_TEST_490") != NULL &&
          getenv("DIVVY_TEST_491") == NULL);
}

static void other_shares_keep_theirs(void *arg) {
    (void)arg;
    set_all("10", "0=1G", "/nowhere");
    setting_open(&s);
    setting_context(&s);
    CHECK(strcmp(s.driver->mps[0], "/nowhere") == 0 && strcmp(s.driver->mps[1], "10") == 0);
    CHECK(strcmp(s.driver->mps[2], "0=1G") == 0 && strcmp(s.driver->mps[3], "1") == 0);
}

int main(void) {
    maker = getpid();
    umask(022);
    CHECK(mkdtemp(place) != NULL && chmod(place, 0755) == 0);
    snprintf(control, sizeof control, "%s/control", place);
    atexit(clean_up);
    setting_make(&s, 1, 64 * MIB, NULL);
    wait_exited(spawn(other_shares_keep_theirs, NULL));
    make_client();
    daemon_start(control, GREETS);
    wait_exited(spawn(cleared, NULL));
    wait_exited(spawn(raised, NULL));
    wait_exited(spawn(no_limit_for_a_hidden_gpu, NULL));
    wait_exited(spawn(affinity_only_tightens, NULL));
    wait_exited(spawn(in_the_child_of_a_fork, NULL));
    wait_exited(spawn(no_context_past_us, NULL));
    wait_exited(spawn(among_threads, NULL));
    disturbances();
    daemon_end();
    unreachable();
    return 0;
}
