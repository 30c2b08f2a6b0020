/*
 * What a thread keeps for itself, so that a launch needs no lock: the streams into which it
 * launched lately, and how fast the processor's counter runs.
 *
 * Only a pointer to it is thread-local, because all libraries that are loaded late share some
 * hundred bytes of such storage.
 */
#ifndef DIVVY_CUDA_TIME_NOTES_H
#define DIVVY_CUDA_TIME_NOTES_H

#include <stdbool.h>

#include "abi/cuda/types.h"
#include "substitute/substitute.h"

#define NOTES_STREAMS 8u /* power of two */

struct notes {
    struct seen {
        CUstream stream;
        CUcontext context;
        struct flight *flight;
    } seen[NOTES_STREAMS];
    uint32_t seen_change; /* the state of flight.c's change for which seen is valid */
    /* For now_about: when it was last set right, for how many ticks that holds (0: not at all), and
     * ns per tick times 2^24. */
    uint32_t span, scale;
    uint64_t ticks, ns;
    struct flight *last; /* of the stream into which the thread launched last */
    /* Into which it launches just now. A batch that counts this launch must not end before the
     * driver has it. */
    const struct flight *launching;
    uint32_t inside;    /* 1 from passing the turn gate until the driver has answered; atomic */
    struct notes *next; /* in the list of unused notes */
    struct notes *made; /* in the list of all that were ever used; stays when the thread ends */
    bool listed;
};

DV_HIDDEN extern _Thread_local struct notes *notes_here __attribute__((tls_model("initial-exec")));

DV_HIDDEN struct notes *notes_make(void);

/* Whether any other thread is between the two halves of a launch into the flight. The caller holds the
 * flight's lock. */
DV_HIDDEN bool notes_launching(const struct flight *flight);

/* Whether any thread is between the turn gate and the end of its call. */
DV_HIDDEN bool notes_inside(void);

/* The calling thread's; NULL if there is no memory. */
static inline struct notes *notes_own(void) {
    struct notes *notes = notes_here;
    return __builtin_expect(notes != NULL, 1) ? notes : notes_make();
}

#endif
