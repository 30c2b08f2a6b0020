/* How the generated client functions write a record and read its answer. */
#ifndef DIVVY_REMOTE_CALL_H
#define DIVVY_REMOTE_CALL_H

#include "remote/transport.h"

struct remote_call {
    struct remote_head head;
    int32_t fault; /* what the client answers instead of asking, 0 for nothing */
    bool lessened; /* a count says less than the program has room for */
    uint32_t word_count;
    uint32_t piece_count; /* piece 0 is the words */
    struct remote_piece pieces[1 + REMOTE_MOST_PIECES];
    uint64_t words[REMOTE_MOST_WORDS];
};

void remote_begin(struct remote_call *call, enum remote_number number, uint32_t words);

static inline void remote_given(struct remote_call *call, unsigned parameter, const void *at) {
    call->head.given |= (at ? 1u : 0u) << parameter;
}

/* The bits of a float, as a word has them. */
static inline uint64_t remote_float_word(float value) {
    union {
        float value;
        uint32_t bits;
    } both = {.value = value};

    return both.bits;
}

/* A length less some, down to 0. */
static inline uint64_t remote_less(uint64_t length, uint64_t less) {
    return length > less ? length - less : 0;
}

/* Notes a handle that the call uses. */
void remote_use(struct remote_call *call, unsigned word, enum remote_kind kind, uint64_t number);
/* Numbers a handle that the call makes. */
void remote_make(struct remote_call *call, unsigned parameter, unsigned word, enum remote_kind kind,
                 const void *to);

/* Memory that the callee reads. */
void remote_array(struct remote_call *call, unsigned parameter, const void *at, uint64_t count,
                  size_t size);
void remote_handles(struct remote_call *call, unsigned parameter, enum remote_kind kind,
                    const void *at, uint64_t count);
void remote_text(struct remote_call *call, unsigned parameter, unsigned word, const char *text);
void remote_image(struct remote_call *call, unsigned parameter, unsigned word, const void *image);
/* The same of code whose size is known; and of other bytes. */
void remote_code(struct remote_call *call, unsigned parameter, unsigned word, const void *code,
                 size_t size);
void remote_bulk(struct remote_call *call, unsigned parameter, unsigned word, const void *at,
                 size_t size);
/* A structure whose first word says its size; there may be no more than `most` bytes. */
void remote_versioned(struct remote_call *call, unsigned parameter, unsigned word,
                      const void *structure, size_t most);

/* Memory that the callee writes: only whether it is there, and whether an answer can carry it. */
void remote_room(struct remote_call *call, unsigned parameter, const void *at, uint64_t count,
                 size_t size);
/* A count, lessened to what an answer can carry of elements of this size; 0 where no array is given. */
void remote_count(struct remote_call *call, unsigned parameter, unsigned word, const void *at,
                  uint64_t count, size_t size);

/* Sends the record, and waits for its answer. False if there is none: remote_end knows why. */
bool remote_ask(struct remote_call *call, struct remote_reply *reply);
/* Sends the record. Returns what the call answers. */
int32_t remote_post(struct remote_call *call);
/* What the call answers, after what it wrote has been read. */
int32_t remote_end(const struct remote_call *call, const struct remote_reply *reply);

/* What the callee wrote, in the order of the parameters. `always` is for what is written also on failure. */
void remote_get(const struct remote_call *call, struct remote_reply *reply, unsigned parameter,
                void *to, size_t size, bool always);
/* A count. If it was lessened, and there are more elements than that, an answer cannot carry them: the call fails. */
void remote_get_count(struct remote_call *call, struct remote_reply *reply, unsigned parameter,
                      unsigned word, void *to, size_t size);
/* The same with its length before it, no more than `room` bytes. */
void remote_get_some(const struct remote_call *call, struct remote_reply *reply, unsigned parameter,
                     void *to, size_t room, bool always);
/* The same of handles, of which there is room for `count`. */
void remote_get_handles(const struct remote_call *call, struct remote_reply *reply,
                        unsigned parameter, enum remote_kind kind, void *to, uint64_t count,
                        bool always);
/* A handle. */
void remote_get_handle(const struct remote_call *call, struct remote_reply *reply,
                       unsigned parameter, enum remote_kind kind, void *to, bool always);
/* The number that was sent for a handle which the call has made. */
void remote_get_made(const struct remote_call *call, const struct remote_reply *reply,
                     unsigned parameter, unsigned word, enum remote_kind kind, void *to);
/* Whether the 32-bit word at an offset of a structure has a value. */
bool remote_word_is(const void *structure, size_t at, uint32_t value);
/* A handle in a structure that the callee wrote. */
void remote_learn_field(const void *structure, size_t at, enum remote_kind kind);
/* Forgets a handle that the call has ended. */
void remote_get_ended(const struct remote_reply *reply, enum remote_kind kind, uint64_t number);

#endif
