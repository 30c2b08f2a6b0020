#include "remote/call.h"

#include "remote/image.h"

#include <string.h>

/* Results that the client gives by itself: of CUDA, and of NVML. */
struct results {
    int32_t unsupported; /* longer than a record can be */
    int32_t lost;        /* the link has ended */
    int32_t image;       /* code that does not say its length */
    int32_t mismatch;    /* a structure of a size that nobody knows */
    int32_t memory;      /* none to note a handle */
};

static const struct results *results_of(const struct remote_call *call) {
    static const struct results of[2] = {{801, 46, 200, 1, 2}, {3, 15, 2, 25, 20}};

    return &of[remote_is_nvml(call->head.call)];
}

static void fail(struct remote_call *call, int32_t result) {
    if (!call->fault) {
        call->fault = result;
    }
}

void remote_begin(struct remote_call *call, enum remote_number number, uint32_t words) {
    call->head = (struct remote_head){.size = (uint32_t)(sizeof call->head + 8u * words),
                                      .call = (uint16_t)number};
    call->fault = remote_gate(number);
    call->lessened = false;
    call->word_count = words;
    call->piece_count = 1;
    memset(call->words, 0, 8u * words);
}

/* Whether a number needs no table: NULL, and those with a meaning of their own. */
static bool is_fixed(enum remote_kind kind, uint64_t number) {
    return number <= remote_kinds[kind].fixed;
}

static bool is_known(enum remote_kind kind, uint64_t number) {
    return is_fixed(kind, number) || remote_number_known(kind, number) ||
           (remote_kinds[kind].also && remote_number_known(remote_kinds[kind].also, number));
}

void remote_use(struct remote_call *call, unsigned word, enum remote_kind kind, uint64_t number) {
    call->words[word] = number;
    if (!call->fault && !is_known(kind, number)) {
        fail(call, remote_kinds[kind].unknown);
    }
}

void remote_make(struct remote_call *call, unsigned parameter, unsigned word, enum remote_kind kind,
                 const void *to) {
    remote_given(call, parameter, to);
    if (to && !call->fault) {
        call->words[word] = remote_number_new(kind);
        if (!call->words[word]) {
            fail(call, results_of(call)->memory);
        }
    }
}

/* Appends a piece, if a record can hold it. */
static void append(struct remote_call *call, const void *at, uint64_t count, size_t size) {
    if (count > REMOTE_ARRAY_BYTES / size ||
        call->head.size + remote_padded(count * size) > REMOTE_RECORD_BYTES) {
        fail(call, results_of(call)->unsupported);
        return;
    }
    if (count) {
        call->pieces[call->piece_count++] = (struct remote_piece){at, count * size};
        call->head.size += (uint32_t)remote_padded(count * size);
    }
}

void remote_array(struct remote_call *call, unsigned parameter, const void *at, uint64_t count,
                  size_t size) {
    remote_given(call, parameter, at);
    if (at) {
        append(call, at, count, size);
    }
}

void remote_handles(struct remote_call *call, unsigned parameter, enum remote_kind kind,
                    const void *at, uint64_t count) {
    remote_array(call, parameter, at, count, sizeof(uint64_t));
    for (uint64_t i = 0; at && !call->fault && i < count; i++) {
        uint64_t number;

        memcpy(&number, (const unsigned char *)at + 8 * i, sizeof number);
        if (!is_known(kind, number)) {
            fail(call, remote_kinds[kind].unknown);
        }
    }
}

void remote_text(struct remote_call *call, unsigned parameter, unsigned word, const char *text) {
    remote_given(call, parameter, text);
    if (text) {
        call->words[word] = strlen(text) + 1;
        append(call, text, call->words[word], 1);
    }
}

void remote_image(struct remote_call *call, unsigned parameter, unsigned word, const void *image) {
    remote_given(call, parameter, image);
    if (!image || call->fault) {
        return;
    }
    size_t size = remote_image_size(image);
    if (!size) {
        fail(call, results_of(call)->image);
        return;
    }
    remote_code(call, parameter, word, image, size);
}

static void beside(struct remote_call *call, unsigned parameter, unsigned word, const void *at,
                   size_t size, uint64_t (*send)(const void *, size_t)) {
    remote_given(call, parameter, at);
    if (!at || call->fault) {
        return;
    }
    call->words[word] = send(at, size);
    call->words[word + 1] = size;
    if (!call->words[word]) {
        fail(call, results_of(call)->lost);
    }
}

void remote_code(struct remote_call *call, unsigned parameter, unsigned word, const void *code,
                 size_t size) {
    beside(call, parameter, word, code, size, remote_send_code);
}

void remote_bulk(struct remote_call *call, unsigned parameter, unsigned word, const void *at,
                 size_t size) {
    beside(call, parameter, word, at, size, remote_send_bulk);
}

void remote_versioned(struct remote_call *call, unsigned parameter, unsigned word,
                      const void *structure, size_t most) {
    uint32_t version;

    remote_given(call, parameter, structure);
    if (!structure) {
        return;
    }
    memcpy(&version, structure, sizeof version);
    call->words[word] = version & 0xffffffu;
    if (call->words[word] < sizeof version || call->words[word] > most) {
        fail(call, results_of(call)->mismatch);
        return;
    }
    append(call, structure, call->words[word], 1);
}

void remote_room(struct remote_call *call, unsigned parameter, const void *at, uint64_t count,
                 size_t size) {
    remote_given(call, parameter, at);
    if (at && count > REMOTE_ARRAY_BYTES / size) {
        fail(call, results_of(call)->unsupported);
    }
}

void remote_count(struct remote_call *call, unsigned parameter, unsigned word, const void *at,
                  uint64_t count, size_t size) {
    remote_given(call, parameter, at);
    call->words[word] = count;
    if (size && count > REMOTE_ARRAY_BYTES / size) {
        call->words[word] = REMOTE_ARRAY_BYTES / size;
        call->lessened = true;
    }
}

static uint64_t send_call(struct remote_call *call) {
    call->pieces[0] = (struct remote_piece){call->words, 8u * call->word_count};
    if (call->fault) {
        return 0;
    }
    uint64_t sequence = remote_send(&call->head, call->pieces, call->piece_count);
    if (!sequence) {
        fail(call, results_of(call)->lost);
    }
    return sequence;
}

bool remote_ask(struct remote_call *call, struct remote_reply *reply) {
    uint64_t sequence = send_call(call);

    memset(reply, 0, sizeof *reply);
    if (sequence && !remote_wait(sequence, reply)) {
        fail(call, results_of(call)->lost);
    }
    reply->garbled = call->fault == 0 &&
                     (reply->head.call != call->head.call || reply->head.sequence != sequence);
    return call->fault == 0 && !reply->garbled;
}

int32_t remote_post(struct remote_call *call) {
    struct remote_reply reply;

    bool waits = remote_strict() || remote_ahead() ||
                 (remote_several() && remote_blocks(call->head.call)) ||
                 remote_doubts(call->head.call, call->words);

    if (waits) {
        remote_ask(call, &reply);
        return remote_end(call, &reply);
    }
    call->head.posted = 1;
    send_call(call);
    return call->fault;
}

int32_t remote_end(const struct remote_call *call, const struct remote_reply *reply) {
    if (call->fault) {
        return call->fault;
    }
    if (reply->garbled || reply->at != reply->size) {
        return results_of(call)->lost;
    }
    return remote_late(call->head.call, reply->head.result, reply->head.late);
}

/* Whether the answer has what was written to this parameter. After a success it has everything, and after a failure
 * nothing, but for what the callee writes always: that it may have or not, as it was written or not. */
static bool is_due(const struct remote_call *call, struct remote_reply *reply, unsigned parameter,
                   bool always) {
    bool given = call->head.given >> parameter & 1;
    bool there = reply->head.given >> parameter & 1;
    bool want = given && reply->head.result == 0;

    if (always ? there && !given : there != want) {
        reply->garbled = true;
    }
    return there && !reply->garbled;
}

static void take(struct remote_reply *reply, void *to, size_t size) {
    size_t left = reply->size - reply->at;

    if (size > left || remote_padded(size) > left) {
        reply->garbled = true;
        return;
    }
    memcpy(to, reply->body + reply->at, size);
    reply->at += remote_padded(size);
}

void remote_get(const struct remote_call *call, struct remote_reply *reply, unsigned parameter,
                void *to, size_t size, bool always) {
    if (is_due(call, reply, parameter, always)) {
        take(reply, to, size);
    }
}

void remote_get_count(struct remote_call *call, struct remote_reply *reply, unsigned parameter,
                      unsigned word, void *to, size_t size) {
    uint64_t count = 0;

    if (!is_due(call, reply, parameter, true)) {
        return;
    }
    take(reply, &count, sizeof count);
    if (call->lessened && reply->head.result == 0 && count >= call->words[word]) {
        fail(call, results_of(call)->unsupported);
        return;
    }
    memcpy(to, &count, size);
}

void remote_get_some(const struct remote_call *call, struct remote_reply *reply, unsigned parameter,
                     void *to, size_t room, bool always) {
    uint64_t size = 0;

    if (!is_due(call, reply, parameter, always)) {
        return;
    }
    take(reply, &size, sizeof size);
    if (size > room) {
        reply->garbled = true;
        return;
    }
    if (size) {
        take(reply, to, size);
    }
}

void remote_get_handles(const struct remote_call *call, struct remote_reply *reply,
                        unsigned parameter, enum remote_kind kind, void *to, uint64_t count,
                        bool always) {
    size_t before = reply->at;

    remote_get_some(call, reply, parameter, to, count * sizeof(uint64_t), always);
    if (reply->garbled || reply->at == before) {
        return;
    }
    for (size_t at = before + 8; at < reply->at; at += 8) {
        remote_learn_field(reply->body, at, kind);
    }
}

void remote_get_handle(const struct remote_call *call, struct remote_reply *reply,
                       unsigned parameter, enum remote_kind kind, void *to, bool always) {
    size_t before = reply->at;

    remote_get(call, reply, parameter, to, sizeof(uint64_t), always);
    if (!reply->garbled && reply->at != before) {
        remote_learn_field(to, 0, kind);
    }
}

void remote_get_made(const struct remote_call *call, const struct remote_reply *reply,
                     unsigned parameter, unsigned word, enum remote_kind kind, void *to) {
    if (!(call->head.given >> parameter & 1) || !call->words[word]) {
        return;
    }
    if (!call->fault && !reply->garbled && reply->head.result == 0) {
        memcpy(to, &call->words[word], sizeof(uint64_t));
        return;
    }
    remote_number_forget(kind, call->words[word]);
}

bool remote_word_is(const void *structure, size_t at, uint32_t value) {
    uint32_t word;

    memcpy(&word, (const unsigned char *)structure + at, sizeof word);
    return word == value;
}

void remote_learn_field(const void *structure, size_t at, enum remote_kind kind) {
    uint64_t number;

    memcpy(&number, (const unsigned char *)structure + at, sizeof number);
    if (!is_fixed(kind, number)) {
        remote_number_learn(kind, number);
    }
}

void remote_get_ended(const struct remote_reply *reply, enum remote_kind kind, uint64_t number) {
    if (!is_fixed(kind, number) && (!reply || reply->head.result == 0)) {
        remote_number_forget(kind, number);
    }
}
