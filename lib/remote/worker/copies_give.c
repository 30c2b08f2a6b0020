/* Copies as the worker makes them: all are asynchronous for the driver, so that the executor never waits for the GPU. Where
 * the client waits until a copy is done, another thread waits for an event behind it. */
#include "remote/worker/copies.h"

#include <string.h>

#define SMALL 65536u /* bytes */
#define LOOKS 16u

static bool read_area(struct remote_end *end) {
    size_t size;
    unsigned char *area = remote_area(&size);

    if (!area || end->offset >= size || end->offset % REMOTE_BLOCK_BYTES) {
        return false;
    }
    end->host = area + end->offset;
    end->room = size - end->offset;
    if (end->room > REMOTE_CHUNK_BYTES) {
        end->room = REMOTE_CHUNK_BYTES;
    }
    return true;
}

/* A region may have been ended by another thread of the client, which is no fault of the record's. */
static void read_region(struct remote_decoder *decoder, struct remote_end *end, uint64_t number) {
    void *at;

    if (remote_region_at(decoder->worker, number, end->offset, &at, &end->room)) {
        end->host = at;
    } else {
        end->room = 0;
    }
}

void remote_end_read(struct remote_decoder *decoder, unsigned word, struct remote_end *end) {
    const uint64_t *words = decoder->words + word;

    *end = (struct remote_end){.place = words[0], .offset = words[2]};
    switch (words[0]) {
    case REMOTE_PLACE_NONE:
        return;
    case REMOTE_PLACE_DEVICE:
        end->device = words[1];
        return;
    case REMOTE_PLACE_ARRAY:
        end->array = (CUarray)remote_handle(decoder, word + 1, REMOTE_KIND_CUarray);
        return;
    case REMOTE_PLACE_REGION:
        read_region(decoder, end, words[1]);
        return;
    case REMOTE_PLACE_AREA:
        decoder->garbled |= !read_area(end);
        return;
    default:
        decoder->garbled = true;
    }
}

/* Memory of the client that the driver would read or write only when a graph is launched is ours no more by then. */
static CUresult may_use_area(const struct remote_cuda_driver *cuda, CUstream stream) {
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
    CUresult result =
        cuda->cuStreamIsCapturing ? cuda->cuStreamIsCapturing(stream, &status) : CUDA_SUCCESS;

    if (result == CUDA_SUCCESS && status != CU_STREAM_CAPTURE_STATUS_NONE) {
        return CUDA_ERROR_NOT_SUPPORTED;
    }
    return result;
}

/* The bytes are behind the answer's head in the same way as in a record. */
static void say(struct remote_worker *worker, const struct remote_head *head,
                const struct remote_copy *copy, int32_t result) {
    size_t size;
    struct remote_piece piece = {remote_area(&size), copy->bytes};

    if (result != CUDA_SUCCESS || !(copy->manner & REMOTE_COPY_BYTES)) {
        remote_worker_say(worker, head, result, 0, NULL, 0);
        return;
    }
    piece.at = (const unsigned char *)piece.at + (size_t)copy->block * REMOTE_BLOCK_BYTES;
    remote_worker_say(worker, head, result, 0, &piece, 1);
}

/* On another thread. A copy that has not been given to the driver yet may make it wait, and is given here. */
static void finish(struct remote_worker *worker, const struct remote_head *head, void *argument) {
    const struct remote_cuda_driver *cuda = remote_worker_cuda(worker);
    struct remote_copy *copy = argument;
    CUresult result = CUDA_SUCCESS;

    if (!copy->issued) {
        result = remote_copy_issue(cuda, copy);
        if (result == CUDA_SUCCESS) {
            result = cuda->cuEventRecord(copy->event.event, copy->stream);
        }
    }
    if (result == CUDA_SUCCESS) {
        result = cuda->cuEventSynchronize(copy->event.event);
    }
    remote_event_give(worker, &copy->event);
    say(worker, head, copy, (int32_t)result);
}

static enum remote_outcome answer(struct remote_decoder *decoder, CUresult result) {
    remote_answer(decoder, (int32_t)result);
    return remote_finish(decoder);
}

/* Another thread costs more than a small copy takes. The executor looks a few times, and waits for nothing that comes before
 * the copy in its stream. */
static bool is_soon_done(const struct remote_cuda_driver *cuda, const struct remote_copy *copy,
                         CUresult *result) {
    const CUDA_MEMCPY3D_PEER *s = &copy->shape;
    bool small = s->WidthInBytes <= SMALL && s->Height <= SMALL && s->Depth <= SMALL &&
                 s->WidthInBytes * s->Height * s->Depth <= SMALL;

    for (unsigned looks = small ? LOOKS : 1; looks > 0; looks--) {
        CUresult now = cuda->cuEventQuery(copy->event.event);
        if (now != CUDA_ERROR_NOT_READY) {
            *result = now;
            return true;
        }
    }
    return false;
}

static enum remote_outcome when_done(struct remote_decoder *decoder, struct remote_copy *copy,
                                     bool pinned) {
    copy->event = remote_event_take(decoder->worker, decoder->head.context);
    CUresult result = copy->event.event ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;

    copy->issued = pinned;
    if (result == CUDA_SUCCESS && pinned) {
        result = remote_copy_issue(decoder->cuda, copy);
        if (result == CUDA_SUCCESS) {
            result = decoder->cuda->cuEventRecord(copy->event.event, copy->stream);
        }
    }
    if (result == CUDA_SUCCESS && pinned && is_soon_done(decoder->cuda, copy, &result)) {
        remote_event_give(decoder->worker, &copy->event);
        say(decoder->worker, &decoder->head, copy, (int32_t)result);
        return REMOTE_LATER;
    }
    if (result == CUDA_SUCCESS && !remote_worker_later(decoder, finish, copy, sizeof *copy)) {
        result = CUDA_ERROR_OUT_OF_MEMORY;
    }
    if (result == CUDA_SUCCESS) {
        return REMOTE_LATER;
    }
    remote_event_give(decoder->worker, &copy->event);
    return answer(decoder, result);
}

/* The error of a copy that was not given to the driver comes late, as that of any posted call. */
static enum remote_outcome land(struct remote_decoder *decoder, struct remote_copy *copy,
                                CUresult result) {
    if (result == CUDA_SUCCESS) {
        copy->event = remote_event_take(decoder->worker, decoder->head.context);
        result =
            copy->event.event ? remote_copy_issue(decoder->cuda, copy) : CUDA_ERROR_OUT_OF_MEMORY;
    }
    if (result == CUDA_SUCCESS) {
        result = decoder->cuda->cuEventRecord(copy->event.event, copy->stream);
    }
    if (!remote_landing_add(decoder->worker, copy, result)) {
        return REMOTE_GARBLED;
    }
    return answer(decoder, result);
}

/* A chunk stays in use until its copy is done, or is free at once if there is none. After a failed call for which the
 * client waits, it knows itself. */
static enum remote_outcome when_given(struct remote_decoder *decoder, struct remote_copy *copy,
                                      CUresult result) {
    if (result == CUDA_SUCCESS) {
        result = remote_copy_issue(decoder->cuda, copy);
    }
    if (copy->block < REMOTE_MOST_BLOCKS) {
        if (result == CUDA_SUCCESS) {
            remote_chunk_busy(decoder->worker, copy->block, copy->bytes, copy->stream,
                              decoder->head.context);
        } else if (decoder->head.posted) {
            remote_chunk_unused(copy->block);
        }
    }
    return answer(decoder, result);
}

/* What both sides of the wire keep to, so that anything else ends the link. */
static bool is_sound(const struct remote_decoder *decoder, const struct remote_end *to,
                     const struct remote_end *from) {
    uint64_t manner = decoder->words[REMOTE_COPY_MANNER];
    bool into_area = to->place == REMOTE_PLACE_AREA;

    bool lands = manner & REMOTE_COPY_LANDS;

    if (manner & ~(uint64_t)(REMOTE_COPY_DONE | REMOTE_COPY_BYTES | REMOTE_COPY_BLOCKS |
                             REMOTE_COPY_LANDS) ||
        (manner & REMOTE_COPY_DONE && decoder->head.posted)) {
        return false;
    }
    if (lands && (manner != (REMOTE_COPY_BYTES | REMOTE_COPY_LANDS) || !decoder->head.posted)) {
        return false;
    }
    if ((into_area && !lands && !(manner & REMOTE_COPY_DONE)) ||
        (manner & REMOTE_COPY_BYTES && !into_area)) {
        return false;
    }
    /* The client itself copies between memory of its own. */
    return !remote_end_is_host(to) || !remote_end_is_host(from) ||
           (to->place == REMOTE_PLACE_NONE && from->place == REMOTE_PLACE_NONE);
}

static enum remote_outcome give(struct remote_decoder *decoder, struct remote_copy *copy,
                                const struct remote_end *area) {
    CUresult result =
        copy->manner & REMOTE_COPY_BLOCKS ? remote_copy_may_block(decoder) : CUDA_SUCCESS;
    bool pinned = true;

    if (area) {
        pinned = remote_area_pin(decoder->cuda);
    }
    if (area && result == CUDA_SUCCESS) {
        result = may_use_area(decoder->cuda, copy->stream);
    }
    if (copy->manner & REMOTE_COPY_LANDS) {
        return land(decoder, copy, result);
    }
    if (result == CUDA_SUCCESS && copy->manner & REMOTE_COPY_DONE) {
        return when_done(decoder, copy, pinned);
    }
    return when_given(decoder, copy, result);
}

/* The client hears that no bytes come of a copy whose stream another of its threads has ended. */
static enum remote_outcome not_given(struct remote_decoder *decoder,
                                     const struct remote_copy *copy) {
    bool lands = !decoder->garbled && copy->manner & REMOTE_COPY_LANDS;

    return lands && !remote_landing_add(decoder->worker, copy, CUDA_ERROR_INVALID_HANDLE)
               ? REMOTE_GARBLED
               : remote_not_called(decoder);
}

enum remote_outcome remote_copy_give(struct remote_decoder *decoder, struct remote_copy *copy,
                                     const struct remote_end *to, uint64_t to_extent,
                                     const struct remote_end *from, uint64_t from_extent) {
    const struct remote_end *host = remote_end_is_host(to) ? to : from;
    uint64_t extent = host == to ? to_extent : from_extent;
    bool in_area = host->place == REMOTE_PLACE_AREA;

    decoder->garbled |= !is_sound(decoder, to, from) || (in_area && extent > host->room);
    copy->call = decoder->head.call;
    copy->manner = (uint16_t)decoder->words[REMOTE_COPY_MANNER];
    copy->block = in_area ? (uint32_t)(host->offset / REMOTE_BLOCK_BYTES) : REMOTE_MOST_BLOCKS;
    copy->bytes = in_area ? (uint32_t)extent : 0;
    if (!remote_taken(decoder, true)) {
        return not_given(decoder, copy);
    }
    if (host->place == REMOTE_PLACE_REGION && extent > host->room) {
        return answer(decoder, CUDA_ERROR_INVALID_VALUE);
    }
    return give(decoder, copy, in_area ? host : NULL);
}
