#include "cuda/memory/limbo.h"

#include "cuda/fork.h"
#include "cuda/memory/swap.h"
#include "cuda/stream.h"

#define STREAMS_MAX 64 /* asked in one pass */

static table waiting;    /* by address: how many frees; owner, device */
static table in_streams; /* by address: amount and owner are the stream's handle */
static uint32_t count;   /* in waiting */

/* The handle of a per-thread default stream means another stream in each thread, so frees in it are
 * known by their context alone. */
static uint64_t handle_of(CUstream stream) {
    return stream == CU_STREAM_PER_THREAD ? 0 : (uint64_t)(uintptr_t)stream;
}

/* Both halves of the handle. */
static struct entry of_handle(uint64_t handle) {
    return entry_make((uint32_t)handle, (uint32_t)(handle >> 32), 0);
}

static uint64_t to_handle(struct entry entry) {
    return entry.amount | (uint64_t)entry.owner << 32;
}

void limbo_enter(uint64_t address, struct entry note, CUstream stream) {
    uint64_t handle = handle_of(stream);
    stream_remember(stream);
    if (handle != 0) {
        table_put(&in_streams, address, of_handle(handle), NULL, NULL);
    }
    if (table_count_up(&waiting, address, entry_make(0, note.owner, note.device))) {
        __atomic_add_fetch(&count, 1, __ATOMIC_RELEASE);
    }
}

/* The driver has given the address again, so the free is done. linear.c has given back the
   charge. */
static void limbo_reused(uint64_t address) {
    struct entry note;
    table_take(&in_streams, address, NULL);
    if (table_take(&waiting, address, &note)) {
        __atomic_sub_fetch(&count, note.amount, __ATOMIC_RELAXED);
    }
}
ON(linear_reused, limbo_reused);

/* The address of a small allocation may have been given and freed several times; each free
   counts. */
static void release(uint64_t address) {
    struct entry note = {0};
    struct freeing freeing;
    table_take(&in_streams, address, NULL);
    table_take(&waiting, address, &note);
    for (uint32_t i = 0; i < note.amount && linear_take(address, &freeing); i++) {
        if (swap_free_ending(address)) {
            linear_freed(&freeing);
        } else {
            linear_put_back(&freeing);
        }
    }
    __atomic_sub_fetch(&count, note.amount, __ATOMIC_RELAXED);
}

static bool is_empty(void) {
    return __atomic_load_n(&count, __ATOMIC_ACQUIRE) == 0;
}

/* Addresses that a sweep found. They are released after it, because it holds a lock. */
struct batch {
    uint64_t match;
    unsigned size;
    uint64_t addresses[256];
};

static bool of_stream(uint64_t address, struct entry *entry, void *arg) {
    struct batch *batch = arg;
    if (to_handle(*entry) != batch->match || batch->size == 256) {
        return false;
    }
    batch->addresses[batch->size++] = address;
    return true;
}

static bool of_context(uint64_t address, struct entry *note, void *arg) {
    struct batch *batch = arg;
    if (note->owner == batch->match && batch->size < 256) {
        batch->addresses[batch->size++] = address;
    }
    return false;
}

static void release_all(table *t, bool (*visit)(uint64_t, struct entry *, void *), uint64_t match) {
    struct batch batch = {.match = match};
    do {
        batch.size = 0;
        table_sweep(t, visit, &batch);
        for (unsigned i = 0; i < batch.size; i++) {
            release(batch.addresses[i]);
        }
    } while (batch.size == 256);
}

void limbo_stream_done(CUstream stream) {
    if (!is_empty() && handle_of(stream) != 0) {
        release_all(&in_streams, of_stream, handle_of(stream));
    }
}

void limbo_context_done(uint32_t owner) {
    if (!is_empty()) {
        release_all(&waiting, of_context, owner);
    }
}

static bool forget_stream(uint64_t address, struct entry *entry, void *handle) {
    (void)address;
    return to_handle(*entry) == *(const uint64_t *)handle;
}

/* From here on only the end of work in its whole context shows that the frees are done. */
static void limbo_stream_ending(CUstream stream) {
    uint64_t handle = handle_of(stream);
    if (!is_empty()) {
        table_sweep(&in_streams, forget_stream, &handle);
    }
}
ON(stream_ending, limbo_stream_ending);

struct streams {
    unsigned size;
    uint64_t handles[STREAMS_MAX];
};

static bool collect(uint64_t address, struct entry *entry, void *arg) {
    struct streams *streams = arg;
    (void)address;
    for (unsigned i = 0; i < streams->size; i++) {
        if (streams->handles[i] == to_handle(*entry)) {
            return false;
        }
    }
    if (streams->size < STREAMS_MAX) {
        streams->handles[streams->size++] = to_handle(*entry);
    }
    return false;
}

/* Asks the driver which streams with waiting frees are done. */
static void limbo_reread(unsigned device, bool *less) {
    struct streams streams = {0};
    (void)device;
    if (is_empty()) {
        return;
    }
    table_sweep(&in_streams, collect, &streams);
    /* Another thread's capture in global mode forbids even a query, unless this thread is
       relaxed. */
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    DV_CALL(cuThreadExchangeStreamCaptureMode, &mode);
    for (unsigned i = 0; i < streams.size; i++) {
        CUstream stream = (CUstream)(uintptr_t)streams.handles[i]; /* NOLINT */
        if (!stream_hold(stream)) {
            continue;
        }
        bool done = !stream_captured(stream) && DV_CALL(cuStreamQuery, stream) == CUDA_SUCCESS;
        if (done) {
            limbo_stream_done(stream);
        }
        *less = *less || done;
        stream_release(stream);
    }
    DV_CALL(cuThreadExchangeStreamCaptureMode, &mode);
}
ON(memory_short, limbo_reread);

static void limbo_forked(void) {
    table_forget(&waiting);
    table_forget(&in_streams);
    count = 0;
}
ON(forked, limbo_forked);
