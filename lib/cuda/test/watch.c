#define _GNU_SOURCE
#include "cuda/test/watch.h"

#include <dlfcn.h>
#include <limits.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define EXPORTED __attribute__((visibility("default")))
#define EVENTS 4096u  /* of ours at once */
#define STREAMS 4096u /* of the program's at once */
#define ORDER 65536u

enum {
#define CUDA_FN(name, base, since, variant, kind, hooked) ID_##name,
#include "abi/generated/cuda_names.inc"
#undef CUDA_FN
    IDS
};

static const char *const names[] = {
#define CUDA_FN(name, base, since, variant, kind, hooked) #name,
#include "abi/generated/cuda_names.inc"
#undef CUDA_FN
};

/* Every function takes words and returns one; more than it takes do no harm. */
#define WORDS 18
typedef long any(long, long, long, long, long, long, long, long, long, long, long, long, long, long,
                 long, long, long, long);

static any *real[IDS];
static unsigned inserted[IDS], wrong;

/* Held while an event of ours is recorded, so that nothing found out about its stream changes. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static struct {
    CUevent event; /* NULL: unused */
    CUcontext context;
} events[EVENTS];

static struct {
    CUstream stream; /* NULL: unused; CU_STREAM_PER_THREAD: some thread's */
    CUcontext context;
} blocking[STREAMS];

static bool refusing;

static CUstream order[ORDER];
static unsigned ordered;

static _Thread_local struct {
    const char *name; /* what the program calls, NULL: nothing */
    CUstream stream;
    bool made; /* the call has come to the driver */
} program __attribute__((tls_model("initial-exec")));

EXPORTED watch_enter_type watch_enter;
EXPORTED watch_leave_type watch_leave;
EXPORTED watch_wrong_type watch_wrong;
EXPORTED watch_inserted_type watch_inserted;
EXPORTED watch_order_type watch_order;
EXPORTED watch_refuse_type watch_refuse;

void watch_enter(const char *name, CUstream stream) {
    program.name = name;
    program.stream = stream;
    program.made = false;
}

void watch_leave(void) {
    program.name = NULL;
}

unsigned watch_wrong(void) {
    return __atomic_load_n(&wrong, __ATOMIC_RELAXED);
}

unsigned watch_inserted(const char *name) {
    for (unsigned i = 0; i < IDS; i++) {
        if (strcmp(names[i], name) == 0) {
            return __atomic_load_n(&inserted[i], __ATOMIC_RELAXED);
        }
    }
    return 0;
}

void watch_refuse(bool refuses) {
    __atomic_store_n(&refusing, refuses, __ATOMIC_RELAXED);
}

unsigned watch_order(CUstream *streams, unsigned most) {
    unsigned count = __atomic_load_n(&ordered, __ATOMIC_RELAXED);
    for (unsigned i = 0; i < count && i < most; i++) {
        streams[i] = order[i];
    }
    return count;
}

static void complain(unsigned id, const char *why, long about) {
    __atomic_add_fetch(&wrong, 1, __ATOMIC_RELAXED);
    fprintf(stderr, "inserted %s during %s: %s (%ld)\n", names[id], program.name, why, about);
}

#define CALL(name, a, b, c)                                                                        \
    real[ID_##name]((long)(a), (long)(b), (long)(c), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0)

/* The context whose events the stream takes: for a green one its GPU's primary one. Or NULL. */
static CUcontext context_of(CUstream stream) {
    CUcontext context = NULL;
    CUgreenCtx green;
    CALL(cuStreamGetCtx_v2, stream, &context, &green);
    return context;
}

static CUcontext current(void) {
    return context_of(NULL);
}

/* ---- what is noted of the program; the caller holds the lock ---- */

static void note_blocking(CUstream stream, CUcontext context) {
    for (unsigned i = 0; i < STREAMS; i++) {
        if (blocking[i].stream == stream && blocking[i].context == context) {
            return;
        }
    }
    for (unsigned i = 0; i < STREAMS; i++) {
        if (blocking[i].stream == NULL) {
            blocking[i].stream = stream;
            blocking[i].context = context;
            return;
        }
    }
    abort();
}

static void forget_blocking(CUstream stream) {
    for (unsigned i = 0; i < STREAMS; i++) {
        if (blocking[i].stream == stream) {
            blocking[i].stream = NULL;
        }
    }
}

static void forget_context(CUcontext context) {
    for (unsigned i = 0; i < STREAMS; i++) {
        if (blocking[i].context == context) {
            blocking[i].stream = NULL;
        }
    }
    for (unsigned i = 0; i < EVENTS; i++) {
        if (events[i].context == context) {
            events[i].event = NULL;
        }
    }
}

static bool others_block(CUcontext context) {
    for (unsigned i = 0; i < STREAMS; i++) {
        if (blocking[i].stream != NULL && blocking[i].context == context) {
            return true;
        }
    }
    return false;
}

static unsigned find_event(CUevent event) {
    unsigned i = 0;
    while (i < EVENTS && events[i].event != event) {
        i++;
    }
    return i;
}

/* ---- judgement ---- */

/* What docs/design/calls.md names. */
static bool is_named(unsigned id) {
    switch (id) {
    case ID_cuCtxGetCurrent:
    case ID_cuCtxGetDevice:
    case ID_cuCtxGetLimit:
    case ID_cuCtxPopCurrent_v2:
    case ID_cuCtxPushCurrent_v2:
    case ID_cuCtxFromGreenCtx:
    case ID_cuDeviceGet:
    case ID_cuDeviceGetCount:
    case ID_cuDeviceGetAttribute:
    case ID_cuDeviceGetGraphMemAttribute:
    case ID_cuDeviceGetMemPool:
    case ID_cuDeviceGetUuid:
    case ID_cuDeviceGetUuid_v2:
    case ID_cuDevicePrimaryCtxGetState:
    case ID_cuEventCreate:
    case ID_cuEventDestroy_v2:
    case ID_cuEventElapsedTime:
    case ID_cuEventQuery:
    case ID_cuEventRecord:
    case ID_cuFuncGetAttribute:
    case ID_cuFuncLoad:
    case ID_cuGraphChildGraphNodeGetGraph:
    case ID_cuGraphGetNodes:
    case ID_cuGraphMemAllocNodeGetParams:
    case ID_cuGraphNodeGetType:
    case ID_cuIpcCloseMemHandle:
    case ID_cuKernelGetFunction:
    case ID_cuMemFreeAsync:
    case ID_cuMemFree_v2:
    case ID_cuMemGetAddressRange_v2:
    case ID_cuMemGetAllocationPropertiesFromHandle:
    case ID_cuMemPoolGetAttribute:
    case ID_cuMemRelease:
    case ID_cuMemUnmap:
    case ID_cuPointerGetAttribute:
    case ID_cuPointerGetAttributes:
    case ID_cuStreamGetCtx:
    case ID_cuStreamGetPriority:
    case ID_cuStreamIsCapturing:
    case ID_cuStreamIsCapturing_ptsz:
    case ID_cuStreamQuery:
    case ID_cuThreadExchangeStreamCaptureMode:
        return true;
    default:
        return false;
    }
}

static bool is_launch(const char *name) {
    return strncmp(name, "cuLaunch", 8) == 0 || strncmp(name, "cuGraphLaunch", 13) == 0 ||
           strncmp(name, "cuMemset", 8) == 0 || strncmp(name, "cuMemcpy", 8) == 0;
}

static bool is_legacy(CUstream stream) {
    return stream == NULL || stream == CU_STREAM_LEGACY;
}

static void judge_record(unsigned id, CUevent event, CUstream stream) {
    unsigned at = find_event(event), status = CU_STREAM_CAPTURE_STATUS_NONE;
    CUcontext context = context_of(stream);
    if (at == EVENTS || events[at].context != context) {
        complain(id, "the event is of another context", (long)stream);
    }
    if (CALL(cuStreamIsCapturing, stream, &status, 0) != CUDA_SUCCESS ||
        status != CU_STREAM_CAPTURE_STATUS_NONE) {
        complain(id, "the stream is captured", (long)stream);
    }
    if (is_legacy(stream) && others_block(context) &&
        (!is_launch(program.name) || !is_legacy(program.stream))) {
        complain(id, "into the legacy stream, which orders others", 0);
    }
}

static void judge_result(unsigned id, long result) {
    bool asks = id == ID_cuEventQuery || id == ID_cuStreamQuery;
    if (result != CUDA_SUCCESS && !(asks && result == CUDA_ERROR_NOT_READY)) {
        complain(id, "it failed", result);
    }
    if (!is_named(id)) {
        complain(id, "no document names it", 0);
    }
}

/* A call of the name that the program calls is the program's, unless it is about our events. */
static bool is_inserted(unsigned id, long first) {
    if (program.made || strcmp(program.name, names[id]) != 0) {
        return true;
    }
    bool ours = false;
    if (id == ID_cuEventRecord || id == ID_cuEventQuery || id == ID_cuEventDestroy_v2) {
        pthread_mutex_lock(&lock);
        ours = find_event((CUevent)first) < EVENTS;
        pthread_mutex_unlock(&lock);
    }
    program.made = !ours;
    return ours;
}

/* ---- calls ---- */

#define PASS                                                                                       \
    real[id](a[0], a[1], a[2], a[3], a[4], a[5], a[6], a[7], a[8], a[9], a[10], a[11], a[12],      \
             a[13], a[14], a[15], a[16], a[17])

static long insert(unsigned id, long *a) {
    __atomic_add_fetch(&inserted[id], 1, __ATOMIC_RELAXED);
    bool about_events =
        id == ID_cuEventCreate || id == ID_cuEventRecord || id == ID_cuEventDestroy_v2;
    if (!about_events) {
        long result = PASS;
        judge_result(id, result);
        return result;
    }
    pthread_mutex_lock(&lock);
    if (id == ID_cuEventRecord && __atomic_load_n(&refusing, __ATOMIC_RELAXED)) {
        pthread_mutex_unlock(&lock);
        return CUDA_ERROR_INVALID_HANDLE;
    }
    if (id == ID_cuEventRecord) {
        judge_record(id, (CUevent)a[0], (CUstream)a[1]);
    } else if (id == ID_cuEventDestroy_v2) {
        events[find_event((CUevent)a[0])].event = NULL;
    }
    long result = PASS;
    judge_result(id, result);
    if (id == ID_cuEventCreate && result == CUDA_SUCCESS) {
        unsigned at = find_event(NULL);
        events[at].event = *(CUevent *)a[0];
        events[at].context = current();
    }
    pthread_mutex_unlock(&lock);
    return result;
}

static void launched(CUstream stream) {
    unsigned at = __atomic_fetch_add(&ordered, 1, __ATOMIC_RELAXED);
    if (at < ORDER) {
        order[at] = stream;
    }
}

/* The program's own call; the caller holds the lock. */
static void before(unsigned id, const long *a) {
    if (program.stream == CU_STREAM_PER_THREAD) {
        note_blocking(CU_STREAM_PER_THREAD, current());
    }
    if (id == ID_cuStreamDestroy_v2) {
        forget_blocking((CUstream)a[0]);
    } else if (id == ID_cuCtxDestroy_v2) {
        forget_context((CUcontext)a[0]);
    }
}

static long own(unsigned id, long *a) {
    bool captures = strncmp(names[id], "cuStreamBeginCapture", 20) == 0 ||
                    strncmp(names[id], "cuStreamWaitEvent", 17) == 0;
    pthread_mutex_lock(&lock);
    before(id, a);
    if (!captures) {
        pthread_mutex_unlock(&lock);
    }
    if (id == ID_cuLaunchKernel) {
        launched((CUstream)a[8]);
    }
    long result = PASS;
    if (!captures) {
        pthread_mutex_lock(&lock);
    }
    if (result == CUDA_SUCCESS &&
        (id == ID_cuStreamCreate || id == ID_cuStreamCreateWithPriority) &&
        ((unsigned)a[1] & CU_STREAM_NON_BLOCKING) == 0) {
        note_blocking(*(CUstream *)a[0], current());
    }
    pthread_mutex_unlock(&lock);
    return result;
}

static long call(unsigned id, long *a) {
    if (real[id] == NULL) {
        return CUDA_ERROR_NOT_SUPPORTED;
    }
    if (program.name == NULL) {
        return PASS;
    }
    return is_inserted(id, a[0]) ? insert(id, a) : own(id, a);
}

#define CUDA_FN(name, base, since, variant, kind, hooked)                                          \
    EXPORTED any name;                                                                             \
    long name(long a, long b, long c, long d, long e, long f, long g, long h, long i, long j,      \
              long k, long l, long m, long n, long o, long p, long q, long r) {                    \
        long words[WORDS] = {a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r};                \
        return call(ID_##name, words);                                                             \
    }
#include "abi/generated/cuda_names.inc"
#undef CUDA_FN

/* simgpu finds its machine beside the name under which it was loaded. */
__attribute__((constructor)) static void find_driver(void) {
    Dl_info own_file;
    char path[PATH_MAX];
    if (!dladdr((void *)(uintptr_t)find_driver, &own_file)) {
        abort();
    }
    snprintf(path, sizeof path, "%.*s/libcuda-simgpu.so.1",
             (int)(strrchr(own_file.dli_fname, '/') - own_file.dli_fname), own_file.dli_fname);
    void *driver = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (driver == NULL) {
        fprintf(stderr, "%s\n", dlerror());
        abort();
    }
    for (unsigned i = 0; i < IDS; i++) {
        real[i] = (any *)(uintptr_t)dlsym(driver, names[i]);
    }
}
