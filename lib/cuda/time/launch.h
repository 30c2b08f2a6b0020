/*
 * What a hook does to account for GPU time.
 *
 * A launch is counted, waits for the share's budget and is measured:
 *
 *     if (!launch_counts()) return DV_REAL(fn)(...);     one load or two where nothing is limited
 *     struct launch launch;
 *     result = launch_begin(&launch, launch_legacy(stream), key, prior);
 *     if (result == CUDA_SUCCESS) result = DV_CALL(fn, ...);
 *     launch_end(&launch, result);
 *
 * Other calls are reported and never wait: launch_follows comes before a call that puts something
 * into a stream that is not work; launch_waits and launch_waited come around a call that returns
 * when all work of a stream is done.
 */
#ifndef DIVVY_CUDA_TIME_LAUNCH_H
#define DIVVY_CUDA_TIME_LAUNCH_H

#include <stddef.h>

#include "abi/generated/page_layout.h"
#include "cuda/time/flight.h"

/* For each GPU of the share, where the flags of its budget stand; and the number of GPUs. Until the
 * share is attached there is one, and its flags are 0. */
DV_HIDDEN extern const uint32_t *launch_flags[DV_PAGE_DEVICES];
DV_HIDDEN extern unsigned launch_gpus;

/* A word that is 0 while no GPU's time is divided: the flags of the only GPU. Of several GPUs it is
 * never 0, and launch_any looks at each. */
DV_HIDDEN extern const uint32_t *launch_watch;
DV_HIDDEN bool launch_any(void);

/* Whether the time of any GPU is divided. */
static inline bool launch_watched(void) {
    return __builtin_expect(__atomic_load_n(launch_watch, __ATOMIC_RELAXED) != 0, 0) &&
           (__atomic_load_n(&launch_gpus, __ATOMIC_RELAXED) == 1 || launch_any());
}

/* The same, but false in a call that the driver made and not the program. */
#define launch_counts() (launch_watched() && !DV_INNER())

/* The stream that NULL means: the legacy one, or in the per-thread variants of the interface the
 * thread's own. */
static inline CUstream launch_legacy(CUstream stream) {
    return stream != NULL ? stream : CU_STREAM_LEGACY;
}
static inline CUstream launch_own(CUstream stream) {
    return stream != NULL ? stream : CU_STREAM_PER_THREAD;
}

#define LAUNCH_STRETCH                                                                             \
    ((offsetof(dv_page_budget, stretch) - offsetof(dv_page_budget, flags)) / sizeof(uint32_t))

/* What the launch costs, as known by now. */
static inline __attribute__((always_inline)) void launch_price(struct launch *launch,
                                                               uint32_t flags) {
    launch->ns = cost_ns(launch->cost);
    launch->charge = 0;
    if (flags & DV_PAGE_BUDGET_LIMITED) {
        /* The flags stand in the budget, which tells the stretch too. */
        const uint32_t *word = launch_flags[launch->flight->gpu->number] + LAUNCH_STRETCH;
        uint32_t stretch = __atomic_load_n(word, __ATOMIC_RELAXED);
        launch->charge = launch->ns;
        if (stretch != DV_PAGE_WHOLE) {
            launch->charge = launch->ns * dv_time_stretch_of(stretch) / DV_PAGE_WHOLE;
        }
    }
}

/* Fails if the stream ended, or the kernel was unloaded, while the launch waited. */
DV_HIDDEN CUresult launch_begin(struct launch *launch, CUstream stream, struct work work,
                                uint64_t prior);
DV_HIDDEN void launch_end(struct launch *launch, CUresult result);

/* The same for one of several launches of one call, behind the first: that has passed the turn gate for all. */
DV_HIDDEN CUresult launch_joins(struct launch *launch, CUstream stream, struct work work,
                                uint64_t prior);

/* The same for what moves memory and is no work of the GPU itself: it passes the turn gate alone. */
DV_HIDDEN CUresult launch_passes(struct launch *launch, CUstream stream);

/* The same for the record of an event, which is charged, and waits only in a stream that gets hardly anything else. */
DV_HIDDEN CUresult launch_records(struct launch *launch, CUstream stream);
/* The same where the event is of no stream: it is charged to the legacy one of the current context, and not measured there. */
DV_HIDDEN CUresult launch_records_apart(struct launch *launch);

/* Before something that is not a launch is given to the stream. */
DV_HIDDEN void launch_follows(CUstream stream);

/* A wait for a stream, and what the stream had been given before it. */
struct wait {
    struct flight *flight; /* NULL: nothing is known of the stream */
    uint64_t given;
};
DV_HIDDEN void launch_waits(struct wait *wait, CUstream stream);
DV_HIDDEN void launch_waited(const struct wait *wait, CUresult result);

/* A call of the program begins in which it waits for a copy or for the GPU, and has ended, since
 * then: counted for people. Only while launch_watched. */
DV_HIDDEN uint64_t launch_blocks(void);
DV_HIDDEN void launch_blocked(uint64_t since, bool copies);

/* The program learned that something is done, but not in which stream. Reads the stream into which
 * the calling thread launched last. */
DV_HIDDEN void launch_looked(void);

#endif
