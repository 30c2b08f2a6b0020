/* What of a worker's session the calls by hand stand on, with nothing that waits: work for later is done at once, and its
 * answer is the last one. */
#include "remote/test/loopback.h"
#include "remote/worker/session.h"

#include "test/check.h"

#include <string.h>

int32_t loopback_late;
struct remote_answer loopback_notice;

bool remote_worker_later(struct remote_decoder *decoder, remote_work *work, const void *argument,
                         size_t size) {
    _Alignas(16) unsigned char copy[REMOTE_LATER_BYTES];
    struct remote_head head = decoder->head;

    CHECK(size <= sizeof copy);
    memcpy(copy, argument, size);
    loopback_said = false;
    work(decoder->worker, &head, copy);
    CHECK(loopback_said || head.posted);
    return true;
}

void remote_worker_say(struct remote_worker *worker, const struct remote_head *record,
                       int32_t result, uint32_t given, const struct remote_piece *pieces,
                       size_t count) {
    struct remote_answer answer = {
        .call = record->call, .sequence = record->sequence, .result = result, .given = given};
    size_t used = sizeof answer;

    (void)worker;
    for (size_t i = 0; i < count; i++) {
        CHECK(remote_padded(pieces[i].size) <= REMOTE_RECORD_BYTES - used);
        memset(loopback.answer + used, 0, remote_padded(pieces[i].size));
        if (pieces[i].size) {
            memcpy(loopback.answer + used, pieces[i].at, pieces[i].size);
        }
        used += remote_padded(pieces[i].size);
    }
    answer.size = (uint32_t)used;
    memcpy(loopback.answer, &answer, sizeof answer);
    loopback_said = true;
}

void remote_worker_notify(struct remote_worker *worker, uint16_t call,
                          const struct remote_piece *pieces, size_t count) {
    (void)worker;
    (void)pieces;
    (void)count;
    loopback_notice.call = call;
}

void remote_worker_late(struct remote_worker *worker, const struct remote_head *record,
                        int32_t result) {
    (void)worker;
    (void)record;
    if (!loopback_late) {
        loopback_late = result;
    }
}

uint64_t remote_worker_thread_stream(struct remote_worker *worker, uint32_t thread,
                                     uint64_t context) {
    (void)worker;
    (void)thread;
    (void)context;
    return 2;
}

struct remote_link *remote_worker_link(struct remote_worker *worker) {
    (void)worker;
    return NULL;
}

const struct remote_cuda_driver *remote_worker_cuda(struct remote_worker *worker) {
    (void)worker;
    return loopback.cuda;
}

const struct remote_nvml_driver *remote_worker_nvml(struct remote_worker *worker) {
    (void)worker;
    return loopback.nvml;
}
