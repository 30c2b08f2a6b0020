/* A program that wants more of MPS than its share: in one of several ways it makes a context on GPU
 * 0 and allocates until nothing is given any more, 16 GiB at most. It prints cuInit's answer, how
 * many devices there are, how many MiB it got and its process, and stays until its input ends.
 * client WAY [DRIVER]
 * client later FILE: says that it is there, and does so when the file is; prints to FILE.said. */
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define PIECE ((size_t)64 << 20)
#define PIECES 256

typedef int (*init_fn)(unsigned);
typedef int (*count_fn)(int *);
typedef int (*retain_fn)(void **, int);
typedef int (*set_fn)(void *);
typedef int (*alloc_fn)(unsigned long long *, size_t);

static void *driver;
static int over;

static void raise_limits(void) {
    setenv("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", "100", 1);
    setenv("CUDA_MPS_PINNED_DEVICE_MEM_LIMIT", "0=60G", 1);
    setenv("CUDA_MPS_ENABLE_PER_CTX_DEVICE_MULTIPROCESSOR_PARTITIONING", "1", 1);
}

static void leave_daemon(void) {
    setenv("CUDA_MPS_PIPE_DIRECTORY", "/nowhere", 1);
}

/* While others read the environment. */
static void *hammer(void *arg) {
    (void)arg;
    while (!__atomic_load_n(&over, __ATOMIC_RELAXED)) {
        raise_limits();
        unsetenv("CUDA_MPS_PIPE_DIRECTORY");
    }
    return NULL;
}

static int use(const char *way) {
    void *context = NULL;
    unsigned long long address;
    int devices = 0, got = 0;
    init_fn init = (init_fn)dlsym(driver, "cuInit");
    int result = init(0), answer = result;
    ((count_fn)dlsym(driver, "cuDeviceGetCount"))(&devices);
    if (strcmp(way, "after") == 0) {
        raise_limits();
        leave_daemon();
        init(0);
    }
    result = ((retain_fn)dlsym(driver, "cuDevicePrimaryCtxRetain"))(&context, 0);
    result = result != 0 ? result : ((set_fn)dlsym(driver, "cuCtxSetCurrent"))(context);
    alloc_fn alloc = (alloc_fn)dlsym(driver, "cuMemAlloc_v2");
    while (result == 0 && got < PIECES && alloc(&address, PIECE) == 0) {
        got++;
    }
    __atomic_store_n(&over, 1, __ATOMIC_RELAXED);
    printf("%d %d %d %d\n", answer, devices, got * (int)(PIECE >> 20), (int)getpid());
    fflush(stdout);
    while (getchar() != EOF) {
    }
    return 0;
}

int main(int argc, char **argv) {
    const char *way = argc > 1 ? argv[1] : "plain";
    pthread_t thread;
    if (strcmp(way, "later") == 0) {
        char name[4096];
        printf("0 0 0 %d\n", (int)getpid());
        fflush(stdout);
        while (access(argv[2], F_OK) != 0) {
            usleep(1000);
        }
        snprintf(name, sizeof name, "%s.said", argv[2]);
        if (freopen(name, "w", stdout) == NULL) {
            return 6;
        }
        raise_limits();
        argc = 1;
    }
    if (strcmp(way, "exec") == 0) {
        raise_limits();
        leave_daemon();
        execl("/proc/self/exe", "client", "plain", argv[2], NULL);
        return 4;
    }
    driver = dlopen(argc > 2 ? argv[2] : "libcuda.so.1", RTLD_NOW);
    if (driver == NULL) {
        fprintf(stderr, "%s\n", dlerror());
        return 3;
    }
    if (strcmp(way, "raise") == 0) {
        raise_limits();
    }
    if (strcmp(way, "leave") == 0) {
        unsetenv("CUDA_MPS_PIPE_DIRECTORY");
    }
    if (strcmp(way, "thread") == 0) {
        pthread_create(&thread, NULL, hammer, NULL);
    }
    if (strcmp(way, "fork") == 0) {
        pid_t child = fork();
        if (child > 0) {
            return waitpid(child, NULL, 0) == child ? 0 : 5;
        }
        raise_limits();
        leave_daemon();
    }
    return use(way);
}
