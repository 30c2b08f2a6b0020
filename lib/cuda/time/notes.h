/*
 * What a thread keeps for itself, so that a launch asks nobody: the streams that it launched into
 * lately, and how the processor's counter runs against the clock.
 *
 * Only a pointer to it is thread-local storage: of that a library loaded late has some hundred
 * bytes, together with all others.
 */
#ifndef DIVVY_CUDA_TIME_NOTES_H
#define DIVVY_CUDA_TIME_NOTES_H

#include "abi/cuda/types.h"
#include "substitute/substitute.h"

#define NOTES_STREAMS 8u /* power of two */

struct notes {
    struct seen {
        CUstream stream;
        CUcontext context;
        struct flight *flight;
    } seen[NOTES_STREAMS];
    uint32_t seen_change; /* as of which all of seen is */
    /* The clock's guess: when it was last set right, for how many ticks it may be used (0: not at
     * all), and ns per tick in parts of 2^24. */
    uint32_t span, scale;
    uint64_t ticks, ns;
    CUstream last_stream;
    struct notes *next; /* while nobody's */
};

DV_HIDDEN extern _Thread_local struct notes *notes_here __attribute__((tls_model("initial-exec")));

DV_HIDDEN struct notes *notes_make(void);

/* The calling thread's; NULL if there is no memory. */
static inline struct notes *notes_own(void) {
    struct notes *notes = notes_here;
    return __builtin_expect(notes != NULL, 1) ? notes : notes_make();
}

#endif
