/*
 * The work that the GPU was given in one stream, and when it did that work.
 *
 * Launches are measured in batches between two events: the first is recorded before a batch's first
 * launch, the second after about a millisecond of estimated work, or before something that is not
 * work follows in the stream. A batch that follows another without a gap begins with that one's
 * end. If the stream keeps running dry, because the program waits for every launch, launches are
 * measured one by one. Once the cost of such a launch is learned, only some are measured and the
 * others are charged at that cost. Results are read when a call of the program offers the occasion;
 * no call waits for one.
 *
 * The legacy stream is a barrier: what follows in it waits for all blocking streams of its context,
 * and they for it. Where there are such streams, an event of ours stands in the legacy stream only
 * right beside a launch, inside the program's own call of that. To every thread the two events and
 * the launch are then like the launch alone. So in such a flight a launch is measured alone or not.
 *
 * A flight is found by its stream and context. It is never freed but used again, empty, for another
 * stream. Times are ns of CLOCK_MONOTONIC; amounts of work are ns of estimate.
 */
#ifndef DIVVY_CUDA_TIME_FLIGHT_H
#define DIVVY_CUDA_TIME_FLIGHT_H

#include "cuda/context.h"
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
    CUevent begin; /* NULL: the batch begins where the one before it ended */
    CUevent end;
    CUevent echo; /* right after the end, to learn what an event costs; mostly NULL */
    uint64_t begin_after, end_after; /* when the calls that recorded them began */
    uint64_t
        launch_after; /* when the first launch was given, at the earliest; 0: it follows the batch before */
    uint64_t given;       /* the flight's given when the batch ended */
    uint64_t ns, charged; /* the estimate, and the estimate times the stretch */
    uint32_t launches;
    uint32_t number;
    uint64_t turn;   /* the share's turn that its launch took, until it is measured; 0: none */
    bool alone;      /* ends with its first launch */
    bool loaded;     /* code was loaded in the call of that launch, so launch_after is its end */
    bool neighbours; /* other tenants had work on the GPU */
    struct part parts[FLIGHT_PARTS];
};

struct flight {
    /* Valid while it has a stream. */
    CUstream stream;
    CUcontext context;  /* the stream's; default streams can be named only while it is current */
    const void *thread; /* whose per-thread default stream it is */
    struct stamps *stamps;
    struct gpu *gpu;
    struct flight *chain; /* next flight with the same hash */
    struct flight *next;  /* next of all flights */
    uint32_t pins;        /* threads that use the flight during a call about another stream */
    uint32_t gone;        /* the stream is being destroyed, or there is none */
    uint32_t ends;        /* how many streams have ended that it served; atomic */
    uint64_t noted;       /* what was given when a thread began to wait for the whole context */

    lock lock; /* protects what follows; words that are read without it are stored atomically */
    uint64_t given, done;
    uint64_t expected; /* when all that was given will be done, as estimated */
    uint64_t oldest;   /* no piece that is still to be read begins earlier; UINT64_MAX: none */
    uint64_t plain;    /* charged without measurement and not yet told */
    int64_t owed;      /* charged and not yet taken from the bucket */
    int32_t owed_launches;
    uint64_t
        unseen; /* ns given, or ns charged if that is more, since the budget was last looked at */
    uint64_t records; /* the same of events alone, since a launch last looked */
    uint32_t turn;    /* counts launches that could be measured alone */
    uint32_t batches; /* ever opened */
    uint32_t closing; /* threads that record the end of a batch they have taken */
    bool refuses;     /* the driver records no event of ours in the stream */
    bool adjoins;     /* the end of the last batch is the last thing in the stream */
    bool is_open;
    struct batch open;
    struct batch ring[FLIGHT_BATCHES];
    uint32_t first, count;
    uint64_t ended_after; /* when the batch read last ended, at the earliest */
    int64_t ended_at;     /* for the reader: end of the batch read last, in the context's clock */
    bool ended_known;
};

/* A launch under way. */
struct launch {
    struct flight *flight; /* NULL: nothing is charged, or no more */
    struct cost *cost;
    uint64_t ns, charge;
    uint64_t now;
    uint64_t turn;  /* taken for it, because its cost is unknown, until a batch has it; 0: none */
    uint32_t batch; /* number of the batch that it is in, 0: none measures it */
    bool ends_batch;
    bool taken;   /* its charge is in the bucket already */
    bool waited;  /* it had to wait, so others will follow it at once */
    bool unknown; /* nobody knows its cost, not even about */
    bool records; /* it is the record of an event */
    bool apart;   /* it is in no order with the flight's stream, whose events cannot measure it */
    bool alone;   /* has to be measured alone; only then also: */
    bool loads;   /* its code may be loaded inside the driver's call */
    bool yields;  /* it waits because a neighbour's pulse beats */
    /* Whether flight is NULL or not: */
    uint32_t turns; /* see turns.h */
};

/* The flight of a stream; NULL stands for CU_STREAM_LEGACY. flight_of makes one if there is none,
 * flight_find does not. Both return NULL if the context or its GPU is not known. */
DV_HIDDEN struct flight *flight_of(CUstream stream);
DV_HIDDEN struct flight *flight_find(CUstream stream);

/* No stream of this context is used any more, except by the program. `lost`: the context has ended
 * already, and its streams and events with it. */
EVENT(context_left, (uint32_t owner, bool lost));

/* All flights that were ever made. */
DV_HIDDEN extern struct flight *flights_made;
static inline struct flight *flights_all(void) {
    return __atomic_load_n(&flights_made, __ATOMIC_ACQUIRE);
}

static inline bool flight_belongs(const struct flight *flight, const struct stamps *stamps) {
    return __atomic_load_n(&flight->stamps, __ATOMIC_ACQUIRE) == stamps;
}

/* For a call that is not about this stream: keeps the stream and its context from ending, until
 * flight_unpin. False if they end or have ended. flight_hold is for a flight of a context,
 * flight_pin for any. */
DV_HIDDEN bool flight_hold(struct flight *flight, const struct stamps *stamps);
DV_HIDDEN bool flight_pin(struct flight *flight);
DV_HIDDEN void flight_unpin(struct flight *flight);

/* The same as flight_pin, for the stream that the flight had when flight_ends was `ends`. */
DV_HIDDEN bool flight_pin_still(struct flight *flight, uint32_t ends);
static inline uint32_t flight_ends(const struct flight *flight) {
    return __atomic_load_n(&flight->ends, __ATOMIC_SEQ_CST);
}

/* The stamps of a context; NULL if nothing was given to it. flights_begun makes them then, and
 * returns NULL if there is no memory. */
DV_HIDDEN struct stamps *flights_owned(uint32_t owner);
DV_HIDDEN struct stamps *flights_begun(struct home home);

/* Before and after the driver's launch. */
DV_HIDDEN void flight_give(struct flight *flight, struct launch *launch);
DV_HIDDEN void flight_given(struct flight *flight, struct launch *launch, CUresult result);

/* Whether the flight is of a legacy stream that orders others. */
static inline bool flight_orders(const struct flight *flight) {
    return flight->stream == CU_STREAM_LEGACY &&
           __atomic_load_n(&flight->stamps->blocking, __ATOMIC_RELAXED) != 0;
}

/* Ends the open batch, because something that is not work follows in the stream or the thread is
 * about to wait. When this returns, no other thread records in the stream either. flight_close does
 * not wait for that. */
DV_HIDDEN void flight_break(struct flight *flight);
DV_HIDDEN void flight_close(struct flight *flight);

/* Reads the batches that are done. */
DV_HIDDEN void flight_read(struct flight *flight);

/* Waits until the launch that has the share's turn is measured, DV_TIME_WAIT_NS at most. */
DV_HIDDEN void flight_await_turn(struct flight *flight);

/* Nobody will measure what was launched in this turn. It took no longer than until now. */
DV_HIDDEN void flight_drop_turn(struct flight *flight, uint64_t turn);

/* All work up to `finished` is known to be done. */
DV_HIDDEN void flight_finish(struct flight *flight, uint64_t finished);

static inline uint64_t flight_given_so_far(const struct flight *flight) {
    return __atomic_load_n(&flight->given, __ATOMIC_RELAXED);
}

/* Work that was given to this GPU and is not known to be done. */
DV_HIDDEN uint64_t flights_unfinished(const struct gpu *gpu, uint64_t now);

/* When the oldest work of this process began that is not known to be done; UINT64_MAX: none. */
DV_HIDDEN uint64_t flights_oldest(void);

/* Gives up measuring all that is under way, and charges what is owed for it. The caller is the
 * reader of its stamps. */
DV_HIDDEN void flight_drop(struct flight *flight);

/* Takes over what the launches of this flight owe, so that the caller charges it. */
DV_HIDDEN int64_t flight_settle(struct flight *flight, int32_t *launches);

/* Adds ns, which may be negative, to what the flight owes. */
DV_HIDDEN void flight_owe(struct flight *flight, int64_t ns);

/* A stream that waits for the legacy stream is about to be made or used in the current context. */
DV_HIDDEN void flights_block(void);

/* Ends the open batches of all streams of a context but one; reads the batches of all its streams
 * that are done. */
DV_HIDDEN void flights_break(const struct stamps *stamps, const struct flight *but);
DV_HIDDEN void flights_read(const struct stamps *stamps);
/* The same for all contexts of a GPU. */
DV_HIDDEN void flights_read_all(const struct gpu *gpu);
/* Something else than work follows in all streams of a context. */
DV_HIDDEN void flights_follow(uint32_t owner);
/* flights_note remembers what the streams of a context have been given. After a successful wait for
 * all of them, flights_finish takes that much as done. With `only`, a green context, those of that
 * one alone. */
DV_HIDDEN void flights_note(uint32_t owner);
DV_HIDDEN void flights_finish(uint32_t owner, CUcontext only);

/* Whether any stream of this process has work, asked in a thread that has a relaxed capture mode and no
 * context. Streams that are captured have none. Per-thread default streams of other threads cannot be
 * asked; of them only what is measured is known. */
DV_HIDDEN bool flights_busy(void);

/* Tells the arbiter what is known about the work on a GPU. */
DV_HIDDEN void flights_tell(struct gpu *gpu);

/* Does in all streams what flight_drop does in one. */
DV_HIDDEN void flights_forget(void);

#endif
