/* The one thread that takes records and calls the driver, in the order of the records, unless the call may block. */
#define _GNU_SOURCE
#include "remote/worker/copies.h"
#include "remote/worker/state.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

struct remote_worker *remote_worker_new(struct remote_link *link,
                                        const struct remote_cuda_driver *cuda,
                                        const struct remote_nvml_driver *nvml) {
    struct remote_worker *worker = calloc(1, sizeof *worker);

    if (!worker) {
        return NULL;
    }
    worker->link = link;
    worker->cuda = *cuda;
    worker->nvml = *nvml;
    worker->decoder.worker = worker;
    worker->decoder.cuda = &worker->cuda;
    worker->decoder.nvml = &worker->nvml;
    worker->table = remote_table_new();
    worker->answers = remote_answers_new();
    worker->waits = remote_waits_new();
    worker->streams = remote_streams_new();
    if (!remote_decoder_room(&worker->decoder) || !worker->table || !worker->answers ||
        !worker->waits || !worker->streams) {
        remote_worker_free(worker);
        return NULL;
    }
    return worker;
}

void remote_worker_free(struct remote_worker *worker) {
    remote_waits_free(worker->waits);
    remote_streams_free(worker->streams);
    remote_answers_free(worker->answers);
    remote_table_free(worker->table);
    if (worker->decoder.record) {
        munmap(worker->decoder.record, 3 * (size_t)REMOTE_RECORD_BYTES);
    }
    free(worker);
}

/* A call may have changed what is current to this thread, or ended streams that stand for those of threads. */
static void settle(struct remote_worker *worker, bool succeeded) {
    struct remote_decoder *decoder = &worker->decoder;
    CUcontext made;

    switch (decoder->head.call) {
    case REMOTE_cuCtxCreate:
    case REMOTE_cuCtxCreate_v2:
    case REMOTE_cuCtxCreate_v3:
    case REMOTE_cuCtxCreate_v4:
        /* The driver has pushed it. The client says itself to which of its threads it is current. */
        if (succeeded && worker->cuda.cuCtxPopCurrent_v2) {
            worker->cuda.cuCtxPopCurrent_v2(&made);
        }
        worker->current.known = false;
        break;
    case REMOTE_cuCtxDestroy:
    case REMOTE_cuCtxDestroy_v2:
    case REMOTE_cuCtxDetach:
        worker->current.known = false;
        break;
    case REMOTE_cuDevicePrimaryCtxRelease:
    case REMOTE_cuDevicePrimaryCtxRelease_v2:
    case REMOTE_cuDevicePrimaryCtxReset:
    case REMOTE_cuDevicePrimaryCtxReset_v2:
        worker->current.known = false;
        if (succeeded) {
            remote_streams_forget_device(worker, (CUdevice)decoder->words[0]);
            if (remote_events_forget_device(worker, (CUdevice)decoder->words[0])) {
                remote_chunks_forget_device((CUdevice)decoder->words[0]);
                remote_landings_forget_device((CUdevice)decoder->words[0]);
            }
        }
        break;
    default:
        break;
    }
}

/* What ends a stream, or begins a capture, would leave copies behind without an event. */
static void mark_copies(struct remote_worker *worker, const struct remote_head *head) {
    uint64_t number, handle;

    switch (head->call) {
    case REMOTE_cuStreamDestroy:
    case REMOTE_cuStreamDestroy_v2:
        if (head->size >= sizeof *head + sizeof number) {
            memcpy(&number, worker->decoder.record + sizeof *head, sizeof number);
            if (remote_worker_resolve(worker, REMOTE_KIND_CUstream, number, &handle)) {
                remote_chunks_stream_ends(worker, (CUstream)handle);
            }
        }
        break;
    case REMOTE_cuStreamBeginCapture:
    case REMOTE_cuStreamBeginCapture_ptsz:
    case REMOTE_cuStreamBeginCapture_v2:
    case REMOTE_cuStreamBeginCapture_v2_ptsz:
    case REMOTE_cuStreamBeginCaptureToGraph:
    case REMOTE_cuStreamBeginCaptureToGraph_ptsz:
        remote_chunks_record(worker);
        break;
    default:
        break;
    }
}

/* The form with a stream of a fill that names none, and that stream; 0 for any other call. */
static uint16_t with_stream(uint16_t call, uint64_t *stream) {
    static const struct {
        uint16_t call, own, streamed;
    } fills[] = {
#define FILL(name) {REMOTE_##name##_v2, REMOTE_##name##_v2_ptds, REMOTE_##name##Async}
        FILL(cuMemsetD8),   FILL(cuMemsetD16),   FILL(cuMemsetD32),
        FILL(cuMemsetD2D8), FILL(cuMemsetD2D16), FILL(cuMemsetD2D32),
#undef FILL
    };

    for (size_t i = 0; i < sizeof fills / sizeof *fills; i++) {
        if (fills[i].call == call || fills[i].own == call) {
            *stream = fills[i].own == call ? (uint64_t)(uintptr_t)CU_STREAM_PER_THREAD : 0;
            return fills[i].streamed;
        }
    }
    return 0;
}

/* A driver may wait in a fill until its stream has come to it, and so for a record of another thread. Who posts one does not
 * wait for it. While a stream is captured the two forms differ: then the program's own is called. */
static size_t unblock(unsigned char *record, size_t size) {
    struct remote_head head;
    uint64_t stream;

    memcpy(&head, record, sizeof head);
    uint16_t instead = with_stream(head.call, &stream);
    if (!instead || !head.posted || head.size != size ||
        size > REMOTE_RECORD_BYTES - sizeof stream || remote_capture_active()) {
        return size;
    }
    head.call = instead;
    head.size += (uint32_t)sizeof stream;
    memcpy(record, &head, sizeof head);
    memcpy(record + size, &stream, sizeof stream);
    return head.size;
}

static enum remote_outcome answer_instead(struct remote_decoder *decoder, size_t size,
                                          int32_t result) {
    if (!remote_take(decoder, decoder->record, size)) {
        return REMOTE_GARBLED;
    }
    decoder->head.given = 0;
    remote_answer(decoder, result);
    return remote_finish(decoder);
}

static enum remote_outcome execute(struct remote_worker *worker, size_t size) {
    struct remote_decoder *decoder = &worker->decoder;
    struct remote_head head;

    if (size < sizeof head) {
        return REMOTE_GARBLED;
    }
    memcpy(&head, decoder->record, sizeof head);
    remote_worker_enter(worker, &worker->current, head.context);
    int32_t instead = remote_capture_before(worker, decoder->record, size);
    if (instead) {
        return answer_instead(decoder, size, instead);
    }
    mark_copies(worker, &head);
    enum remote_outcome outcome = REMOTE_GARBLED;
    if (!head.posted && remote_blocks(head.call) && remote_worker_aside(worker, size, &outcome)) {
        return outcome;
    }
    size = unblock(decoder->record, size);
    memcpy(&head, decoder->record, sizeof head);
    bool follows = remote_follows_thread(head.call);
    if (follows) {
        remote_streams_join(worker, &head);
    }
    outcome = remote_decode_record(decoder, size);
    if (follows) {
        remote_streams_part(worker, &head);
    }
    if (outcome != REMOTE_GARBLED) {
        remote_capture_after(decoder);
        settle(worker, outcome == REMOTE_ANSWERED && decoder->result == 0);
    }
    return outcome;
}

void remote_worker_run(struct remote_worker *worker, char why[REMOTE_WHY_BYTES]) {
    struct remote_decoder *decoder = &worker->decoder;
    size_t size;

    why[0] = 0;
    for (;;) {
        enum remote_taken taken = remote_frame_next(worker, decoder->record, &size);

        if (taken == REMOTE_ENDED) {
            break;
        }
        if (taken == REMOTE_NOTHING_YET) {
            continue;
        }
        enum remote_outcome outcome = execute(worker, size);
        if (outcome == REMOTE_ANSWERED) {
            remote_worker_answer(decoder);
        } else if (outcome != REMOTE_LATER) {
            snprintf(why, REMOTE_WHY_BYTES,
                     "the client's record %llu, call %u, is none that this version sends",
                     (unsigned long long)decoder->head.sequence, decoder->head.call);
            break;
        }
    }
    remote_callbacks_end();
}
