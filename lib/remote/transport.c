/* A transport of a link that has ended: what calls stand on where no client is linked, as in tests of single parts. A
 * client's functions take the place of these. */
#include "remote/transport.h"

#define REPLACED __attribute__((weak))

REPLACED int32_t remote_gate(enum remote_number number) {
    (void)number;
    return 0;
}

REPLACED uint64_t remote_send(const struct remote_head *head, const struct remote_piece *pieces,
                              size_t count) {
    (void)head;
    (void)pieces;
    (void)count;
    return 0;
}

REPLACED uint64_t remote_send_bulk(const void *bytes, size_t size) {
    (void)bytes;
    (void)size;
    return 0;
}

REPLACED uint64_t remote_send_code(const void *code, size_t size) {
    return remote_send_bulk(code, size);
}

REPLACED bool remote_wait(uint64_t sequence, struct remote_reply *reply) {
    (void)sequence;
    (void)reply;
    return false;
}

REPLACED int32_t remote_late(uint16_t call, int32_t result, uint64_t late) {
    (void)call;
    (void)late;
    return result;
}

REPLACED bool remote_strict(void) {
    return true;
}

REPLACED bool remote_ahead(void) {
    return false;
}

REPLACED bool remote_several(void) {
    return false;
}

REPLACED bool remote_doubts(uint16_t call, const uint64_t *words) {
    (void)call;
    (void)words;
    return false;
}

REPLACED uint64_t remote_number_new(enum remote_kind kind) {
    (void)kind;
    return 0;
}

REPLACED void remote_number_learn(enum remote_kind kind, uint64_t number) {
    (void)kind;
    (void)number;
}

REPLACED void remote_number_forget(enum remote_kind kind, uint64_t number) {
    (void)kind;
    (void)number;
}

REPLACED bool remote_number_known(enum remote_kind kind, uint64_t number) {
    (void)kind;
    (void)number;
    return false;
}
