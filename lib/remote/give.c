#include "remote/take.h"

#include <string.h>

#define UNTOUCHED REMOTE_UNTOUCHED

static bool is_untouched(const unsigned char *at, size_t size) {
    for (size_t i = 0; i < size; i++) {
        if (at[i] != REMOTE_UNTOUCHED_BYTE) {
            return false;
        }
    }
    return true;
}

void remote_answer(struct remote_decoder *decoder, int32_t result) {
    memset(decoder->answer, 0, sizeof(struct remote_answer));
    decoder->used = sizeof(struct remote_answer);
    decoder->result = result;
}

/* Puts bytes into the answer. Their sum is bounded by the scratch memory that the driver wrote them to. */
static void put(struct remote_decoder *decoder, const void *from, size_t size) {
    size_t padded = remote_padded(size);

    if (padded > REMOTE_RECORD_BYTES - decoder->used) {
        decoder->garbled = true;
        return;
    }
    if (size) {
        memset(decoder->answer + decoder->used + padded - 8, 0, 8);
        memcpy(decoder->answer + decoder->used, from, size);
        decoder->used += padded;
    }
}

static bool is_due(struct remote_decoder *decoder, unsigned parameter, bool always) {
    struct remote_answer *answer = (struct remote_answer *)(void *)decoder->answer;

    if (!remote_is_given(decoder, parameter) || !(always || decoder->result == 0)) {
        return false;
    }
    answer->given |= 1u << parameter;
    return true;
}

void remote_give(struct remote_decoder *decoder, unsigned parameter, const void *from, size_t size,
                 bool always) {
    if (!(always && from && is_untouched(from, size)) && is_due(decoder, parameter, always)) {
        put(decoder, from, size);
    }
}

void remote_give_some(struct remote_decoder *decoder, unsigned parameter, const void *from,
                      uint64_t count, size_t size, bool always) {
    uint64_t bytes = from && is_untouched(from, count * size) ? 0 : count * size;

    if (is_due(decoder, parameter, always)) {
        put(decoder, &bytes, sizeof bytes);
        put(decoder, from, bytes);
    }
}

void remote_give_text(struct remote_decoder *decoder, unsigned parameter, const char *from,
                      uint64_t room_there, bool always) {
    if (from && !(always && is_untouched((const unsigned char *)from, room_there ? 1 : 0))) {
        size_t length = strnlen(from, room_there);

        remote_give_some(decoder, parameter, from, length < room_there ? length + 1 : length, 1,
                         always);
    }
}

void remote_give_handles(struct remote_decoder *decoder, unsigned parameter, enum remote_kind kind,
                         void *from, uint64_t count, bool always) {
    uint64_t *handles = from;

    if (!handles || !(always || decoder->result == 0)) {
        return;
    }
    while (count && handles[count - 1] == UNTOUCHED) {
        count--;
    }
    for (uint64_t i = 0; i < count; i++) {
        remote_out_field(decoder, handles, 8 * i, kind);
    }
    remote_give_some(decoder, parameter, handles, count, sizeof *handles, always);
}

void remote_give_handle(struct remote_decoder *decoder, unsigned parameter, enum remote_kind kind,
                        uint64_t handle, bool always) {
    if (remote_is_given(decoder, parameter) && (always || decoder->result == 0) &&
        !(always && handle == UNTOUCHED)) {
        remote_out_field(decoder, &handle, 0, kind);
        remote_give(decoder, parameter, &handle, sizeof handle, always);
    }
}

void remote_give_count(struct remote_decoder *decoder, unsigned parameter, uint64_t count,
                       bool always) {
    remote_give(decoder, parameter, &count, sizeof count, always);
}

void remote_out_field(struct remote_decoder *decoder, void *structure, size_t at,
                      enum remote_kind kind) {
    uint64_t handle;

    memcpy(&handle, (unsigned char *)structure + at, sizeof handle);
    if (handle == UNTOUCHED) {
        handle = 0;
    } else if (!is_untouched((unsigned char *)structure + at, sizeof handle) &&
               handle > remote_kinds[kind].fixed) {
        handle = remote_worker_number(decoder->worker, kind, handle);
    }
    memcpy((unsigned char *)structure + at, &handle, sizeof handle);
}

void remote_give_made(struct remote_decoder *decoder, unsigned parameter, unsigned word,
                      enum remote_kind kind, uint64_t handle) {
    if (remote_is_given(decoder, parameter) && decoder->result == 0 &&
        !remote_worker_bind(decoder->worker, kind, decoder->words[word], handle)) {
        decoder->garbled = true;
    }
}

void remote_give_ended(struct remote_decoder *decoder, unsigned word, enum remote_kind kind) {
    if (decoder->result == 0 && decoder->words[word] > remote_kinds[kind].fixed) {
        remote_worker_unbind(decoder->worker, kind, decoder->words[word]);
    }
}

enum remote_outcome remote_finish(struct remote_decoder *decoder) {
    struct remote_answer *answer = (struct remote_answer *)(void *)decoder->answer;

    if (decoder->garbled) {
        return REMOTE_GARBLED;
    }
    answer->size = (uint32_t)decoder->used;
    answer->call = decoder->head.call;
    answer->sequence = decoder->head.sequence;
    answer->result = decoder->result;
    return REMOTE_ANSWERED;
}
