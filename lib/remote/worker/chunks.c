/* The chunks of the area that copies use which nobody waits for, until an event behind them has come. An event takes the GPU as
 * long as a small copy: so one stands behind several copies of a stream, or behind what a stream has when somebody wants to
 * know. The executor alone calls this. */
#include "remote/worker/copies.h"

#define NO_MARK UINT32_MAX
/* One event for so many copies, or so many blocks of the area. */
#define MARK_COPIES 16u
#define MARK_BLOCKS REMOTE_CHUNK_BLOCKS
/* Streams that have copies without an event behind them. */
#define MOST_OPEN 32u

/* An event behind copies of one stream. */
static struct mark {
    enum { MARK_FREE, MARK_OPEN, MARK_RECORDED, MARK_LOST } state; /* LOST: nobody can tell */
    CUstream stream;
    struct remote_event event;
    unsigned copies, blocks;
    unsigned waiting; /* chunks */
    bool asked, done; /* in this look */
} marks[REMOTE_MOST_BLOCKS];

static struct {
    size_t count;
    struct busy {
        uint32_t block;
        uint32_t mark; /* NO_MARK: no copy uses it */
    } list[REMOTE_MOST_BLOCKS];
    bool is_busy[REMOTE_MOST_BLOCKS];
    size_t open_count;
    uint32_t open[MOST_OPEN]; /* marks, the oldest first */
} chunks;

static void close_at(size_t i, int state) {
    marks[chunks.open[i]].state = state;
    chunks.open_count--;
    for (; i < chunks.open_count; i++) {
        chunks.open[i] = chunks.open[i + 1];
    }
}

static bool is_default(CUstream stream) {
    return !stream || stream == CU_STREAM_LEGACY;
}

/* What is recorded while a capture is under way must not become part of it, nor end it. */
static bool may_record(const struct remote_cuda_driver *cuda, CUstream stream) {
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;

    if (!remote_capture_active()) {
        return true;
    }
    return !is_default(stream) && cuda->cuStreamIsCapturing &&
           cuda->cuStreamIsCapturing(stream, &status) == CUDA_SUCCESS &&
           status == CU_STREAM_CAPTURE_STATUS_NONE;
}

/* A default stream is that of the context which is current. */
static CUresult record(struct remote_worker *worker, const struct mark *mark) {
    const struct remote_cuda_driver *cuda = remote_worker_cuda(worker);
    CUcontext before;
    uint64_t context;

    if (!remote_worker_resolve(worker, REMOTE_KIND_CUcontext, mark->event.context, &context) ||
        !cuda->cuCtxPushCurrent_v2 || !cuda->cuCtxPopCurrent_v2) {
        return CUDA_ERROR_INVALID_CONTEXT;
    }
    CUresult result = cuda->cuCtxPushCurrent_v2((CUcontext)context);
    if (result == CUDA_SUCCESS) {
        result = cuda->cuEventRecord(mark->event.event, mark->stream);
        cuda->cuCtxPopCurrent_v2(&before);
    }
    return result;
}

static void record_at(struct remote_worker *worker, size_t i) {
    CUresult result = record(worker, &marks[chunks.open[i]]);

    close_at(i, result == CUDA_SUCCESS ? MARK_RECORDED : MARK_LOST);
}

void remote_chunks_record(struct remote_worker *worker) {
    for (size_t i = chunks.open_count; i > 0; i--) {
        if (may_record(remote_worker_cuda(worker), marks[chunks.open[i - 1]].stream)) {
            record_at(worker, i - 1);
        }
    }
}

void remote_chunks_stream_ends(struct remote_worker *worker, CUstream stream) {
    remote_chunks_record(worker);
    for (size_t i = chunks.open_count; i > 0; i--) {
        if (marks[chunks.open[i - 1]].stream == stream) {
            close_at(i - 1, MARK_LOST);
        }
    }
}

static size_t open_of(CUstream stream, uint64_t context) {
    size_t i = 0;

    while (i < chunks.open_count && (marks[chunks.open[i]].stream != stream ||
                                     marks[chunks.open[i]].event.context != context)) {
        i++;
    }
    return i;
}

/* There are as many marks as chunks, and each that is not free has a chunk. */
static uint32_t free_mark(void) {
    uint32_t i = 0;

    while (marks[i].state != MARK_FREE) {
        i++;
    }
    return i;
}

/* False without an event. */
static bool open_mark(struct remote_worker *worker, CUstream stream, uint64_t context) {
    const struct remote_event event = remote_event_take(worker, context);

    if (!event.event) {
        return false;
    }
    if (chunks.open_count == MOST_OPEN) {
        record_at(worker, 0);
    }
    uint32_t made = free_mark();
    marks[made] = (struct mark){.state = MARK_OPEN, .stream = stream, .event = event};
    chunks.open[chunks.open_count++] = made;
    return true;
}

static void add(uint32_t block, uint32_t mark) {
    chunks.is_busy[block] = true;
    chunks.list[chunks.count++] = (struct busy){block, mark};
}

void remote_chunk_unused(uint32_t block) {
    /* A client that names a chunk again before it was told that it is free confuses itself alone. */
    if (!chunks.is_busy[block]) {
        add(block, NO_MARK);
    }
}

void remote_chunk_busy(struct remote_worker *worker, uint32_t block, uint32_t bytes,
                       CUstream stream, uint64_t context) {
    size_t i = open_of(stream, context);

    if (chunks.is_busy[block]) {
        return;
    }
    /* Without an event nobody can tell when the chunk is free: then it is never used again. */
    if (i == chunks.open_count && !open_mark(worker, stream, context)) {
        return;
    }
    i = open_of(stream, context);
    struct mark *mark = &marks[chunks.open[i]];
    mark->copies++;
    mark->blocks += (bytes + REMOTE_BLOCK_BYTES - 1) / REMOTE_BLOCK_BYTES;
    mark->waiting++;
    add(block, chunks.open[i]);
    if (mark->copies >= MARK_COPIES || mark->blocks >= MARK_BLOCKS) {
        record_at(worker, i);
    }
}

void remote_chunks_forget_device(CUdevice device) {
    for (size_t i = 0; i < REMOTE_MOST_BLOCKS; i++) {
        if (marks[i].state != MARK_FREE && remote_event_is_primary(&marks[i].event, device)) {
            marks[i].event.event = NULL;
        }
    }
}

static bool ask(struct remote_worker *worker, const struct mark *mark) {
    if (!mark->event.event || !remote_event_lives(worker, &mark->event)) {
        return true;
    }
    return mark->state == MARK_RECORDED &&
           remote_worker_cuda(worker)->cuEventQuery(mark->event.event) != CUDA_ERROR_NOT_READY;
}

/* What a stream does comes in the order in which it was given: behind a copy that is not done none is asked about. */
static bool is_behind(const struct mark *const *undone, size_t count, const struct mark *mark) {
    for (size_t i = 0; i < count; i++) {
        if (undone[i]->stream == mark->stream && undone[i]->event.context == mark->event.context) {
            return true;
        }
    }
    return false;
}

/* A chunk of a mark is free: with the last one the mark is. */
static void leave(struct remote_worker *worker, struct mark *mark) {
    if (--mark->waiting > 0) {
        return;
    }
    for (size_t i = 0; i < chunks.open_count; i++) {
        if (&marks[chunks.open[i]] == mark) {
            close_at(i, MARK_FREE);
        }
    }
    mark->state = MARK_FREE;
    if (mark->event.event && remote_event_lives(worker, &mark->event)) {
        remote_event_give(worker, &mark->event);
    }
}

size_t remote_chunks_freed(struct remote_worker *worker, uint32_t blocks[REMOTE_MOST_BLOCKS]) {
    const struct mark *undone[MOST_OPEN];
    size_t freed = 0, left = 0, count = 0;

    remote_chunks_record(worker);
    for (size_t i = 0; i < chunks.count; i++) {
        const struct busy busy = chunks.list[i];
        struct mark *mark = busy.mark == NO_MARK ? NULL : &marks[busy.mark];

        if (mark && !mark->asked && !is_behind(undone, count, mark)) {
            mark->asked = true;
            mark->done = ask(worker, mark);
            if (!mark->done && count < MOST_OPEN) {
                undone[count++] = mark;
            }
        }
        if (!mark || mark->done) {
            blocks[freed++] = busy.block;
            chunks.is_busy[busy.block] = false;
            if (mark) {
                leave(worker, mark);
            }
        } else {
            chunks.list[left++] = busy;
        }
    }
    chunks.count = left;
    for (size_t i = 0; i < left; i++) {
        if (chunks.list[i].mark != NO_MARK) {
            marks[chunks.list[i].mark].asked = false;
        }
    }
    return freed;
}
