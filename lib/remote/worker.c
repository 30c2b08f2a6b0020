/* A worker that knows no handles and has no bytes: what decoders stand on where none is linked, as in tests of single parts.
 * A worker's functions take the place of these. */
#include "remote/worker.h"

#define REPLACED __attribute__((weak))

REPLACED bool remote_worker_resolve(struct remote_worker *worker, enum remote_kind kind,
                                    uint64_t number, uint64_t *handle) {
    (void)worker;
    (void)kind;
    (void)number;
    (void)handle;
    return false;
}

REPLACED enum remote_room remote_worker_room(struct remote_worker *worker, enum remote_kind kind,
                                             uint64_t number) {
    (void)worker;
    (void)kind;
    (void)number;
    return REMOTE_FULL;
}

REPLACED bool remote_worker_bind(struct remote_worker *worker, enum remote_kind kind,
                                 uint64_t number, uint64_t handle) {
    (void)worker;
    (void)kind;
    (void)number;
    (void)handle;
    return false;
}

REPLACED uint64_t remote_worker_number(struct remote_worker *worker, enum remote_kind kind,
                                       uint64_t handle) {
    (void)worker;
    (void)kind;
    (void)handle;
    return 0;
}

REPLACED void remote_worker_unbind(struct remote_worker *worker, enum remote_kind kind,
                                   uint64_t number) {
    (void)worker;
    (void)kind;
    (void)number;
}

REPLACED uint64_t remote_worker_thread_stream(struct remote_worker *worker, uint32_t thread,
                                              uint64_t context) {
    (void)worker;
    (void)thread;
    (void)context;
    return 0;
}

REPLACED int32_t remote_worker_no_stream(struct remote_worker *worker) {
    (void)worker;
    return 2;
}

REPLACED const void *remote_worker_bulk(struct remote_worker *worker, uint64_t number,
                                        uint64_t size) {
    (void)worker;
    (void)number;
    (void)size;
    return NULL;
}

REPLACED void remote_worker_code_keep(struct remote_worker *worker, const void *code, size_t size) {
    (void)worker;
    (void)code;
    (void)size;
}

REPLACED const void *remote_worker_code(struct remote_worker *worker, uint64_t number,
                                        uint64_t size) {
    (void)worker;
    (void)number;
    (void)size;
    return NULL;
}
