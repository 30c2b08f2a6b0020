#include "remote/take.h"

#include "remote/code.h"
#include "remote/image.h"

#include <string.h>

#define UNTOUCHED REMOTE_UNTOUCHED
#define ALIGNMENT 128u
#define PER_THREAD 2u
#define OUT_OF_MEMORY 2
#define NVML_MEMORY 20

bool remote_take(struct remote_decoder *decoder, const void *record, size_t available) {
    uint32_t size = 0;

    if (available < sizeof decoder->head) {
        return false;
    }
    /* The client can change the record at any time: its size is read once, and the rest from the copy. */
    memcpy(&size, record, sizeof size);
    if (size < sizeof decoder->head || size > REMOTE_RECORD_BYTES || size > available || size % 8) {
        return false;
    }
    if (record != decoder->record) {
        memcpy(decoder->record, record, size);
    }
    memcpy(&decoder->head, decoder->record, sizeof decoder->head);
    decoder->head.size = size;
    decoder->at = sizeof decoder->head;
    decoder->used = decoder->filled = 0;
    decoder->result = 0;
    decoder->garbled = decoder->refused = false;
    decoder->image = NULL;
    return decoder->head.posted <= 1;
}

/* An answer of the worker's own, in place of a call. The first reason counts. */
static void refuse(struct remote_decoder *decoder, int32_t result) {
    if (!decoder->refused) {
        decoder->refused = true;
        decoder->result = result;
    }
}

static void *garble(struct remote_decoder *decoder) {
    decoder->garbled = true;
    return NULL;
}

bool remote_words(struct remote_decoder *decoder, uint32_t words) {
    if (8u * (size_t)words > decoder->head.size - decoder->at) {
        return false;
    }
    decoder->words = (const uint64_t *)(const void *)(decoder->record + decoder->at);
    decoder->at += 8u * words;
    return true;
}

float remote_float(uint64_t word) {
    union {
        uint32_t bits;
        float value;
    } both = {.bits = (uint32_t)word};

    return both.value;
}

uint64_t remote_length_less(uint64_t length, uint64_t less) {
    return length > less ? length - less : 0;
}

/* Whether a stream is that of the client's thread. A call that ends it gets the number itself, which the driver refuses. */
static bool is_of_thread(const struct remote_decoder *decoder, enum remote_kind kind,
                         uint64_t number) {
    return kind == REMOTE_KIND_CUstream && decoder->head.call != REMOTE_cuStreamDestroy &&
           decoder->head.call != REMOTE_cuStreamDestroy_v2 &&
           (number == PER_THREAD || (number == 0 && remote_is_per_thread(decoder->head.call)));
}

static uint64_t thread_stream(struct remote_decoder *decoder) {
    struct remote_worker *worker = decoder->worker;
    const struct remote_head *head = &decoder->head;
    uint64_t context, stream = remote_worker_thread_stream(worker, head->thread, head->context);

    if (!stream) {
        refuse(decoder,
               remote_worker_resolve(worker, REMOTE_KIND_CUcontext, head->context, &context)
                   ? remote_worker_no_stream(worker)
                   : remote_kinds[REMOTE_KIND_CUcontext].unknown);
    }
    return stream;
}

static uint64_t resolve(struct remote_decoder *decoder, enum remote_kind kind, uint64_t number) {
    const struct remote_kind_facts *facts = &remote_kinds[kind];
    uint64_t handle = 0;

    if (is_of_thread(decoder, kind, number)) {
        return thread_stream(decoder);
    }
    if (number <= facts->fixed) {
        return number;
    }
    if (!remote_worker_resolve(decoder->worker, kind, number, &handle) &&
        !(facts->also && remote_worker_resolve(decoder->worker, facts->also, number, &handle))) {
        refuse(decoder, facts->unknown);
        return 0;
    }
    return handle;
}

uint64_t remote_handle(struct remote_decoder *decoder, unsigned word, enum remote_kind kind) {
    return resolve(decoder, kind, decoder->words[word]);
}

/* The next so many bytes of the record. */
static unsigned char *piece(struct remote_decoder *decoder, uint64_t count, size_t size) {
    size_t left = decoder->head.size - decoder->at;

    /* What is left is a multiple of 8, so that a piece with its zeros fits if the piece does. */
    if (count > left / size) {
        return garble(decoder);
    }
    unsigned char *at = decoder->record + decoder->at;
    decoder->at += remote_padded(count * size);
    return at;
}

void *remote_in(struct remote_decoder *decoder, unsigned parameter, uint64_t count, size_t size) {
    if (!remote_is_given(decoder, parameter) || decoder->garbled) {
        return NULL;
    }
    return piece(decoder, count, size);
}

void *remote_in_handles(struct remote_decoder *decoder, unsigned parameter, enum remote_kind kind,
                        uint64_t count) {
    uint64_t *handles = remote_in(decoder, parameter, count, sizeof *handles);

    for (uint64_t i = 0; handles && i < count; i++) {
        handles[i] = resolve(decoder, kind, handles[i]);
    }
    return handles;
}

const char *remote_in_text(struct remote_decoder *decoder, unsigned parameter, unsigned word) {
    uint64_t size = decoder->words[word];
    const char *text = remote_in(decoder, parameter, size, 1);

    if (text && (size == 0 || memchr(text, 0, size) != text + size - 1)) {
        return garble(decoder);
    }
    return text;
}

const void *remote_in_image(struct remote_decoder *decoder, unsigned parameter, unsigned word) {
    if (!remote_is_given(decoder, parameter) || decoder->garbled) {
        return NULL;
    }
    uint64_t number = decoder->words[word], size = decoder->words[word + 1];
    const void *image;

    if (number & REMOTE_KEPT_CODE) {
        image = remote_worker_code(decoder->worker, number, size);
        if (!image) {
            refuse(decoder, 2); /* out of memory, in which it was kept */
        }
        decoder->image = image;
        return image;
    }
    image = remote_worker_bulk(decoder->worker, number, size);
    /* The driver reads as much as the code says of itself. */
    if (!image || !remote_image_size_within(image, size)) {
        return garble(decoder);
    }
    remote_worker_code_keep(decoder->worker, image, size);
    decoder->image = image;
    return image;
}

/* Room in the scratch memory, at least a byte. */
static unsigned char *room(struct remote_decoder *decoder, uint64_t count, size_t size) {
    size_t left = REMOTE_RECORD_BYTES - decoder->filled;

    if (count > REMOTE_ARRAY_BYTES / size || count * size + ALIGNMENT > left) {
        return garble(decoder);
    }
    unsigned char *at = decoder->scratch + decoder->filled;
    decoder->filled += (count * size + ALIGNMENT) & ~(size_t)(ALIGNMENT - 1);
    return at;
}

void *remote_in_out(struct remote_decoder *decoder, unsigned parameter, uint64_t count,
                    size_t size) {
    const void *from = remote_in(decoder, parameter, count, size);
    void *copy = from ? room(decoder, count, size) : NULL;

    if (copy) {
        memcpy(copy, from, count * size);
    }
    return copy;
}

void *remote_in_versioned(struct remote_decoder *decoder, unsigned parameter, unsigned word,
                          size_t most) {
    uint64_t size = decoder->words[word];
    uint32_t version = 0;

    if (!remote_is_given(decoder, parameter) || decoder->garbled) {
        return NULL;
    }
    if (size < sizeof version || size > most) {
        return garble(decoder);
    }
    const void *from = piece(decoder, size, 1);
    unsigned char *copy = from ? room(decoder, most, 1) : NULL;
    if (!copy) {
        return NULL;
    }
    memset(copy, 0, most);
    memcpy(copy, from, size);
    memcpy(&version, copy, sizeof version);
    return (version & 0xffffffu) == size ? copy : garble(decoder);
}

void remote_in_field(struct remote_decoder *decoder, void *structure, size_t at,
                     enum remote_kind kind) {
    uint64_t number;

    memcpy(&number, (unsigned char *)structure + at, sizeof number);
    number = resolve(decoder, kind, number);
    memcpy((unsigned char *)structure + at, &number, sizeof number);
}

void remote_in_nothing(void *structure, size_t at) {
    memset((unsigned char *)structure + at, 0, sizeof(uint64_t));
}

bool remote_field_is(const void *structure, size_t at, uint32_t value) {
    uint32_t field;

    memcpy(&field, (const unsigned char *)structure + at, sizeof field);
    return field == value;
}

void *remote_out(struct remote_decoder *decoder, unsigned parameter, uint64_t count, size_t size) {
    if (!remote_is_given(decoder, parameter) || decoder->garbled) {
        return NULL;
    }
    void *at = room(decoder, count, size);
    if (at) {
        memset(at, 0, count * size);
    }
    return at;
}

void *remote_out_maybe(struct remote_decoder *decoder, unsigned parameter, uint64_t count,
                       size_t size) {
    void *at = remote_out(decoder, parameter, count, size);

    if (at) {
        memset(at, REMOTE_UNTOUCHED_BYTE, count * size);
    }
    return at;
}

void *remote_out_handles(struct remote_decoder *decoder, unsigned parameter, uint64_t count) {
    uint64_t *handles = remote_out(decoder, parameter, count, sizeof *handles);

    for (uint64_t i = 0; handles && i < count; i++) {
        handles[i] = UNTOUCHED;
    }
    return handles;
}

void remote_make_number(struct remote_decoder *decoder, unsigned parameter, unsigned word,
                        enum remote_kind kind) {
    if (!remote_is_given(decoder, parameter)) {
        return;
    }
    switch (remote_worker_room(decoder->worker, kind, decoder->words[word])) {
    case REMOTE_NO_NUMBER:
        decoder->garbled = true;
        break;
    case REMOTE_FULL:
        refuse(decoder, decoder->head.call < REMOTE_NVML ? OUT_OF_MEMORY : NVML_MEMORY);
        break;
    default:
        break;
    }
}

bool remote_taken(struct remote_decoder *decoder, bool has_function) {
    if (decoder->at != decoder->head.size) {
        decoder->garbled = true;
    }
    if (!has_function) {
        refuse(decoder, decoder->head.call < REMOTE_NVML ? 801 : 13);
    }
    if (decoder->garbled || decoder->refused) {
        return false;
    }
    if (decoder->judged) {
        decoder->judged(decoder);
    }
    return true;
}

enum remote_outcome remote_not_called(struct remote_decoder *decoder) {
    if (decoder->garbled) {
        return REMOTE_GARBLED;
    }
    /* Nothing was written, so the answer has nothing, whatever it has otherwise when a call fails. */
    decoder->head.given = 0;
    remote_answer(decoder, decoder->result);
    return remote_finish(decoder);
}
