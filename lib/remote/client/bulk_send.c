/* Bytes beside the stream, in records of their own. */
#include "remote/client/copies.h"

uint64_t remote_send_bulk(const void *bytes, size_t size) {
    static uint64_t last;
    uint64_t number = __atomic_add_fetch(&last, 1, __ATOMIC_RELAXED);
    struct remote_call call;
    size_t at = 0;

    do {
        size_t count = size - at < REMOTE_BULK_BYTES ? size - at : REMOTE_BULK_BYTES;

        remote_begin(&call, (enum remote_number)REMOTE_BULK, REMOTE_BULK_WORDS);
        call.words[0] = number;
        call.words[1] = size;
        call.words[2] = at;
        if (remote_post_piece(&call, (const unsigned char *)bytes + at, count) != CUDA_SUCCESS) {
            return 0;
        }
        at += count;
    } while (at < size);
    return number;
}
