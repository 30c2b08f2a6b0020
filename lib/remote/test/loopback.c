#include "remote/test/loopback.h"

#include "remote/client/client.h"
#include "remote/worker/session.h"
#include "test/check.h"

#include <stdlib.h>
#include <string.h>

#define MOST_HANDLES 65536u

struct remote_decoder loopback;
enum remote_outcome loopback_outcome;
bool loopback_strict;
bool loopback_dead;
int32_t loopback_gate;
bool loopback_said;
void (*loopback_enter)(struct remote_head *head);
void (*loopback_leave)(void);
void (*loopback_spoil)(struct remote_answer *head, unsigned char *body, size_t *size);
unsigned char *loopback_record;
size_t loopback_size;
unsigned long loopback_sent, loopback_bulk;

/* A number, its kind, and the worker's handle; of the client only whether it knows the number. */
static struct entry {
    enum remote_kind kind;
    bool bound;
    bool known;
    uint64_t number;
    uint64_t handle;
} entries[MOST_HANDLES];
static size_t entry_count;
static uint64_t next_number, sequence, bulk_number;
static const void *bulk;
static unsigned char *body;
/* Answers that nobody has waited for yet. */
static struct {
    uint64_t sequence;
    enum remote_outcome outcome;
    unsigned char *answer;
} held[REMOTE_MOST_UNANSWERED];
static size_t bulk_size;

static struct entry *find(enum remote_kind kind, uint64_t number) {
    for (size_t i = entry_count; i > 0; i--) {
        if (entries[i - 1].kind == kind && entries[i - 1].number == number) {
            return &entries[i - 1];
        }
    }
    return NULL;
}

static struct entry *find_or_make(enum remote_kind kind, uint64_t number) {
    struct entry *e = find(kind, number);

    if (!e) {
        CHECK(entry_count < MOST_HANDLES);
        e = &entries[entry_count++];
        *e = (struct entry){.kind = kind, .number = number};
    }
    return e;
}

static void *aligned(void) {
    void *at = aligned_alloc(128, REMOTE_RECORD_BYTES);

    CHECK(at);
    memset(at, 0, REMOTE_RECORD_BYTES);
    return at;
}

void loopback_start(const struct remote_cuda_driver *cuda, const struct remote_nvml_driver *nvml) {
    if (!loopback.record) {
        loopback.record = aligned();
        loopback.answer = aligned();
        loopback.scratch = aligned();
        loopback_record = aligned();
    }
    loopback.cuda = cuda;
    loopback.nvml = nvml;
    loopback_forget();
}

void loopback_forget(void) {
    entry_count = 0;
    next_number = 0x1000;
}

uint64_t loopback_number(enum remote_kind kind, uint64_t handle) {
    if (handle <= remote_kinds[kind].fixed) {
        return handle;
    }
    uint64_t number = remote_worker_number(NULL, kind, handle);
    find(kind, number)->known = true;
    return number;
}

uint64_t loopback_handle(enum remote_kind kind, uint64_t number) {
    uint64_t handle = 0;

    if (number <= remote_kinds[kind].fixed) {
        return number;
    }
    return remote_number_known(kind, number) && remote_worker_resolve(NULL, kind, number, &handle)
               ? handle
               : 0;
}

/* The transport. */
int32_t remote_gate(enum remote_number number) {
    (void)number;
    return loopback_gate;
}

int32_t remote_late(uint16_t call, int32_t result, uint64_t late) {
    (void)call;
    return result || !late ? result : (int32_t)late;
}

static void hold(void) {
    size_t slot = sequence % REMOTE_MOST_UNANSWERED;
    struct remote_answer head = {.size = sizeof head};

    if (loopback_outcome == REMOTE_ANSWERED) {
        memcpy(&head, loopback.answer, sizeof head);
    }
    held[slot].sequence = sequence;
    held[slot].outcome = loopback_outcome;
    held[slot].answer = realloc(held[slot].answer, head.size);
    CHECK(held[slot].answer);
    memcpy(held[slot].answer, loopback.answer, head.size);
}

uint64_t remote_send(const struct remote_head *head, const struct remote_piece *pieces,
                     size_t count) {
    struct remote_head filled = *head;
    unsigned char *to = loopback_record;

    if (loopback_dead) {
        return 0;
    }
    filled.sequence = ++sequence;
    filled.context = 7;
    filled.thread = 1;
    if (loopback_enter) {
        loopback_enter(&filled);
    }
    memcpy(to, &filled, sizeof filled);
    to += sizeof filled;
    for (size_t i = 0; i < count; i++) {
        size_t padded = remote_padded(pieces[i].size);

        if (padded) {
            memset(to + padded - 8, 0, 8);
            memcpy(to, pieces[i].at, pieces[i].size);
        }
        to += padded;
    }
    loopback_size = (size_t)(to - loopback_record);
    CHECK_EQUAL(loopback_size, head->size);
    loopback_sent++;
    loopback_said = false;
    loopback_outcome = remote_decode(&loopback, loopback_record, loopback_size);
    if (loopback_outcome == REMOTE_BY_HAND) {
        remote_decode_one *one = remote_hand_decoder(filled.call);

        CHECK(one);
        loopback_outcome = one(&loopback);
    }
    if (loopback_outcome == REMOTE_LATER && loopback_said) {
        loopback_outcome = REMOTE_ANSWERED;
    }
    if (loopback_leave) {
        loopback_leave();
    }
    hold();
    /* Of a posted call only an error is told, late. */
    if (filled.posted && loopback_outcome == REMOTE_ANSWERED && loopback.result) {
        remote_worker_late(NULL, &filled, loopback.result);
    }
    return sequence;
}

uint64_t remote_send_bulk(const void *bytes, size_t size) {
    if (loopback_dead) {
        return 0;
    }
    bulk = bytes;
    bulk_size = size;
    loopback_bulk++;
    return ++bulk_number;
}

/* Without the parts of client and worker that keep code, all of it is sent. */
__attribute__((weak)) uint64_t remote_send_code(const void *code, size_t size) {
    return remote_send_bulk(code, size);
}

__attribute__((weak)) void remote_code_made(const void *code, size_t size) {
    (void)code;
    (void)size;
}

__attribute__((weak)) void remote_worker_code_keep(struct remote_worker *worker, const void *code,
                                                   size_t size) {
    (void)worker;
    (void)code;
    (void)size;
}

__attribute__((weak)) const void *remote_worker_code(struct remote_worker *worker, uint64_t number,
                                                     uint64_t size) {
    (void)worker;
    (void)number;
    (void)size;
    return NULL;
}

/* Without the parts that copy, nothing lands. */
__attribute__((weak)) void remote_landings_wait(void) {
}

__attribute__((weak)) void remote_landings_stop(void) {
}

bool remote_wait(uint64_t of, struct remote_reply *reply) {
    size_t slot = of % REMOTE_MOST_UNANSWERED;

    CHECK_EQUAL(of, held[slot].sequence);
    if (held[slot].outcome != REMOTE_ANSWERED) {
        return false;
    }
    memcpy(&reply->head, held[slot].answer, sizeof reply->head);
    reply->size = reply->head.size - sizeof reply->head;
    reply->at = 0;
    /* Memory that ends where the answer does, so that a sanitizer sees a byte too far. */
    free(body);
    body = malloc(reply->size + 256);
    CHECK(body);
    memset(body, 0x11, reply->size + 256);
    memcpy(body, held[slot].answer + sizeof reply->head, reply->size);
    if (loopback_spoil) {
        loopback_spoil(&reply->head, body, &reply->size);
    }
    body = realloc(body, reply->size ? reply->size : 1);
    CHECK(body);
    reply->body = body;
    return true;
}

bool remote_ahead(void) {
    return false;
}

bool remote_doubts(uint16_t call, const uint64_t *words) {
    (void)call;
    (void)words;
    return false;
}

bool remote_several(void) {
    return false;
}

bool remote_strict(void) {
    return loopback_strict;
}

/* The client's handles. */
uint64_t remote_number_new(enum remote_kind kind) {
    uint64_t number = next_number++;

    find_or_make(kind, number)->known = true;
    return number;
}

void remote_number_learn(enum remote_kind kind, uint64_t number) {
    find_or_make(kind, number)->known = true;
}

void remote_number_forget(enum remote_kind kind, uint64_t number) {
    find_or_make(kind, number)->known = false;
}

bool remote_number_known(enum remote_kind kind, uint64_t number) {
    const struct entry *e = find(kind, number);

    return e && e->known;
}

/* The worker's handles. */
bool remote_worker_resolve(struct remote_worker *worker, enum remote_kind kind, uint64_t number,
                           uint64_t *handle) {
    const struct entry *e = find(kind, number);

    (void)worker;
    if (!e || !e->bound) {
        return false;
    }
    *handle = e->handle;
    return true;
}

enum remote_room remote_worker_room(struct remote_worker *worker, enum remote_kind kind,
                                    uint64_t number) {
    const struct entry *e = find(kind, number);

    (void)worker;
    return number <= remote_kinds[kind].fixed || number >> 62 || (e && e->bound) ? REMOTE_NO_NUMBER
                                                                                 : REMOTE_ROOM;
}

bool remote_worker_bind(struct remote_worker *worker, enum remote_kind kind, uint64_t number,
                        uint64_t handle) {
    (void)worker;
    if (number <= remote_kinds[kind].fixed || number >> 62) {
        return false;
    }
    struct entry *e = find_or_make(kind, number);
    if (e->bound) {
        return false;
    }
    e->bound = true;
    e->handle = handle;
    return true;
}

uint64_t remote_worker_number(struct remote_worker *worker, enum remote_kind kind,
                              uint64_t handle) {
    static uint64_t own = UINT64_C(1) << 62;

    (void)worker;
    for (size_t i = entry_count; i > 0; i--) {
        if (entries[i - 1].kind == kind && entries[i - 1].bound &&
            entries[i - 1].handle == handle) {
            return entries[i - 1].number;
        }
    }
    struct entry *e = find_or_make(kind, remote_kinds[kind].own ? handle : ++own);
    e->bound = true;
    e->handle = handle;
    return e->number;
}

uint64_t remote_worker_known(struct remote_worker *worker, enum remote_kind kind, uint64_t handle) {
    (void)worker;
    for (size_t i = entry_count; i > 0; i--) {
        if (entries[i - 1].kind == kind && entries[i - 1].bound &&
            entries[i - 1].handle == handle) {
            return entries[i - 1].number;
        }
    }
    return 0;
}

void remote_worker_unbind(struct remote_worker *worker, enum remote_kind kind, uint64_t number) {
    (void)worker;
    find_or_make(kind, number)->bound = false;
}

const void *remote_worker_bulk(struct remote_worker *worker, uint64_t number, uint64_t size) {
    (void)worker;
    return number == bulk_number && size == bulk_size ? bulk : NULL;
}
