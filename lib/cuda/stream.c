#include "cuda/stream.h"

#include <sched.h>

#include "cuda/fork.h"
#include "cuda/table.h"

CUresult stream_context(CUstream stream, CUcontext *context, struct home *home) {
    if (stream_is_default(stream)) {
        CUresult result = DV_CALL(cuCtxGetCurrent, context);
        return result == CUDA_SUCCESS ? context_current(home) : result;
    }
    CUresult result = DV_CALL(cuStreamGetCtx, stream, context);
    return result == CUDA_SUCCESS ? context_find(*context, home) : result;
}

CUresult stream_home(CUstream stream, struct home *home) {
    CUcontext context = NULL;
    return stream_is_default(stream) ? context_current(home)
                                     : stream_context(stream, &context, home);
}

bool stream_captured(CUstream stream) {
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
    return DV_CALL(cuStreamIsCapturing, stream, &status) == CUDA_SUCCESS &&
           status != CU_STREAM_CAPTURE_STATUS_NONE;
}

bool stream_captured_ptsz(CUstream stream) {
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
    return DV_CALL(cuStreamIsCapturing_ptsz, stream, &status) == CUDA_SUCCESS &&
           status != CU_STREAM_CAPTURE_STATUS_NONE;
}

/* By handle: owner is the context's; amount counts those who hold it, flags says that it ends. */
static table remembered;
#define ENDING 1u

static uint64_t key_of(CUstream stream) {
    return (uint64_t)(uintptr_t)stream;
}

void stream_remember(CUstream stream) {
    struct home home;
    bool had;
    if (stream_is_default(stream) || stream_home(stream, &home) != CUDA_SUCCESS) {
        return;
    }
    struct shard *s = table_shard(&remembered, key_of(stream));
    lock_take(&s->lock);
    struct entry *entry = shard_make(s, key_of(stream), &had);
    if (entry != NULL && !had) {
        *entry = entry_make(0, home.owner, home.device);
    }
    lock_give(&s->lock);
}

bool stream_hold(CUstream stream) {
    struct shard *s = table_shard(&remembered, key_of(stream));
    lock_take(&s->lock);
    struct entry *entry = shard_find(s, key_of(stream));
    bool lives = entry != NULL && entry->flags != ENDING;
    if (lives) {
        entry->amount++;
    }
    lock_give(&s->lock);
    return lives;
}

void stream_release(CUstream stream) {
    struct shard *s = table_shard(&remembered, key_of(stream));
    lock_take(&s->lock);
    struct entry *entry = shard_find(s, key_of(stream));
    if (entry != NULL) {
        entry->amount--;
    }
    lock_give(&s->lock);
}

/* Lets nobody hold it from now on; true once nobody does. */
static bool forget(CUstream stream) {
    struct shard *s = table_shard(&remembered, key_of(stream));
    lock_take(&s->lock);
    struct entry *entry = shard_find(s, key_of(stream));
    bool unheld = entry == NULL || entry->amount == 0;
    if (entry != NULL) {
        entry->flags = ENDING;
        if (unheld) {
            shard_erase(s, entry);
        }
    }
    lock_give(&s->lock);
    return unheld;
}

void stream_ends(CUstream stream) {
    while (!forget(stream)) {
        sched_yield();
    }
    TELL(stream_ending, (stream));
}

struct found {
    uint32_t owner;
    unsigned size;
    CUstream streams[64];
};

static bool of_owner(uint64_t key, struct entry *entry, void *arg) {
    struct found *found = arg;
    if (entry->owner == found->owner && found->size < 64) {
        found->streams[found->size++] = (CUstream)(uintptr_t)key; /* NOLINT */
    }
    return false;
}

/* Streams end with their context. */
static void streams_end(struct home home) {
    struct found found = {.owner = home.owner};
    do {
        found.size = 0;
        table_sweep(&remembered, of_owner, &found);
        for (unsigned i = 0; i < found.size; i++) {
            stream_ends(found.streams[i]);
        }
    } while (found.size == 64);
}
ON(context_ending, streams_end);

static void streams_forked(void) {
    table_forget(&remembered);
}
ON(forked, streams_forked);
