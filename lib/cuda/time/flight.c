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
static struct flight *flights; /* all that were ever made */
static struct flight *unused;
static struct stamps *contexts;
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
        slab[i].chain = unused;
        unused = &slab[i];
        slab[i].next = flights;
        __atomic_store_n(&flights, &slab[i], __ATOMIC_RELEASE);
    }
}

/* Finds or makes the context's stamps; the caller holds the lock. NULL if there is no memory. */
static struct stamps *stamps_of(struct home home) {
    struct stamps *found = contexts;
    while (found != NULL && (found->owner != home.owner || found->dead)) {
        found = found->next;
    }
    if (found == NULL && (found = pages(sizeof *found)) != NULL) {
        found->owner = home.owner;
        found->device = home.device;
        found->next = contexts;
        contexts = found;
    }
    return found;
}

static bool is(const struct flight *flight, CUstream stream, uint32_t owner) {
    return flight->stream == stream && flight->stamps->owner == owner && !flight->stamps->dead &&
           (stream != CU_STREAM_PER_THREAD || flight->thread == this_thread());
}

static struct flight *search(CUstream stream, uint32_t owner) {
    lock_take(&streams);
    struct flight *flight = *chain_of(stream);
    while (flight != NULL && !is(flight, stream, owner)) {
        flight = flight->chain;
    }
    lock_give(&streams);
    return flight;
}

static struct flight *make(CUstream stream, struct home home) {
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
    flight->thread = this_thread();
    __atomic_store_n(&flight->gpu, gpu, __ATOMIC_RELAXED);
    __atomic_store_n(&flight->gone, 0, __ATOMIC_RELAXED);
    __atomic_store_n(&flight->stamps, stamps, __ATOMIC_RELEASE);
    flight->chain = *chain_of(stream);
    *chain_of(stream) = flight;
    lock_give(&streams);
    return flight;
}

static struct flight *look_up(struct notes *notes, CUstream stream, CUcontext context,
                              bool making) {
    struct home home;
    uint32_t now = __atomic_load_n(&change, __ATOMIC_ACQUIRE);
    CUresult result = context != NULL ? context_find(context, &home) : stream_home(stream, &home);
    if (result != CUDA_SUCCESS) {
        return NULL;
    }
    struct flight *flight = search(stream, home.owner);
    if (flight == NULL && making) {
        flight = make(stream, home);
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
    return __atomic_load_n(&flights, __ATOMIC_ACQUIRE) != NULL ? at(stream, false) : NULL;
}

static struct flight *all(void) {
    return __atomic_load_n(&flights, __ATOMIC_ACQUIRE);
}

static bool belongs(const struct flight *flight, const struct stamps *stamps) {
    return __atomic_load_n(&flight->stamps, __ATOMIC_ACQUIRE) == stamps;
}

/* Keeps the stream from being destroyed. False if it is being destroyed already. */
static bool pin(struct flight *flight) {
    __atomic_add_fetch(&flight->pins, 1, __ATOMIC_SEQ_CST);
    if (__atomic_load_n(&flight->gone, __ATOMIC_SEQ_CST) == 0) {
        return true;
    }
    __atomic_sub_fetch(&flight->pins, 1, __ATOMIC_SEQ_CST);
    return false;
}

static void unpin(struct flight *flight) {
    __atomic_sub_fetch(&flight->pins, 1, __ATOMIC_SEQ_CST);
}

/* Pins a flight of this context; false if it is none. */
static bool hold(struct flight *flight, const struct stamps *stamps) {
    if (!belongs(flight, stamps) || !pin(flight)) {
        return false;
    }
    if (belongs(flight, stamps)) {
        return true;
    }
    unpin(flight);
    return false;
}

/* A thread cannot name the per-thread default stream of another thread. */
static bool is_reachable(const struct flight *flight) {
    return flight->stream != CU_STREAM_PER_THREAD || flight->thread == this_thread();
}

void flights_break(const struct stamps *stamps, const struct flight *but) {
    for (struct flight *flight = all(); flight != NULL; flight = flight->next) {
        if (flight == but || !__atomic_load_n(&flight->is_open, __ATOMIC_RELAXED) ||
            !hold(flight, stamps)) {
            continue;
        }
        if (is_reachable(flight)) {
            flight_break(flight);
        }
        unpin(flight);
    }
}

void flights_read(const struct stamps *stamps) {
    for (struct flight *flight = all(); flight != NULL; flight = flight->next) {
        if (__atomic_load_n(&flight->count, __ATOMIC_RELAXED) > 0 && hold(flight, stamps)) {
            flight_read(flight, 0);
            unpin(flight);
        }
    }
}

void flights_read_all(const struct gpu *gpu) {
    for (struct flight *flight = all(); flight != NULL; flight = flight->next) {
        const struct stamps *stamps = __atomic_load_n(&flight->stamps, __ATOMIC_ACQUIRE);
        if (stamps != NULL && __atomic_load_n(&flight->gpu, __ATOMIC_RELAXED) == gpu &&
            __atomic_load_n(&flight->count, __ATOMIC_RELAXED) > 0 && hold(flight, stamps)) {
            flight_read(flight, 0);
            unpin(flight);
        }
    }
}

static struct stamps *owned(uint32_t owner) {
    lock_take(&streams);
    struct stamps *stamps = contexts;
    while (stamps != NULL && (stamps->owner != owner || stamps->dead)) {
        stamps = stamps->next;
    }
    lock_give(&streams);
    return stamps;
}

void flights_follow(uint32_t owner) {
    const struct stamps *stamps = owned(owner);
    if (stamps != NULL) {
        flights_break(stamps, NULL);
    }
}

void flights_note(uint32_t owner) {
    const struct stamps *stamps = owned(owner);
    if (stamps == NULL) {
        return;
    }
    flights_break(stamps, NULL);
    for (struct flight *flight = all(); flight != NULL; flight = flight->next) {
        if (belongs(flight, stamps)) {
            __atomic_store_n(&flight->noted, flight_given_so_far(flight), __ATOMIC_RELAXED);
        }
    }
}

void flights_finish(uint32_t owner) {
    const struct stamps *stamps = owned(owner);
    for (struct flight *flight = all(); stamps != NULL && flight != NULL; flight = flight->next) {
        if (hold(flight, stamps)) {
            flight_finish(flight, __atomic_load_n(&flight->noted, __ATOMIC_RELAXED));
            unpin(flight);
        }
    }
}

/* The end of an open batch is not recorded yet, so its work counts as done once the estimated time
 * has passed. */
static uint64_t unfinished(const struct flight *flight, uint64_t now) {
    uint64_t given = flight_given_so_far(flight);
    uint64_t done = __atomic_load_n(&flight->done, __ATOMIC_RELAXED);
    uint64_t rest = given > done ? given - done : 0;
    if (__atomic_load_n(&flight->count, __ATOMIC_RELAXED) == 0 &&
        now > __atomic_load_n(&flight->expected, __ATOMIC_RELAXED) + rest) {
        return 0;
    }
    return rest;
}

uint64_t flights_unfinished(const struct gpu *gpu, uint64_t now) {
    uint64_t sum = 0;
    for (struct flight *flight = all(); flight != NULL; flight = flight->next) {
        if (__atomic_load_n(&flight->gpu, __ATOMIC_RELAXED) == gpu) {
            sum += unfinished(flight, now);
        }
    }
    return sum;
}

void flights_tell(struct gpu *gpu) {
    uint64_t horizon = UINT64_MAX, now = now_ns(), until = now;
    for (struct flight *flight = all(); flight != NULL; flight = flight->next) {
        if (__atomic_load_n(&flight->gpu, __ATOMIC_RELAXED) == gpu) {
            uint64_t oldest = __atomic_load_n(&flight->oldest, __ATOMIC_RELAXED);
            horizon = oldest < horizon ? oldest : horizon;
            until += unfinished(flight, now);
        }
    }
    gpu_tell(gpu, horizon, horizon != UINT64_MAX, until);
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

/* Waits until nobody else reads or records in the flight, and frees it for another stream. */
static void end(struct flight *flight, struct stamps *stamps) {
    __atomic_store_n(&flight->gone, 1, __ATOMIC_SEQ_CST);
    while (__atomic_load_n(&flight->pins, __ATOMIC_SEQ_CST) > 0) {
        sched_yield();
    }
    stamps_await(stamps);
    flight_drop(flight);
    stamps_end(stamps);
    lock_take(&streams);
    struct flight **link = link_to(flight);
    if (*link == flight) {
        __atomic_store_n(&flight->stamps, NULL, __ATOMIC_RELEASE);
        retire(link);
    }
    lock_give(&streams);
}

void flights_forget(void) {
    for (struct flight *flight = all(); flight != NULL; flight = flight->next) {
        struct stamps *stamps = __atomic_load_n(&flight->stamps, __ATOMIC_ACQUIRE);
        if (stamps != NULL && hold(flight, stamps)) {
            stamps_await(stamps);
            flight_drop(flight);
            stamps_restart(stamps);
            stamps_end(stamps);
            unpin(flight);
        }
    }
}

void flights_stream_ending(CUstream stream) {
    struct flight *flight = flight_find(stream);
    if (flight == NULL || stream == CU_STREAM_LEGACY || stream == CU_STREAM_PER_THREAD) {
        return;
    }
    flight_break(flight);
    flight_read(flight, 0);
    end(flight, flight->stamps);
    __atomic_add_fetch(&change, 1, __ATOMIC_RELEASE);
}

static void flights_emptied(struct home home) {
    struct stamps *stamps = owned(home.owner);
    if (stamps == NULL) {
        return;
    }
    __atomic_store_n(&stamps->dead, 1, __ATOMIC_RELEASE);
    for (struct flight *flight = all(); flight != NULL; flight = flight->next) {
        if (belongs(flight, stamps)) {
            end(flight, stamps);
        }
    }
    __atomic_add_fetch(&change, 1, __ATOMIC_RELEASE);
}
ON(context_emptied, flights_emptied);

/* The parent's work is not the child's. The memory is not reused, because a thread of the parent
 * may have been changing it. */
static void flights_forked(void) {
    streams = (lock){0};
    memset(chains, 0, sizeof chains);
    flights = unused = NULL;
    contexts = NULL;
    change++;
}
ON(forked, flights_forked);
