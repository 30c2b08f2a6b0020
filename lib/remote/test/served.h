/* A worker on a link, with a driver of the test's own that writes down what is called, and a stream that ends when the test
 * says so. The test is the client, and writes its records itself. */
#ifndef DIVVY_REMOTE_TEST_SERVED_H
#define DIVVY_REMOTE_TEST_SERVED_H

#include "remote/test/sides.h"
#include "remote/worker/state.h"
#include "test/check.h"

#include <semaphore.h>

/* Who waits for this stream is let go by a post. */
#define SERVED_HELD ((CUstream)0x5e1d)
extern sem_t served_release;
/* So is who frees memory with this bit in its address, ends this stream or this context, or loads or unloads code. A post says
 * that somebody is held so. */
#define SERVED_HELD_MEMORY 0x1000000u
#define SERVED_HELD_CONTEXT ((CUcontext)0xc007)
extern sem_t served_inside;
/* The driver does not unload it. */
#define SERVED_KEPT_MODULE ((CUmodule)0xdead)

extern struct remote_link *served_client;
extern struct remote_worker *served_worker;
/* What the next record says. */
extern uint64_t served_sequence, served_context;
extern uint32_t served_thread;
/* The last answer. */
extern unsigned char *served_frame;

void served_begin(enum remote_link_kind kind);
/* Ends the link, of which the worker has no complaint. */
void served_end(void);
/* Waits until the worker has ended it, and returns why. */
const char *served_stop(void);

#define WORDS(...) (const uint64_t[]){__VA_ARGS__}, sizeof((const uint64_t[]){__VA_ARGS__}) / 8

/* Sends a record and returns its number; takes an answer; does both. */
uint64_t served_send(uint16_t call, bool posted, uint32_t given, const uint64_t *words,
                     size_t count);
struct remote_answer served_take(void);
struct remote_answer served_ask(uint16_t call, uint32_t given, const uint64_t *words, size_t count);

/* Checks what was called of the driver since the last question. */
void served_check_calls(const char *wanted, int line);
#define CHECK_CALLS(wanted) served_check_calls(wanted, __LINE__)

/* Once with rings, and once with a stream. */
#define SERVED_EACH(check)                                                                         \
    do {                                                                                           \
        for (enum remote_link_kind k = REMOTE_LINK_RINGS; k <= REMOTE_LINK_STREAM; k++) {          \
            served_begin(k);                                                                       \
            check;                                                                                 \
        }                                                                                          \
    } while (0)

#endif
