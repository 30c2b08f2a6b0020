/* Decoders: of the executor, and of threads that execute a record in its place. */
#define _GNU_SOURCE
#include "remote/worker/state.h"

#include <sys/mman.h>

/* Records, answers and scratch memory; pages that nobody writes cost nothing. */
bool remote_decoder_room(struct remote_decoder *decoder) {
    unsigned char *room = mmap(NULL, 3 * (size_t)REMOTE_RECORD_BYTES, PROT_READ | PROT_WRITE,
                               MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    if (room == MAP_FAILED) {
        return false;
    }
    decoder->record = room;
    decoder->answer = room + REMOTE_RECORD_BYTES;
    decoder->scratch = room + 2 * (size_t)REMOTE_RECORD_BYTES;
    return true;
}

/* A call that has no decoder, here or of its subject. */
static enum remote_outcome refuse(struct remote_decoder *decoder) {
    uint16_t call = decoder->head.call;

    if (call >= REMOTE_SNAPSHOT) {
        return REMOTE_GARBLED;
    }
    decoder->head.given = 0;
    remote_answer(decoder, call >= REMOTE_NVML ? (int32_t)NVML_ERROR_NOT_SUPPORTED
                                               : (int32_t)CUDA_ERROR_NOT_SUPPORTED);
    return remote_finish(decoder);
}

enum remote_outcome remote_decode_record(struct remote_decoder *decoder, size_t size) {
    enum remote_outcome outcome = remote_decode(decoder, decoder->record, size);

    if (outcome == REMOTE_BY_HAND) {
        remote_decode_one *one = remote_hand_decoder(decoder->head.call);

        outcome = one ? one(decoder) : refuse(decoder);
    }
    return outcome;
}
