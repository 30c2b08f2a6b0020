/*
 * What the GPU has been given in one stream, and when it did it.
 *
 * Launches are measured in batches between two events: the first is recorded before a batch's first
 * launch, the second after about a millisecond of estimated work, or before anything else than work
 * follows in the stream. A batch that adjoins the one before begins with that one's end. Where the
 * stream keeps running dry, because the program waits for every launch, launches are measured one
 * by one, and once their cost is learned only now and then: the rest is charged at that cost.
 * Results are read when there is an occasion; nothing ever waits for one.
 *
 * A flight is known by its stream and context, is never freed, and lives on, empty, for the next
 * stream. Times are ns of CLOCK_MONOTONIC; amounts of work ns of estimate.
 */
#ifndef DIVVY_CUDA_TIME_FLIGHT_H
#define DIVVY_CUDA_TIME_FLIGHT_H

#include "cuda/driver.h"
#include "cuda/time/cost.h"
#include "cuda/time/gpu.h"
#include "cuda/time/stamps.h"

#define FLIGHT_PARTS 32u   /* kinds of launches told apart in a batch, power of two */
#define FLIGHT_BATCHES 32u /* ended and not read, power of two */

/* Launches of one kind in a batch. */
struct part {
    struct cost *cost;
    uint64_t ns; /* estimated */
    uint32_t count;
    bool fresh; /* nothing was known of it */
};

struct batch {
    CUevent begin; /* NULL: begins where the one before it ended */
    CUevent end;
    CUevent echo; /* right after the end, to learn what an event takes; mostly NULL */
    uint64_t begin_after, end_after; /* when the calls that recorded them began */
    uint64_t launch_after;           /* when the call that gave the first launch did; 0: adjoins */
    uint64_t given;                  /* the flight's, at the end */
    uint64_t ns, charged;            /* estimated, and after the stretch */
    uint32_t launches;
    uint32_t number;
    bool alone;      /* ends with its first launch */
    bool neighbours; /* others had work on the GPU */
    struct part parts[FLIGHT_PARTS];
};

struct flight {
    /* Set while it has a stream. */
    CUstream stream;
    const void *thread; /* whose per-thread default stream it is */
    struct stamps *stamps;
    struct gpu *gpu;
    struct flight *chain; /* of the same hash */
    struct flight *next;  /* of all */
    uint32_t pins;        /* threads that record in it though the stream is not theirs */
    uint32_t gone;        /* the stream is being destroyed */
    uint64_t noted;       /* given when somebody began to wait for the whole context */

    lock lock; /* of what follows; words that others read are stored atomically */
    uint64_t given, done;
    uint64_t expected; /* when all that was given will be done, by estimate */
    uint64_t oldest;   /* no piece that is still to be read begins earlier; UINT64_MAX: none */
    uint64_t plain;    /* charged without measurement and not yet told */
    int64_t owed;      /* charged and not yet taken from the bucket */
    int32_t owed_launches;
    uint64_t unseen;  /* ns given, or charged if that is more, since the budget was looked at */
    uint32_t turn;    /* counts launches that could be measured alone */
    uint32_t batches; /* ever opened */
    bool adjoins;     /* the end of the last batch is the last thing in the stream */
    bool is_open;
    struct batch open;
    struct batch ring[FLIGHT_BATCHES];
    uint32_t first, count;
    uint64_t ended_after; /* of the batch read last, at the earliest */
    int64_t ended_at;     /* the reader's: end of the batch read last, in the context's clock */
    bool ended_known;
};

/* A launch under way. */
struct launch {
    struct flight *flight; /* NULL: nothing is charged */
    struct cost *cost;
    uint64_t ns, charge;
    uint64_t now;
    uint32_t batch; /* number of the one it is in, 0: measured by none */
    bool ends_batch;
    bool taken;  /* its charge is in the bucket already */
    bool waited; /* it was held up, so that more will follow at once */
};

/* The flight of a stream, NULL being CU_STREAM_LEGACY. The second makes none. NULL where the
 * context or GPU is unknown. */
DV_HIDDEN struct flight *flight_of(CUstream stream);
DV_HIDDEN struct flight *flight_find(CUstream stream);

/* Before and after the driver's launch. */
DV_HIDDEN void flight_give(struct flight *flight, struct launch *launch);
DV_HIDDEN void flight_given(struct flight *flight, struct launch *launch, CUresult result);

/* Something else than work follows in the stream, or its thread is about to wait. */
DV_HIDDEN void flight_break(struct flight *flight);

/* Reads what is done. All work up to `finished` is known to be. */
DV_HIDDEN void flight_read(struct flight *flight, uint64_t finished);

/* All work up to `finished` is known to be done. */
DV_HIDDEN void flight_finish(struct flight *flight, uint64_t finished);

static inline uint64_t flight_given_so_far(const struct flight *flight) {
    return __atomic_load_n(&flight->given, __ATOMIC_RELAXED);
}

/* Work given to this GPU and not known to be done. */
DV_HIDDEN uint64_t flights_unfinished(const struct gpu *gpu, uint64_t now);

/* Forgets all that is under way: it counts as not measured, and what is owed is charged. The caller
 * is the reader of its stamps. */
DV_HIDDEN void flight_drop(struct flight *flight);

/* Takes what launches in this flight owe, to charge it. */
DV_HIDDEN int64_t flight_settle(struct flight *flight, int32_t *launches);

/* Adds to what it owes, or takes off it. */
DV_HIDDEN void flight_owe(struct flight *flight, int64_t ns);

/* Ends the open batches of a context's other streams, and reads what is done in all. */
DV_HIDDEN void flights_break(const struct stamps *stamps, const struct flight *but);
DV_HIDDEN void flights_read(const struct stamps *stamps);
/* Something else than work follows in all streams of a context. */
DV_HIDDEN void flights_follow(uint32_t owner);
/* Notes what the context's streams have been given; and, after a successful wait for all of them,
 * that this much is done. */
DV_HIDDEN void flights_note(uint32_t owner);
DV_HIDDEN void flights_finish(uint32_t owner);

/* Tells the arbiter what is known of a GPU. */
DV_HIDDEN void flights_tell(struct gpu *gpu);

/* Forgets what is under way in all streams, as flight_drop does. */
DV_HIDDEN void flights_forget(void);

/* Before a stream is destroyed. */
DV_HIDDEN void flights_stream_ending(CUstream stream);
#endif
