/* The command `checkpoint`: a process is taken off its GPU and brought back by its parent and by a process that is a stranger to
 * it. Meanwhile its threads go on making calls, and count those that return. */
#define _GNU_SOURCE
#include "probe.h"

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define BYTES (256ull << 20)
#define APART (2ull << 20)
enum { CALLS = 3, LOOK_MS = 200, WAIT_MS = 20000 };
static const char *const names[CALLS] = {"cuMemGetInfo", "cuStreamQuery",
                                         "nvmlDeviceGetMemoryInfo"};

/* What both processes see. */
static struct view {
    _Atomic int ready, end;
    _Atomic unsigned long done[CALLS];
    CUresult result;
    int equal;
} *view;

static CUcontext context;
static CUdevice device;

static void rest(long ms) {
    struct timespec time = {.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000};
    nanosleep(&time, NULL);
}

static void *call(void *which) {
    size_t kind = (size_t)(uintptr_t)which, free_bytes, total;
    nvmlMemory_t memory;
    nvmlDevice_t gpu = device_in_nvml(device);
    cuda.cuCtxSetCurrent(context);
    while (!view->end) {
        if (kind == 0) {
            cuda.cuMemGetInfo_v2(&free_bytes, &total);
        } else if (kind == 1) {
            cuda.cuStreamQuery(NULL);
        } else if (gpu != NULL) {
            nvml.nvmlDeviceGetMemoryInfo(gpu, &memory);
        }
        view->done[kind]++;
        rest(1);
    }
    return NULL;
}

/* The process that is taken off its GPU: it marks its memory, has threads make calls, and compares in the end. */
static void be_taken(void) {
    pthread_t threads[CALLS];
    CUdeviceptr memory = 0;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    view->result = open_cuda() && open_nvml() && nvml.nvmlInit_v2() == NVML_SUCCESS
                       ? start_cuda(&device)
                       : CUDA_ERROR_NOT_INITIALIZED;
    if (view->result == CUDA_SUCCESS) {
        view->result = cuda.cuDevicePrimaryCtxRetain(&context, device);
    }
    if (view->result == CUDA_SUCCESS) {
        view->result = cuda.cuMemAlloc_v2(&memory, BYTES);
    }
    for (uint64_t i = 0; i < BYTES && view->result == CUDA_SUCCESS; i += APART) {
        view->result = cuda.cuMemcpyHtoD_v2(memory + i, &i, sizeof i);
    }
    for (size_t i = 0; i < CALLS && view->result == CUDA_SUCCESS; i++) {
        pthread_create(&threads[i], NULL, call, (void *)(uintptr_t)i); /* NOLINT: a number */
    }
    view->ready = 1;
    while (!view->end) {
        rest(5);
    }
    view->equal = view->result == CUDA_SUCCESS;
    for (uint64_t i = 0; i < BYTES && view->equal; i += APART) {
        uint64_t have = 1;
        view->equal =
            cuda.cuMemcpyDtoH_v2(&have, memory + i, sizeof have) == CUDA_SUCCESS && have == i;
    }
    _exit(0);
}

static CUresult told(const char *by, const char *step, uint64_t begin, CUresult result) {
    printf("{\"by\":\"%s\",\"step\":\"%s\",\"result\":\"%s\",\"ms\":%.1f}\n", by, step,
           result_name(result), (double)(now_ns() - begin) / 1e6);
    return result;
}

/* Tells which calls return while the process is in a state. */
static void look(const char *by, const char *state) {
    unsigned long before[CALLS];
    for (int i = 0; i < CALLS; i++) {
        before[i] = view->done[i];
    }
    rest(LOOK_MS);
    for (int i = 0; i < CALLS; i++) {
        printf("{\"by\":\"%s\",\"state\":\"%s\",\"call\":\"%s\",\"returns\":%s}\n", by, state,
               names[i], view->done[i] > before[i] + 1 ? "true" : "false");
    }
}

/* NVML's figure of the process, -1 where it does not tell, -2 where it does not list it. */
static long long listed(pid_t pid) {
    static nvmlProcessInfo_t list[PROCESSES_MAX];
    unsigned count = 0;
    nvmlDevice_t gpu = device_in_nvml(0);
    if (gpu == NULL || running(gpu, &count, list) != NVML_SUCCESS) {
        return -1;
    }
    for (unsigned i = 0; i < count; i++) {
        if (list[i].pid == (unsigned)pid) {
            return list[i].usedGpuMemory == UINT64_MAX ? -1 : (long long)list[i].usedGpuMemory;
        }
    }
    return -2;
}

/* Takes the process off its GPU and brings it back. */
static CUresult take(const char *by, pid_t pid) {
    CUcheckpointLockArgs lock = {.timeoutMs = 5000};
    CUcheckpointCheckpointArgs save = {{0}};
    CUcheckpointRestoreArgs restore;
    CUcheckpointUnlockArgs unlock = {{0}};
    memset(&restore, 0, sizeof restore);
    uint64_t begin = now_ns();
    CUresult result = told(by, "lock", begin, cuda.cuCheckpointProcessLock(pid, &lock));
    if (result != CUDA_SUCCESS) {
        return result;
    }
    look(by, "locked");
    printf("{\"by\":\"%s\",\"state\":\"locked\",\"listed\":%lld}\n", by, listed(pid));
    begin = now_ns();
    result = told(by, "checkpoint", begin, cuda.cuCheckpointProcessCheckpoint(pid, &save));
    if (result == CUDA_SUCCESS) {
        look(by, "checkpointed");
        printf("{\"by\":\"%s\",\"state\":\"checkpointed\",\"listed\":%lld}\n", by, listed(pid));
        begin = now_ns();
        result = told(by, "restore", begin, cuda.cuCheckpointProcessRestore(pid, &restore));
    }
    if (result == CUDA_SUCCESS) {
        begin = now_ns();
        result = told(by, "unlock", begin, cuda.cuCheckpointProcessUnlock(pid, &unlock));
    }
    if (result == CUDA_SUCCESS) {
        look(by, "running");
    }
    return result;
}

static CUresult open_asker(void) {
    if (!open_cuda() || !open_nvml() || nvml.nvmlInit_v2() != NVML_SUCCESS) {
        return CUDA_ERROR_NOT_INITIALIZED;
    }
    if (cuda.cuCheckpointProcessLock == NULL || cuda.cuCheckpointProcessUnlock == NULL ||
        cuda.cuCheckpointProcessCheckpoint == NULL || cuda.cuCheckpointProcessRestore == NULL) {
        return CUDA_ERROR_NOT_SUPPORTED;
    }
    return cuda.cuInit(0);
}

/* In a process of its own, which is no ancestor of the one that is taken. */
static CUresult by_a_stranger(pid_t pid) {
    int status = 0;
    fflush(stdout);
    pid_t asker = fork();
    if (asker == 0) {
        CUresult result = open_asker();
        if (result == CUDA_SUCCESS) {
            result = take("stranger", pid);
        }
        fflush(stdout);
        _exit(result == CUDA_SUCCESS ? 0 : 1);
    }
    waitpid(asker, &status, 0);
    return WIFEXITED(status) && WEXITSTATUS(status) == 0 ? CUDA_SUCCESS : CUDA_ERROR_UNKNOWN;
}

int command_checkpoint(void) {
    view = mmap(NULL, sizeof *view, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (view == MAP_FAILED) {
        return 3;
    }
    fflush(stdout);
    pid_t pid = fork();
    if (pid == 0) {
        be_taken();
    }
    for (int i = 0; i < WAIT_MS / 5 && !view->ready; i++) {
        rest(5);
    }
    CUresult result = by_a_stranger(pid);
    int stranger = result == CUDA_SUCCESS;
    result = open_asker();
    if (result == CUDA_SUCCESS && view->ready && view->result == CUDA_SUCCESS) {
        result = take("parent", pid);
    }
    view->end = 1;
    pid_t gone = 0;
    for (int i = 0; i < WAIT_MS / 5 && gone == 0; i++) {
        rest(5);
        gone = waitpid(pid, NULL, WNOHANG);
    }
    if (gone == 0) { /* it cannot go on */
        kill(pid, SIGKILL);
        waitpid(pid, NULL, 0);
    }
    printf("{\"command\":\"checkpoint\",\"result\":\"%s\",\"code\":%d,\"stranger\":%s,\"equal\":%s,"
           "\"bytes\":%llu}\n",
           cuda.library != NULL ? result_name(result) : "", (int)result,
           stranger ? "true" : "false", view->equal ? "true" : "false", (unsigned long long)BYTES);
    return result == CUDA_SUCCESS && view->equal ? 0 : 1;
}
