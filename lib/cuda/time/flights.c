/* What is done in all the streams of a context or of a GPU. */
#include "cuda/time/flight.h"

#include "cuda/stream.h"
#include "cuda/time/capture.h"
#include "cuda/time/notes.h"
#include "cuda/time/now.h"

/* A thread can name the default streams of its current context, and only its own per-thread one. */
static bool is_reachable(const struct flight *flight) {
    CUcontext context = NULL;
    return !stream_is_default(flight->stream) ||
           ((flight->stream != CU_STREAM_PER_THREAD || flight->thread == notes_here) &&
            DV_CALL(cuCtxGetCurrent, &context) == CUDA_SUCCESS && context == flight->context);
}

void flights_break(const struct stamps *stamps, const struct flight *but) {
    for (struct flight *flight = flights_all(); flight != NULL; flight = flight->next) {
        if (flight == but || !__atomic_load_n(&flight->is_open, __ATOMIC_RELAXED) ||
            !flight_hold(flight, stamps)) {
            continue;
        }
        if (is_reachable(flight)) {
            flight_close(flight);
        }
        flight_unpin(flight);
    }
}

void flights_read(const struct stamps *stamps) {
    for (struct flight *flight = flights_all(); flight != NULL; flight = flight->next) {
        if (__atomic_load_n(&flight->count, __ATOMIC_RELAXED) > 0 && flight_hold(flight, stamps)) {
            flight_read(flight);
            flight_unpin(flight);
        }
    }
}

void flights_read_all(const struct gpu *gpu) {
    for (struct flight *flight = flights_all(); flight != NULL; flight = flight->next) {
        const struct stamps *stamps = __atomic_load_n(&flight->stamps, __ATOMIC_ACQUIRE);
        if (stamps != NULL && __atomic_load_n(&flight->gpu, __ATOMIC_RELAXED) == gpu &&
            __atomic_load_n(&flight->count, __ATOMIC_RELAXED) > 0 && flight_hold(flight, stamps)) {
            flight_read(flight);
            flight_unpin(flight);
        }
    }
}

/* The end of an open batch of the legacy stream is recorded while nobody can wait for it. */
void flights_block(void) {
    struct home home;
    struct stamps *stamps = context_current(&home) == CUDA_SUCCESS ? flights_begun(home) : NULL;
    if (stamps == NULL || __atomic_load_n(&stamps->blocking, __ATOMIC_RELAXED) != 0) {
        return;
    }
    flights_break(stamps, NULL);
    __atomic_store_n(&stamps->blocking, 1, __ATOMIC_SEQ_CST);
    for (struct flight *flight = flights_all(); flight != NULL; flight = flight->next) {
        if (!flight_hold(flight, stamps)) {
            continue;
        }
        if (flight->stream == CU_STREAM_LEGACY) {
            flight_break(flight); /* another thread may just have begun to record */
        }
        flight_unpin(flight);
    }
}

void flights_follow(uint32_t owner) {
    const struct stamps *stamps = flights_owned(owner);
    if (stamps != NULL) {
        flights_break(stamps, NULL);
    }
}

void flights_note(uint32_t owner) {
    const struct stamps *stamps = flights_owned(owner);
    if (stamps == NULL) {
        return;
    }
    flights_break(stamps, NULL);
    for (struct flight *flight = flights_all(); flight != NULL; flight = flight->next) {
        if (flight_belongs(flight, stamps)) {
            __atomic_store_n(&flight->noted, flight_given_so_far(flight), __ATOMIC_RELAXED);
        }
    }
}

void flights_finish(uint32_t owner, CUcontext only) {
    const struct stamps *stamps = flights_owned(owner);
    for (struct flight *flight = flights_all(); stamps != NULL && flight != NULL;
         flight = flight->next) {
        if (!flight_hold(flight, stamps)) {
            continue;
        }
        if (only == NULL || flight->context == only) {
            flight_finish(flight, __atomic_load_n(&flight->noted, __ATOMIC_RELAXED));
        }
        flight_unpin(flight);
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
    for (struct flight *flight = flights_all(); flight != NULL; flight = flight->next) {
        if (__atomic_load_n(&flight->gpu, __ATOMIC_RELAXED) == gpu) {
            sum += unfinished(flight, now);
        }
    }
    return sum;
}

uint64_t flights_oldest(void) {
    uint64_t oldest = UINT64_MAX;
    for (struct flight *flight = flights_all(); flight != NULL; flight = flight->next) {
        uint64_t begun = __atomic_load_n(&flight->oldest, __ATOMIC_RELAXED);
        oldest = begun < oldest ? begun : oldest;
    }
    return oldest;
}

void flights_tell(struct gpu *gpu) {
    uint64_t horizon = UINT64_MAX, now = now_ns(), until = now;
    for (struct flight *flight = flights_all(); flight != NULL; flight = flight->next) {
        if (__atomic_load_n(&flight->gpu, __ATOMIC_RELAXED) == gpu) {
            uint64_t oldest = __atomic_load_n(&flight->oldest, __ATOMIC_RELAXED);
            horizon = oldest < horizon ? oldest : horizon;
            until += unfinished(flight, now);
        }
    }
    gpu_tell(gpu, horizon, horizon != UINT64_MAX, until);
}

/* The flight is pinned, so its stream and context live; no stream begins to be captured. */
static bool has_work(const struct flight *flight) {
    bool named = stream_is_default(flight->stream), green = context_is_green(flight->context);
    CUcontext popped;
    if (flight->stream == CU_STREAM_PER_THREAD) {
        return unfinished(flight, now_ns()) > 0;
    }
    if (named && green) {
        return false; /* its context would have to be current here */
    }
    if (!green && DV_CALL(cuCtxPushCurrent_v2, flight->context) != CUDA_SUCCESS) {
        return false;
    }
    bool busy = !capture_has(flight->stream) &&
                DV_CALL(cuStreamQuery, flight->stream) == CUDA_ERROR_NOT_READY;
    if (!green) {
        DV_CALL(cuCtxPopCurrent_v2, &popped);
    }
    return busy;
}

bool flights_busy(void) {
    bool busy = false;
    for (struct flight *flight = flights_all(); flight != NULL && !busy; flight = flight->next) {
        if (!flight_pin(flight)) {
            continue;
        }
        /* In doubt it is asked again. */
        busy = !capture_keep_off();
        if (!busy) {
            busy = has_work(flight);
            capture_allow();
        }
        flight_unpin(flight);
    }
    return busy;
}
