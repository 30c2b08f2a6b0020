/* What the files of the link share. */
#ifndef DIVVY_REMOTE_LINK_INSIDE_H
#define DIVVY_REMOTE_LINK_INSIDE_H

#include <pthread.h>

#include "remote/link.h"
#include "remote/ring.h"

#define REMOTE_COMMANDS_BYTES (2u << 20)
#define REMOTE_ANSWERS_BYTES (1u << 20)
#define REMOTE_AREA_BYTES (32u << 20)
/* Descriptors that were passed and not yet asked for. */
#define REMOTE_MOST_KEPT 256u
/* Frames are gathered to so many bytes before a socket is written, and read in such portions. */
#define REMOTE_GATHERED_BYTES (64u << 10)
#define REMOTE_HELLO_NS INT64_C(10000000000)
/* How long a worker may take to answer a program. The relay of one on another host answers late when
 * that host is gone: it waits for the last program's worker, connects, and then waits until the
 * share has ended (docs/design/remote-relay.md). */
#define REMOTE_ANSWER_NS INT64_C(30000000000)

enum remote_link_kind { REMOTE_LINK_RINGS = 1, REMOTE_LINK_STREAM = 2 };

/* The memory that both sides map, all of it. */
struct remote_shared {
    struct remote_ring_words commands, answers;
    _Alignas(4096) unsigned char command_bytes[REMOTE_COMMANDS_BYTES];
    unsigned char answer_bytes[REMOTE_ANSWERS_BYTES];
    unsigned char area[REMOTE_AREA_BYTES];
};

/* GONE: the other side ended it or died; what it put before may still be taken. */
enum remote_link_state { REMOTE_LINK_LIVES, REMOTE_LINK_GONE, REMOTE_LINK_ENDED };

/* It lies in pages of its own, so that a child after fork gets rid of it without the allocator of the program. */
struct remote_link {
    enum remote_link_kind kind;
    int socket;
    uint32_t state;  /* enum remote_link_state */
    const char *why; /* the first reason */
    bool serves;     /* whether this is the worker's end */

    /* Rings. */
    struct remote_shared *shared;
    struct remote_ring out, in;
    unsigned yields; /* how often who waits lets others in before it sleeps */

    /* Descriptors that arrived. */
    pthread_mutex_t keeping;
    size_t kept;
    struct {
        uint64_t number;
        int descriptor;
    } keep[REMOTE_MOST_KEPT];

    /* Stream. */
    size_t gathered;          /* bytes of `gather` that were not written yet */
    size_t arrived, consumed; /* bytes of `arrive`, and how many of them were taken */
    unsigned char gather[REMOTE_GATHERED_BYTES];
    unsigned char arrive[REMOTE_RECORD_BYTES + REMOTE_GATHERED_BYTES];
};

/* link.c */
/* The client's end on a connected socket; the worker may answer a wish for rings with a stream. Both close the socket on
 * failure. `nanoseconds`: how long the other side has for its hello. */
struct remote_link *remote_link_client(int socket, enum remote_link_kind kind, int64_t nanoseconds,
                                       char why[REMOTE_WHY_BYTES]);
struct remote_link *remote_link_worker(int socket, int64_t nanoseconds, char why[REMOTE_WHY_BYTES]);

/* A sentence about the other side. */
#define REMOTE_OTHER(link, says) ((link)->serves ? "the program " says : "the worker " says)

/* link_end.c */
/* The other side is gone. */
void remote_link_gone(struct remote_link *link, const char *why);
/* The same after a system call on one of the link's sockets has failed: unless the number is no socket any more, because
 * somebody in this process closed what was not theirs. */
void remote_link_broken(struct remote_link *link, int error);
/* The other side does not keep to the protocol, or this side cannot: ends it. */
void remote_link_fault(struct remote_link *link, const char *why);
static inline enum remote_link_state remote_link_state(const struct remote_link *link) {
    return (enum remote_link_state)__atomic_load_n(&link->state, __ATOMIC_ACQUIRE);
}

/* link_hello.c */
/* Say who they are and what they want. The client gets descriptors where both use rings: the memory, and the sockets that
 * wake whoever waits on a ring, of commands and of answers. False on failure. */
enum { REMOTE_HELLO_MEMORY, REMOTE_HELLO_COMMANDS, REMOTE_HELLO_ANSWERS, REMOTE_HELLO_DESCRIPTORS };
bool remote_hello_client(int socket, enum remote_link_kind *kind, int64_t deadline,
                         int descriptors[REMOTE_HELLO_DESCRIPTORS], char why[REMOTE_WHY_BYTES]);
/* What the client wants. Answered by the second, with descriptors or NULL. */
bool remote_hello_worker(int socket, enum remote_link_kind *kind, int64_t deadline,
                         char why[REMOTE_WHY_BYTES]);
bool remote_hello_answer(int socket, enum remote_link_kind kind, int64_t deadline,
                         const int *descriptors, char why[REMOTE_WHY_BYTES]);

/* link_rings.c */
/* The worker makes the memory and the other ends of the wake-up sockets; the client judges what it got. Both then map. */
bool remote_rings_make(struct remote_link *link, int descriptors[REMOTE_HELLO_DESCRIPTORS],
                       char why[REMOTE_WHY_BYTES]);
bool remote_rings_join(struct remote_link *link, const int descriptors[REMOTE_HELLO_DESCRIPTORS],
                       char why[REMOTE_WHY_BYTES]);
bool remote_rings_put(struct remote_link *link, const void *head, size_t head_size,
                      const struct remote_piece *pieces, size_t count, size_t size);
void remote_rings_flush(struct remote_link *link);
enum remote_taken remote_rings_take(struct remote_link *link, void *to, size_t *size,
                                    int64_t nanoseconds);

/* link_stream.c */
bool remote_stream_put(struct remote_link *link, const void *head, size_t head_size,
                       const struct remote_piece *pieces, size_t count, size_t size);
void remote_stream_flush(struct remote_link *link);
enum remote_taken remote_stream_take(struct remote_link *link, void *to, size_t *size,
                                     int64_t nanoseconds);

/* link_wait.c */
/* Nanoseconds of the clock, and a moment so far from now; a negative span is never. */
int64_t remote_now(void);
int64_t remote_deadline(int64_t nanoseconds);
/* Waits until the descriptor has one of the events of poll(2), the deadline passes (false), or the link has ended: then the
 * link is marked and the answer is true. `descriptor` may be the link's own socket. */
bool remote_link_poll(struct remote_link *link, int descriptor, short events, int64_t deadline);
/* A processor's hint that this is a loop that waits. */
static inline void remote_pause(void) {
#if defined __x86_64__
    __builtin_ia32_pause();
#elif defined __aarch64__
    __asm__ volatile("yield");
#endif
}

#endif
