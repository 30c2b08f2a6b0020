#include "remote/test/served.h"

#include <pthread.h>
#include <stdarg.h>
#include <string.h>

#define CONTEXT ((CUcontext)0xc000)

/* The driver. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static char calls[4096];
sem_t served_release, served_inside;
static uint64_t made;
static __thread CUcontext current;

static void note(const char *format, ...) {
    va_list list;

    pthread_mutex_lock(&lock);
    size_t used = strlen(calls);
    va_start(list, format);
    vsnprintf(calls + used, sizeof calls - used, format, list);
    va_end(list);
    pthread_mutex_unlock(&lock);
}

void served_check_calls(const char *wanted, int line) {
    pthread_mutex_lock(&lock);
    if (strcmp(calls, wanted) != 0) {
        fprintf(stderr, "line %d: called were \"%s\", not \"%s\"\n", line, calls, wanted);
        exit(1);
    }
    calls[0] = 0;
    pthread_mutex_unlock(&lock);
}

static CUresult set_current(CUcontext context) {
    current = context;
    note("current %lx;", (unsigned long)context);
    return CUDA_SUCCESS;
}

static CUresult pop_current(CUcontext *context) {
    *context = CONTEXT;
    note("pop;");
    return CUDA_SUCCESS;
}

static CUresult create_context(CUcontext *context, unsigned flags, CUdevice device) {
    (void)device;
    *context = (CUcontext)((uint64_t)CONTEXT + flags);
    note("create;");
    return flags == 99 ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_SUCCESS;
}

/* The driver holds its caller, until the test lets it go. */
static void hold(void) {
    sem_post(&served_inside);
    while (sem_wait(&served_release)) {
    }
}

static CUresult destroy_context(CUcontext context) {
    note("destroy %lx;", (unsigned long)context);
    if (context == SERVED_HELD_CONTEXT) {
        hold();
    }
    return CUDA_SUCCESS;
}

static CUresult get_version(int *version) {
    *version = 12040;
    note("version;");
    return CUDA_SUCCESS;
}

static CUresult get_device(CUdevice *device) {
    *device = 0;
    return current ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT;
}

/* The low bits of an address say what comes of freeing it. */
static CUresult free_memory(CUdeviceptr at) {
    if (at & SERVED_HELD_MEMORY) {
        note("free;");
        hold();
    }
    return (CUresult)(at & 0xfff);
}

static CUresult unload(CUmodule module) {
    note("unload %lx;", (unsigned long)module);
    hold();
    return module == SERVED_KEPT_MODULE ? CUDA_ERROR_INVALID_HANDLE : CUDA_SUCCESS;
}

/* Reads the code when it is let go. */
static CUresult load(CUmodule *module, const void *image) {
    hold();
    note("load %s;", (const char *)image);
    *module = (CUmodule)(0xd000 + 16 * ++made);
    return CUDA_SUCCESS;
}

static CUresult get_function(CUfunction *function, CUmodule module, const char *name) {
    (void)name;
    note("of %lx;", (unsigned long)module);
    *function = (CUfunction)0xf000;
    return CUDA_SUCCESS;
}

static CUresult create_stream(CUstream *stream, unsigned flags) {
    *stream = (CUstream)(0x5000 + 16 * ++made);
    CHECK_EQUAL(flags, 0);
    note("stream %lx;", (unsigned long)*stream);
    return CUDA_SUCCESS;
}

static CUresult destroy_stream(CUstream stream) {
    note("end %lx;", (unsigned long)stream);
    if (stream == SERVED_HELD) {
        hold();
    }
    return (uint64_t)stream == 2 ? CUDA_ERROR_INVALID_HANDLE : CUDA_SUCCESS;
}

static CUresult query_stream(CUstream stream) {
    return stream == SERVED_HELD ? CUDA_ERROR_NOT_READY : CUDA_SUCCESS;
}

static CUresult wait_stream(CUstream stream) {
    if (stream != SERVED_HELD) {
        return CUDA_SUCCESS;
    }
    CHECK(current == CONTEXT);
    while (sem_wait(&served_release)) {
    }
    return CUDA_SUCCESS;
}

static CUresult create_event(CUevent *event, unsigned flags) {
    (void)flags;
    *event = (CUevent)(0xe000 + 16 * ++made);
    return CUDA_SUCCESS;
}

static CUresult record_event(CUevent event, CUstream stream) {
    (void)event;
    note("record %lx;", (unsigned long)stream);
    return CUDA_SUCCESS;
}

static CUresult record_event_own(CUevent event, CUstream stream) {
    return record_event(event, stream);
}

static CUresult wait_event(CUstream stream, CUevent event, unsigned flags) {
    (void)event;
    (void)flags;
    note("wait %lx;", (unsigned long)stream);
    return CUDA_SUCCESS;
}

static CUresult copy(CUdeviceptr to, CUdeviceptr from, size_t size) {
    (void)to;
    (void)from;
    (void)size;
    note("copy;");
    return CUDA_SUCCESS;
}

static CUresult retain(CUcontext *context, CUdevice device) {
    (void)device;
    *context = CONTEXT;
    return CUDA_SUCCESS;
}

static CUresult reset(CUdevice device) {
    (void)device;
    return CUDA_SUCCESS;
}

static CUresult get_state(CUdevice device, unsigned *flags, int *active) {
    (void)device;
    *flags = 0;
    *active = 0;
    return CUDA_SUCCESS;
}

static nvmlReturn_t count_devices(unsigned *count) {
    *count = 1;
    return NVML_SUCCESS;
}

static const struct remote_cuda_driver driver = {
    .cuCtxSetCurrent = set_current,
    .cuCtxPopCurrent_v2 = pop_current,
    .cuCtxCreate_v2 = create_context,
    .cuCtxDestroy_v2 = destroy_context,
    .cuCtxGetDevice = get_device,
    .cuDevicePrimaryCtxRetain = retain,
    .cuDevicePrimaryCtxReset_v2 = reset,
    .cuDevicePrimaryCtxGetState = get_state,
    .cuDriverGetVersion = get_version,
    .cuMemFree_v2 = free_memory,
    .cuModuleGetFunction = get_function,
    .cuModuleLoadData = load,
    .cuModuleUnload = unload,
    .cuStreamCreate = create_stream,
    .cuStreamDestroy_v2 = destroy_stream,
    .cuStreamQuery = query_stream,
    .cuStreamSynchronize = wait_stream,
    .cuEventCreate = create_event,
    .cuEventRecord = record_event,
    .cuEventRecord_ptsz = record_event_own,
    .cuStreamWaitEvent = wait_event,
    .cuMemcpyDtoD_v2_ptds = copy,
};
static const struct remote_nvml_driver nvml = {.nvmlDeviceGetCount_v2 = count_devices};

/* The client. */
struct remote_link *served_client;
struct remote_worker *served_worker;
uint64_t served_sequence, served_context;
uint32_t served_thread;
unsigned char *served_frame;
static struct remote_link *link_of_worker;
static pthread_t executor;
static char why[REMOTE_WHY_BYTES];
static _Alignas(8) unsigned char frame[REMOTE_RECORD_BYTES];

static void *run(void *unused) {
    remote_worker_run(served_worker, why);
    remote_link_end(link_of_worker);
    return unused;
}

void served_begin(enum remote_link_kind kind) {
    sides_both(kind, &served_client, &link_of_worker);
    served_worker = remote_worker_new(link_of_worker, &driver, &nvml);
    CHECK(served_worker);
    calls[0] = 0;
    served_context = served_sequence = made = 0;
    served_thread = 1;
    served_frame = frame;
    CHECK(sem_init(&served_release, 0, 0) == 0 && sem_init(&served_inside, 0, 0) == 0);
    CHECK(pthread_create(&executor, NULL, run, NULL) == 0);
}

const char *served_stop(void) {
    CHECK(pthread_join(executor, NULL) == 0);
    remote_worker_free(served_worker);
    remote_link_free(link_of_worker);
    remote_link_free(served_client);
    sem_destroy(&served_release);
    sem_destroy(&served_inside);
    return why;
}

void served_end(void) {
    remote_link_end(served_client);
    CHECK_EQUAL(served_stop()[0], 0);
}

uint64_t served_send(uint16_t call, bool posted, uint32_t given, const uint64_t *words,
                     size_t count) {
    struct remote_head head = {.size = (uint32_t)(sizeof head + 8 * count),
                               .call = call,
                               .posted = posted,
                               .sequence = ++served_sequence,
                               .context = served_context,
                               .thread = served_thread,
                               .given = given};
    struct remote_piece piece = {words, 8 * count};

    if (remote_link_put(served_client, &head, sizeof head, &piece, 1)) {
        remote_link_flush(served_client);
    }
    return served_sequence;
}

struct remote_answer served_take(void) {
    struct remote_answer answer;
    size_t size;

    CHECK_EQUAL(remote_link_take(served_client, frame, &size, -1), REMOTE_TAKEN);
    memcpy(&answer, frame, sizeof answer);
    CHECK_EQUAL(size, answer.size);
    return answer;
}

struct remote_answer served_ask(uint16_t call, uint32_t given, const uint64_t *words,
                                size_t count) {
    uint64_t asked = served_send(call, false, given, words, count);
    struct remote_answer answer = served_take();

    CHECK_EQUAL(answer.sequence, asked);
    CHECK_EQUAL(answer.call, call);
    return answer;
}
