/* How the generated decoders read a record and write its answer. A record is copied before anything of it is believed;
 * every length is held against what there is left, by division, so that nothing wraps. */
#ifndef DIVVY_REMOTE_TAKE_H
#define DIVVY_REMOTE_TAKE_H

#include "remote/worker.h"

struct remote_cuda_driver;
struct remote_nvml_driver;

enum remote_outcome {
    REMOTE_ANSWERED, /* the answer is in `answer` */
    REMOTE_LATER,    /* the worker answers when it knows */
    REMOTE_GARBLED,  /* no record of our client's: the link ends */
    REMOTE_BY_HAND,  /* well formed as far as its head, and of a call that is decoded by hand */
};

/* A handle that no driver has: where it still stands, nothing was written. */
#define REMOTE_UNTOUCHED UINT64_C(0xfffffffffffffff0)
/* Of memory that the driver may leave untouched, every byte before the call. */
#define REMOTE_UNTOUCHED_BYTE 0xa7

/* The function of a worker answers so when its answer comes later. */
#define REMOTE_ANSWERS_LATER (-1)

struct remote_decoder {
    struct remote_worker *worker;
    const struct remote_cuda_driver *cuda;
    const struct remote_nvml_driver *nvml;
    unsigned char
        *record; /* of REMOTE_RECORD_BYTES, ours alone, aligned to 128 bytes, as the others */
    unsigned char *answer;
    unsigned char *scratch; /* what the driver writes to */
    struct remote_head head;
    const uint64_t *words;
    size_t at;      /* of the next piece in the record */
    size_t used;    /* of the answer */
    size_t filled;  /* of the scratch memory */
    int32_t result; /* of the call, or why it was not made */
    bool garbled;
    bool refused;
    const void *image; /* code that the record names */
    /* Called when the record has been read and judged, before the driver is called. NULL: nobody wants to know. */
    void (*judged)(struct remote_decoder *decoder);
};

typedef enum remote_outcome remote_decode_one(struct remote_decoder *decoder);

/* Copies a record, of which no more than `available` bytes are there, unless the decoder has it. False if it cannot be one. */
bool remote_take(struct remote_decoder *decoder, const void *record, size_t available);

/* Finds the words, of which the call has so many. */
bool remote_words(struct remote_decoder *decoder, uint32_t words);
static inline bool remote_is_given(const struct remote_decoder *decoder, unsigned parameter) {
    return decoder->head.given >> parameter & 1;
}
float remote_float(uint64_t word);
uint64_t remote_length_less(uint64_t length, uint64_t less);

/* The driver's handle that a word numbers. */
uint64_t remote_handle(struct remote_decoder *decoder, unsigned word, enum remote_kind kind);
/* Pieces of the record, in their order. NULL where the parameter is NULL; never NULL otherwise. */
void *remote_in(struct remote_decoder *decoder, unsigned parameter, uint64_t count, size_t size);
void *remote_in_handles(struct remote_decoder *decoder, unsigned parameter, enum remote_kind kind,
                        uint64_t count);
const char *remote_in_text(struct remote_decoder *decoder, unsigned parameter, unsigned word);
const void *remote_in_image(struct remote_decoder *decoder, unsigned parameter, unsigned word);
/* A piece that the driver may write: a copy with room for `most` bytes, which says its own size as the word does. */
void *remote_in_versioned(struct remote_decoder *decoder, unsigned parameter, unsigned word,
                          size_t most);
/* A piece that the driver may write: a copy. */
void *remote_in_out(struct remote_decoder *decoder, unsigned parameter, uint64_t count,
                    size_t size);
/* Translates a handle in a structure that the driver reads; an address becomes NULL. */
void remote_in_field(struct remote_decoder *decoder, void *structure, size_t at,
                     enum remote_kind kind);
void remote_in_nothing(void *structure, size_t at);
/* Whether the 32-bit word at an offset has a value. */
bool remote_field_is(const void *structure, size_t at, uint32_t value);

/* Memory that the driver writes. NULL where the parameter is NULL. */
void *remote_out(struct remote_decoder *decoder, unsigned parameter, uint64_t count, size_t size);
/* The same where the driver may write nothing though the call succeeds, or something though it fails. */
void *remote_out_maybe(struct remote_decoder *decoder, unsigned parameter, uint64_t count,
                       size_t size);
/* The same for handles: what the driver leaves untouched is known afterwards. */
void *remote_out_handles(struct remote_decoder *decoder, unsigned parameter, uint64_t count);

/* Judges the number of a handle that the call makes, before the driver makes it. */
void remote_make_number(struct remote_decoder *decoder, unsigned parameter, unsigned word,
                        enum remote_kind kind);

/* Whether the record is whole and the driver, if it has the function, can be called. */
bool remote_taken(struct remote_decoder *decoder, bool has_function);
/* What becomes of a record for which the driver is not called. */
enum remote_outcome remote_not_called(struct remote_decoder *decoder);
/* Begins the answer. */
void remote_answer(struct remote_decoder *decoder, int32_t result);
/* What the driver wrote, in the order of the parameters. */
void remote_give(struct remote_decoder *decoder, unsigned parameter, const void *from, size_t size,
                 bool always);
void remote_give_some(struct remote_decoder *decoder, unsigned parameter, const void *from,
                      uint64_t count, size_t size, bool always);
void remote_give_text(struct remote_decoder *decoder, unsigned parameter, const char *from,
                      uint64_t room, bool always);
void remote_give_handles(struct remote_decoder *decoder, unsigned parameter, enum remote_kind kind,
                         void *from, uint64_t count, bool always);
void remote_give_handle(struct remote_decoder *decoder, unsigned parameter, enum remote_kind kind,
                        uint64_t handle, bool always);
void remote_give_count(struct remote_decoder *decoder, unsigned parameter, uint64_t count,
                       bool always);
/* Turns a handle in a structure that the driver wrote into its number; an address becomes NULL. */
void remote_out_field(struct remote_decoder *decoder, void *structure, size_t at,
                      enum remote_kind kind);
/* Notes the handle that the call has made, and the one that it has ended. */
void remote_give_made(struct remote_decoder *decoder, unsigned parameter, unsigned word,
                      enum remote_kind kind, uint64_t handle);
void remote_give_ended(struct remote_decoder *decoder, unsigned word, enum remote_kind kind);
/* Finishes the answer. */
enum remote_outcome remote_finish(struct remote_decoder *decoder);

#endif
