/* Code that the worker may have: it was sent before, or the worker's linker has made it. Only of such code the client asks, by
 * its digest, for that takes as long as to send a good part of it. */
#include "remote/client/module.h"

#include "remote/code.h"
#include "remote/sha256.h"

#include <pthread.h>
#include <string.h>

/* What code is known by before its digest: its size, and both ends. */
#define ENDS 64u
struct trace {
    size_t size;
    unsigned char ends[2 * ENDS];
};

static struct trace traces[REMOTE_MOST_CODES];
static unsigned newest;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/* Whether the code was noted before; then notes it. */
static bool note(const void *code, size_t size) {
    struct trace trace = {.size = size};
    bool before = false;

    memcpy(trace.ends, code, ENDS);
    memcpy(trace.ends + ENDS, (const unsigned char *)code + size - ENDS, ENDS);
    pthread_mutex_lock(&lock);
    for (unsigned i = 0; i < REMOTE_MOST_CODES && !before; i++) {
        before =
            traces[i].size == size && memcmp(traces[i].ends, trace.ends, sizeof trace.ends) == 0;
    }
    if (!before) {
        traces[++newest % REMOTE_MOST_CODES] = trace;
    }
    pthread_mutex_unlock(&lock);
    return before;
}

static bool is_kept(size_t size) {
    struct remote_link *link = remote_session_link();
    size_t shared;

    return size >= REMOTE_LEAST_CODE && size <= REMOTE_MOST_CODE &&
           !(link && remote_link_area(link, &shared));
}

void remote_code_made(const void *code, size_t size) {
    if (is_kept(size)) {
        note(code, size);
    }
}

static uint64_t ask(const void *code, size_t size) {
    unsigned char digest[REMOTE_DIGEST_BYTES];
    struct remote_call call;
    struct remote_reply reply;
    uint64_t number = 0;

    remote_sha256(code, size, digest);
    remote_begin(&call, (enum remote_number)REMOTE_CODE, REMOTE_CODE_WORDS);
    call.words[0] = size;
    memcpy(&call.words[1], digest, sizeof digest);
    remote_given(&call, 0, &number);
    if (remote_ask(&call, &reply)) {
        remote_get(&call, &reply, 0, &number, sizeof number, false);
    }
    return remote_end(&call, &reply) == 0 && number & REMOTE_KEPT_CODE ? number : 0;
}

uint64_t remote_send_code(const void *code, size_t size) {
    uint64_t number = is_kept(size) && note(code, size) ? ask(code, size) : 0;

    return number ? number : remote_send_bulk(code, size);
}
