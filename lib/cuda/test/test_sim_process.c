/* Whichever way a program loads the driver, forks, or dies: the same limit, the same account. */
#define _GNU_SOURCE
#include "cuda/test/sim.h"

#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#ifndef CLIENT
#error "CLIENT names the program that takes all the memory it gets"
#endif

#define LIMIT (64 * MIB)

static struct setting s;

static uint64_t used(void) {
    dv_reap(s.share);
    return used_bytes(s.share, 0);
}

/* MiB that a client gets in the end. */
static unsigned long client(const char *environment, const char *way) {
    char command[512], line[64] = "";
    snprintf(command, sizeof command, "%s %s %s", environment, CLIENT, way);
    FILE *out = popen(command, "r");
    CHECK(out != NULL);
    CHECK(fgets(line, sizeof line, out) != NULL);
    CHECK_EQUAL(pclose(out), 0);
    CHECK_EQUAL(used(), 0);
    return strtoul(line, NULL, 10);
}

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
/* A sanitizer's runtime has to be the first library of the process, and the only copy of itself. */
static void every_way_of_loading(void) {
    char path[256];
    snprintf(path, sizeof path, "LD_LIBRARY_PATH=%s", s.tenant.directory);
    CHECK_EQUAL(client(path, "link"), (LIMIT - SIM_CONTEXT) / MIB);
    CHECK_EQUAL(client(path, "open"), (LIMIT - SIM_CONTEXT) / MIB);
}
#else
static void every_way_of_loading(void) {
    static const char *const ways[] = {"link", "open", "deepbind", "next", "default"};
    char path[256], preload[512];
    unsigned long all = (LIMIT - SIM_CONTEXT) / MIB;
    const char *directory = s.tenant.directory;
    snprintf(path, sizeof path, "LD_LIBRARY_PATH=%s", directory);
    snprintf(preload, sizeof preload, "%s LD_PRELOAD=%s/libcuda.so.1", path, directory);
    for (unsigned i = 0; i < sizeof ways / sizeof ways[0]; i++) {
        CHECK_EQUAL(client(path, ways[i]), all);
        CHECK_EQUAL(client(preload, ways[i]), all);
    }
    /* Two copies of the library in one process have two contexts' overhead and one limit. */
    CHECK_EQUAL(client(path, "copies"), all - SIM_CONTEXT / MIB);
    CHECK(sim_peak(&s, 0) <= LIMIT);
}
#endif

static void fork_before_init(void *arg) {
    CUdeviceptr address;
    (void)arg;
    setting_open(&s);
    pid_t child = fork();
    setting_context(&s);
    CHECK_EQUAL(CUDA(&s, cuMemAlloc_v2)(&address, 8 * MIB), CUDA_SUCCESS);
    if (child == 0) {
        _exit(0);
    }
    wait_exited(child);
    CHECK_EQUAL(used(), SIM_CONTEXT + 8 * MIB);
    CHECK_EQUAL(sim_used(&s, 0), SIM_CONTEXT + 8 * MIB);
}

/* The child of a process that uses the driver cannot; it takes nothing and gives nothing back. */
static void fork_after_init(void *arg) {
    CUdeviceptr address, more;
    (void)arg;
    setting_open(&s);
    setting_context(&s);
    CHECK_EQUAL(CUDA(&s, cuMemAlloc_v2)(&address, 8 * MIB), CUDA_SUCCESS);
    pid_t child = fork();
    if (child == 0) {
        CHECK(CUDA(&s, cuMemAlloc_v2)(&more, 8 * MIB) != CUDA_SUCCESS);
        CHECK(CUDA(&s, cuMemFree_v2)(address) != CUDA_SUCCESS);
        _exit(0);
    }
    wait_exited(child);
    CHECK_EQUAL(used(), SIM_CONTEXT + 8 * MIB);
    child = vfork();
    if (child == 0) {
        execl("/bin/true", "true", (char *)NULL);
        _exit(1);
    }
    wait_exited(child);
    CHECK_EQUAL(CUDA(&s, cuMemFree_v2)(address), CUDA_SUCCESS);
    CHECK_EQUAL(used(), SIM_CONTEXT);
    CHECK_EQUAL(sim_used(&s, 0), SIM_CONTEXT);
}

/* A process that takes memory when it is told to and keeps it until it is killed. It is made before
 * its maker uses the driver, whose children cannot. */
struct holder {
    pid_t pid;
    int go, ready;
};

static void hold_until_killed(void *arg) {
    const int *ends = arg; /* to read from, to write to */
    CUdeviceptr address;
    char go;
    CHECK_EQUAL(read(ends[0], &go, 1), 1);
    setting_open(&s);
    setting_context(&s);
    CHECK_EQUAL(CUDA(&s, cuMemAlloc_v2)(&address, 16 * MIB), CUDA_SUCCESS);
    CHECK_EQUAL(write(ends[1], "r", 1), 1);
    pause();
}

static struct holder make_holder(void) {
    int there[2], back[2];
    CHECK(pipe(there) == 0 && pipe(back) == 0);
    int ends[2] = {there[0], back[1]};
    struct holder holder = {spawn(hold_until_killed, ends), there[1], back[0]};
    close(there[0]);
    close(back[1]);
    return holder;
}

static void start(const struct holder *holder) {
    char said;
    CHECK_EQUAL(write(holder->go, "g", 1), 1);
    CHECK_EQUAL(read(holder->ready, &said, 1), 1);
}

static void end(const struct holder *holder) {
    kill(holder->pid, SIGKILL);
    wait_killed(holder->pid);
    close(holder->go);
    close(holder->ready);
}

/* Neighbours that die, several at a time, do a survivor no harm: it goes on, its account stays, and
 * what they had is there before the next refusal. The name looks like a zombie's in /proc. */
static void neighbours_die(void *arg) {
    CUdeviceptr address, more;
    (void)arg;
    prctl(PR_SET_NAME, "a Z");
    struct holder first = make_holder(), second = make_holder(), third = make_holder();
    start(&first);
    start(&second);
    setting_open(&s);
    setting_context(&s);
    CHECK_EQUAL(CUDA(&s, cuMemAlloc_v2)(&address, 8 * MIB), CUDA_SUCCESS);
    CHECK_EQUAL(CUDA(&s, cuMemAlloc_v2)(&more, 32 * MIB), CUDA_ERROR_OUT_OF_MEMORY);
    end(&first);
    end(&second);
    CHECK_EQUAL(CUDA(&s, cuMemAlloc_v2)(&more, 32 * MIB), CUDA_SUCCESS);
    CHECK_EQUAL(used(), SIM_CONTEXT + 40 * MIB);
    CHECK_EQUAL(CUDA(&s, cuMemFree_v2)(more), CUDA_SUCCESS);
    start(&third);
    CHECK_EQUAL(used(), 2 * SIM_CONTEXT + 24 * MIB);
    CHECK_EQUAL(CUDA(&s, cuMemAlloc_v2)(&more, 20 * MIB), CUDA_SUCCESS);
    CHECK_EQUAL(used(), 2 * SIM_CONTEXT + 44 * MIB);
    check_sums(s.share);
    end(&third);
    CHECK_EQUAL(used(), SIM_CONTEXT + 28 * MIB);
}

/* The program's own settings are its own. */
static int handled;
static void handle(int signal) {
    handled += signal == SIGUSR1;
}

static void nothing_else_changes(void *arg) {
    struct sigaction usr2;
    (void)arg;
    umask(022);
    signal(SIGUSR1, handle);
    setting_open(&s);
    setting_context(&s);
    CHECK_EQUAL(umask(0), 022);
    raise(SIGUSR1);
    CHECK_EQUAL(handled, 1);
    CHECK(sigaction(SIGUSR2, NULL, &usr2) == 0 && usr2.sa_handler == SIG_DFL);
    CHECK(dlsym(RTLD_NEXT, "puts") != NULL);
    CHECK(dlsym(RTLD_NEXT, "puts") != NULL);
    CHECK(dlsym(s.library, "mutex") == NULL);
}

/* Threads that come and go among each other. */
#define THREADS 4
#define ROUNDS 3000

static CUcontext shared_context;

static void *churn(void *arg) {
    CUdeviceptr live[16] = {0};
    unsigned seed = *(unsigned *)arg;
    CHECK_EQUAL(CUDA(&s, cuCtxSetCurrent)(shared_context), CUDA_SUCCESS);
    for (int i = 0; i < ROUNDS; i++) {
        CUdeviceptr *p = &live[(unsigned)rand_r(&seed) % 16];
        if (*p != 0) {
            CHECK_EQUAL(CUDA(&s, cuMemFree_v2)(*p), CUDA_SUCCESS);
            *p = 0;
        } else if (CUDA(&s, cuMemAlloc_v2)(p, 1 + (unsigned)rand_r(&seed) % (3u << 20)) !=
                   CUDA_SUCCESS) {
            *p = 0;
        }
    }
    for (int i = 0; i < 16; i++) {
        CHECK_EQUAL(CUDA(&s, cuMemFree_v2)(live[i]), CUDA_SUCCESS);
    }
    return NULL;
}

static void threads(void *arg) {
    pthread_t ids[THREADS];
    unsigned seeds[THREADS];
    (void)arg;
    setting_open(&s);
    shared_context = setting_context(&s);
    for (unsigned i = 0; i < THREADS; i++) {
        seeds[i] = i;
        CHECK(pthread_create(&ids[i], NULL, churn, &seeds[i]) == 0);
    }
    for (unsigned i = 0; i < THREADS; i++) {
        CHECK(pthread_join(ids[i], NULL) == 0);
    }
    CHECK_EQUAL(used(), SIM_CONTEXT);
    CHECK_EQUAL(sim_used(&s, 0), SIM_CONTEXT);
    CHECK_EQUAL(pending_bytes(s.share, 0), 0);
}

int main(void) {
    sim_make_closed(&s, 1, LIMIT);
    CHECK_EQUAL(dv_share_open(s.tenant.directory, &s.share, NULL), DV_OK);
    every_way_of_loading();
    CHECK_EQUAL(sim_peak(&s, 0), LIMIT);
    wait_exited(spawn(fork_before_init, NULL));
    wait_exited(spawn(fork_after_init, NULL));
    wait_exited(spawn(neighbours_die, NULL));
    wait_exited(spawn(nothing_else_changes, NULL));
    CHECK_EQUAL(sim_peak(&s, 0), LIMIT);
    wait_exited(spawn(threads, NULL));
    CHECK_EQUAL(used(), 0);
    CHECK_EQUAL(sim_peak(&s, 0), LIMIT);
    return 0;
}
