#include "cuda/time/flight.h"

#include <sched.h>
#include <string.h>
#include <sys/mman.h>

#include "cuda/context.h"
#include "cuda/fork.h"
#include "cuda/stream.h"
#include "cuda/time/capture.h"
#include "cuda/time/notes.h"
#include "cuda/time/now.h"

#define CHAINS 256u /* power of two */
#define SLAB 16u    /* flights whose memory is taken at once */

static lock streams; /* protects the chains and what identifies a flight */
static struct flight *chains[CHAINS];
struct flight *flights_made;
static struct flight *unused;
static struct stamps *contexts;
static struct stamps nobody = {.state = STAMPS_ENDED}; /* of flights that have no stream */
static uint32_t
    change; /* raised when the handle of a stream may name a different stream than before */

static struct seen *seen_of(struct notes *notes, CUstream stream) {
    return &notes->seen[table_hash((uint64_t)(uintptr_t)stream) >> 61];
}
_Static_assert(NOTES_STREAMS == 1u << (64 - 61), "three bits choose one");

static const void *this_thread(void) {
    return notes_here;
}

static struct flight **chain_of(CUstream stream) {
    return &chains[table_hash((uint64_t)(uintptr_t)stream) >> 56];
}

static void *pages(size_t bytes) {
    void *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return at != MAP_FAILED ? at : NULL;
}

static void add_slab(struct flight *slab) {
    for (unsigned i = 0; i < SLAB; i++) {
        slab[i].oldest = UINT64_MAX;
        slab[i].stamps = &nobody;
        slab[i].gone = 1;
        slab[i].chain = unused;
        unused = &slab[i];
        slab[i].next = flights_made;
        __atomic_store_n(&flights_made, &slab[i], __ATOMIC_RELEASE);
    }
}

/* The stamps of a context in this state; the caller holds the lock. NULL if there are none. */
static struct stamps *stamps_in(uint32_t owner, uint32_t state) {
    struct stamps *found = contexts;
    while (found != NULL && (found->owner != owner || stamps_state(found) != state)) {
        found = found->next;
    }
    return found;
}

/* Stamps for a new context; those of one that has ended are used again, empty. */
static struct stamps *stamps_new(struct home home) {
    struct stamps *made = contexts;
    while (made != NULL && stamps_state(made) != STAMPS_ENDED) {
        made = made->next;
    }
    if (made == NULL && (made = pages(sizeof *made)) != NULL) {
        made->next = contexts;
        contexts = made;
    }
    if (made != NULL) {
        stamps_begin_life(made, home.owner, home.device);
    }
    return made;
}

/* Finds or makes the context's stamps; the caller holds the lock. NULL if there is no memory. */
static struct stamps *stamps_of(struct home home) {
    struct stamps *found = stamps_in(home.owner, STAMPS_LIVE);
    return found != NULL ? found : stamps_new(home);
}

/* The default streams of a green context are not those of its GPU's primary one, though both have
 * one owner. */
static bool is(const struct flight *flight, CUstream stream, CUcontext context, uint32_t owner) {
    return flight->stream == stream && flight->stamps->owner == owner &&
           stamps_state(flight->stamps) == STAMPS_LIVE &&
           (!stream_is_default(stream) || flight->context == context) &&
           (stream != CU_STREAM_PER_THREAD || flight->thread == this_thread());
}

static struct flight *search(CUstream stream, CUcontext context, uint32_t owner) {
    lock_take(&streams);
    struct flight *flight = *chain_of(stream);
    while (flight != NULL && !is(flight, stream, context, owner)) {
        flight = flight->chain;
    }
    lock_give(&streams);
    return flight;
}

static struct flight *make(CUstream stream, CUcontext context, struct home home) {
    struct gpu *gpu = gpu_at(home.device);
    if (gpu == NULL) {
        return NULL;
    }
    lock_take(&streams);
    bool empty = unused == NULL;
    lock_give(&streams);
    struct flight *slab = empty ? pages(SLAB * sizeof *slab) : NULL;
    lock_take(&streams);
    if (slab != NULL) {
        add_slab(slab);
    }
    struct flight *flight = unused;
    struct stamps *stamps = flight != NULL ? stamps_of(home) : NULL;
    if (stamps == NULL) {
        lock_give(&streams);
        return NULL;
    }
    unused = flight->chain;
    flight->stream = stream;
    flight->context = context;
    flight->thread = this_thread();
    flight->refuses = false;
    __atomic_store_n(&flight->gpu, gpu, __ATOMIC_RELAXED);
    __atomic_store_n(&flight->stamps, stamps, __ATOMIC_RELEASE);
    __atomic_store_n(&flight->gone, 0, __ATOMIC_RELEASE);
    flight->chain = *chain_of(stream);
    *chain_of(stream) = flight;
    lock_give(&streams);
    return flight;
}

static struct flight *look_up(struct notes *notes, CUstream stream, CUcontext context,
                              bool making) {
    struct home home;
    uint32_t now = __atomic_load_n(&change, __ATOMIC_ACQUIRE);
    CUcontext of = context;
    if (stream_context(stream, &of, &home) != CUDA_SUCCESS) {
        return NULL;
    }
    if (stream == CU_STREAM_PER_THREAD) {
        flights_block();
    }
    struct flight *flight = search(stream, of, home.owner);
    if (flight == NULL && making) {
        flight = make(stream, of, home);
    }
    if (flight != NULL) {
        if (notes->seen_change != now) {
            memset(notes->seen, 0, sizeof notes->seen);
            notes->seen_change = now;
        }
        *seen_of(notes, stream) = (struct seen){stream, context, flight};
    }
    return flight;
}

static struct flight *at(CUstream stream, bool making) {
    CUcontext context = NULL;
    struct notes *notes = notes_own();
    if (__builtin_expect(notes == NULL, 0)) {
        return NULL;
    }
    if (stream == CU_STREAM_LEGACY || stream == CU_STREAM_PER_THREAD) {
        if (DV_CALL(cuCtxGetCurrent, &context) != CUDA_SUCCESS || context == NULL) {
            return NULL;
        }
    }
    const struct seen *known = seen_of(notes, stream);
    if (__builtin_expect(known->stream == stream && known->context == context &&
                             notes->seen_change == __atomic_load_n(&change, __ATOMIC_ACQUIRE),
                         1)) {
        return known->flight;
    }
    return look_up(notes, stream, context, making);
}

struct flight *flight_of(CUstream stream) {
    return at(stream, true);
}

struct flight *flight_find(CUstream stream) {
    return __atomic_load_n(&flights_made, __ATOMIC_ACQUIRE) != NULL ? at(stream, false) : NULL;
}

bool flight_pin(struct flight *flight) {
    __atomic_add_fetch(&flight->pins, 1, __ATOMIC_SEQ_CST);
    if (__atomic_load_n(&flight->gone, __ATOMIC_SEQ_CST) == 0) {
        return true;
    }
    __atomic_sub_fetch(&flight->pins, 1, __ATOMIC_SEQ_CST);
    return false;
}

void flight_unpin(struct flight *flight) {
    __atomic_sub_fetch(&flight->pins, 1, __ATOMIC_SEQ_CST);
}

bool flight_pin_still(struct flight *flight, uint32_t ends) {
    if (!flight_pin(flight)) {
        return false;
    }
    if (flight_ends(flight) == ends) {
        return true;
    }
    flight_unpin(flight);
    return false;
}

bool flight_hold(struct flight *flight, const struct stamps *stamps) {
    if (!flight_belongs(flight, stamps) || !flight_pin(flight)) {
        return false;
    }
    if (flight_belongs(flight, stamps)) {
        return true;
    }
    flight_unpin(flight);
    return false;
}

struct stamps *flights_begun(struct home home) {
    lock_take(&streams);
    struct stamps *stamps = stamps_of(home);
    lock_give(&streams);
    return stamps;
}

struct stamps *flights_owned(uint32_t owner) {
    lock_take(&streams);
    struct stamps *stamps = stamps_in(owner, STAMPS_LIVE);
    lock_give(&streams);
    return stamps;
}

/* Removes a flight from its chain when its stream is gone, and frees it. The caller holds the
 * lock. */
static void retire(struct flight **link) {
    struct flight *flight = *link;
    *link = flight->chain;
    flight->chain = unused;
    unused = flight;
}

static struct flight **link_to(struct flight *flight) {
    struct flight **link = chain_of(flight->stream);
    while (*link != NULL && *link != flight) {
        link = &(*link)->chain;
    }
    return link;
}

/* Waits until nobody else reads or records in the flight, and frees it for another stream. Does
 * nothing if another thread does so. */
static void end(struct flight *flight, struct stamps *stamps) {
    if (__atomic_exchange_n(&flight->gone, 1, __ATOMIC_SEQ_CST) != 0) {
        return;
    }
    __atomic_add_fetch(&flight->ends, 1, __ATOMIC_SEQ_CST);
    while (__atomic_load_n(&flight->pins, __ATOMIC_SEQ_CST) > 0) {
        sched_yield();
    }
    stamps_await(stamps);
    flight_drop(flight);
    stamps_end(stamps);
    lock_take(&streams);
    struct flight **link = link_to(flight);
    if (*link == flight) {
        __atomic_store_n(&flight->stamps, &nobody, __ATOMIC_RELEASE);
        retire(link);
    }
    lock_give(&streams);
}

void flights_forget(void) {
    for (struct flight *flight = flights_all(); flight != NULL; flight = flight->next) {
        struct stamps *stamps = __atomic_load_n(&flight->stamps, __ATOMIC_ACQUIRE);
        if (flight_hold(flight, stamps)) {
            stamps_await(stamps);
            flight_drop(flight);
            stamps_restart(stamps);
            stamps_end(stamps);
            flight_unpin(flight);
        }
    }
}

/* The flight of a stream that the program has made, whatever its context. Asks nobody. */
static struct flight *flight_named(CUstream stream) {
    lock_take(&streams);
    struct flight *flight = *chain_of(stream);
    while (flight != NULL && flight->stream != stream) {
        flight = flight->chain;
    }
    lock_give(&streams);
    return flight;
}

static void flights_stream_ending(CUstream stream) {
    struct flight *flight = flight_named(stream);
    if (flight != NULL && stream != CU_STREAM_LEGACY && stream != CU_STREAM_PER_THREAD) {
        flight_break(flight);
        flight_await_turn(
            flight); /* once the stream is gone, it would be unknown again and again */
        end(flight, flight->stamps);
        __atomic_add_fetch(&change, 1, __ATOMIC_RELEASE);
    }
}
ON(stream_ending, flights_stream_ending);

static void end_all(struct stamps *stamps) {
    for (struct flight *flight = flights_all(); flight != NULL; flight = flight->next) {
        if (flight_belongs(flight, stamps)) {
            end(flight, stamps);
        }
    }
    __atomic_add_fetch(&change, 1, __ATOMIC_RELEASE);
}

/* When this returns no thread reads or records an event of the context any more. */
static void flights_ending(struct home home) {
    struct stamps *stamps = flights_owned(home.owner);
    if (stamps != NULL) {
        end_all(stamps);
        TELL(context_left, (home.owner, false));
        stamps_await(stamps);
        __atomic_store_n(&stamps->state, STAMPS_ENDING, __ATOMIC_RELEASE);
        stamps_end(stamps);
    }
}
ON(context_ending, flights_ending);

/* Its events are the primary context's and live on. */
static void flights_green_ending(CUcontext context) {
    struct home home;
    struct stamps *stamps = context_known(context, &home) ? flights_owned(home.owner) : NULL;
    if (stamps == NULL) {
        return;
    }
    flights_break(stamps, NULL);
    for (struct flight *flight = flights_all(); flight != NULL; flight = flight->next) {
        if (!flight_hold(flight, stamps)) {
            continue;
        }
        bool is_green = flight->context == context;
        if (is_green) {
            flight_await_turn(flight);
        }
        flight_unpin(flight);
        if (is_green) {
            end(flight, stamps);
        }
    }
    __atomic_add_fetch(&change, 1, __ATOMIC_RELEASE);
}
ON(green_ending, flights_green_ending);

/* The context is as it was, or its events are gone with it. */
static void settle(struct home home, bool live) {
    lock_take(&streams);
    struct stamps *stamps = stamps_in(home.owner, STAMPS_ENDING);
    if (stamps != NULL) {
        live = live && stamps_in(home.owner, STAMPS_LIVE) == NULL;
        __atomic_store_n(&stamps->state, live ? STAMPS_LIVE : STAMPS_ENDED, __ATOMIC_RELEASE);
    }
    lock_give(&streams);
}

static void flights_spared(struct home home) {
    settle(home, true);
}
ON(context_spared, flights_spared);

/* A context that ended unexpectedly, by a call that we did not see, is still live here. */
static void flights_emptied(struct home home) {
    struct stamps *stamps = flights_owned(home.owner);
    if (stamps != NULL) {
        __atomic_store_n(&stamps->state, STAMPS_LOST, __ATOMIC_RELEASE);
        end_all(stamps);
        TELL(context_left, (home.owner, true));
    }
    settle(home, false);
}
ON(context_emptied, flights_emptied);

/* The parent's work is not the child's. The memory is not reused, because a thread of the parent
 * may have been changing it. */
static void flights_forked(void) {
    streams = (lock){0};
    memset(chains, 0, sizeof chains);
    flights_made = unused = NULL;
    contexts = NULL;
    change++;
}
ON(forked, flights_forked);
