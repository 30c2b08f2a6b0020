#include "cuda/time/ways.h"

#include <string.h>

#include "abi/generated/page_layout.h"
#include "cuda/fork.h"
#include "cuda/time/flight.h"
#include "share/time.h"

#define NAP_NS 50000u

enum state { NONE, LIVE, ENDING };

static struct way ways[DV_PAGE_DEVICES];
static uint32_t ended;

uint32_t ways_ended(void) {
    return __atomic_load_n(&ended, __ATOMIC_ACQUIRE);
}

static void give_back(const struct way *way) {
    for (unsigned i = 0; i < WAY_MARKS; i++) {
        if (way->marks[i] != NULL) {
            DV_CALL(cuEventDestroy_v2, way->marks[i]);
        }
    }
    if (way->stream != NULL) {
        DV_CALL(cuStreamDestroy_v2, way->stream);
    }
}

/* In the current context. */
static bool fill(struct way *way) {
    way->stream = NULL;
    memset(way->marks, 0, sizeof way->marks);
    bool filled = DV_CALL(cuCtxGetDevice, &way->device) == CUDA_SUCCESS &&
                  DV_CALL(cuStreamCreate, &way->stream, CU_STREAM_NON_BLOCKING) == CUDA_SUCCESS;
    for (unsigned i = 0; filled && i < WAY_MARKS; i++) {
        filled = DV_CALL(cuEventCreate, &way->marks[i], CU_EVENT_DISABLE_TIMING) == CUDA_SUCCESS;
    }
    if (!filled) {
        give_back(way);
    }
    return filled;
}

/* The flight is pinned, so its context does not end. */
static bool lead(struct way *way, const struct flight *flight) {
    CUcontext context = flight->context, popped;
    if (context == NULL || context_is_green(context) ||
        DV_CALL(cuCtxPushCurrent_v2, context) != CUDA_SUCCESS) {
        return false;
    }
    if (!fill(way)) {
        DV_CALL(cuCtxPopCurrent_v2, &popped);
        return false;
    }
    way->context = context;
    way->owner = flight->stamps->owner;
    __atomic_store_n(&way->inside, 1, __ATOMIC_SEQ_CST);
    __atomic_store_n(&way->state, LIVE, __ATOMIC_SEQ_CST);
    return true;
}

static bool find(struct way *way, unsigned number) {
    for (struct flight *flight = flights_all(); flight != NULL; flight = flight->next) {
        const struct gpu *gpu = __atomic_load_n(&flight->gpu, __ATOMIC_RELAXED);
        if (gpu == NULL || gpu->number != number || !flight_pin(flight)) {
            continue;
        }
        bool led = __atomic_load_n(&flight->gpu, __ATOMIC_RELAXED) == gpu && lead(way, flight);
        flight_unpin(flight);
        if (led) {
            return true;
        }
    }
    return false;
}

struct way *way_enter(unsigned number) {
    struct way *way = &ways[number];
    __atomic_store_n(&way->inside, 1, __ATOMIC_SEQ_CST);
    uint32_t state = __atomic_load_n(&way->state, __ATOMIC_SEQ_CST);
    if (state == LIVE && DV_CALL(cuCtxPushCurrent_v2, way->context) == CUDA_SUCCESS) {
        return way;
    }
    __atomic_store_n(&way->inside, 0, __ATOMIC_RELEASE);
    return state == NONE && find(way, number) ? way : NULL;
}

void way_leave(struct way *way) {
    CUcontext popped;
    DV_CALL(cuCtxPopCurrent_v2, &popped);
    __atomic_store_n(&way->inside, 0, __ATOMIC_RELEASE);
}

/* No flight of the context can be pinned any more, so no way is made to it. */
static void ways_context_left(uint32_t owner, bool lost) {
    for (unsigned i = 0; i < DV_PAGE_DEVICES; i++) {
        struct way *way = &ways[i];
        if (__atomic_load_n(&way->state, __ATOMIC_SEQ_CST) != LIVE || way->owner != owner) {
            continue;
        }
        __atomic_store_n(&way->state, ENDING, __ATOMIC_SEQ_CST);
        while (__atomic_load_n(&way->inside, __ATOMIC_SEQ_CST) != 0) {
            dv_time_nap(NAP_NS);
        }
        if (!lost) {
            give_back(way);
        }
        __atomic_add_fetch(&ended, 1, __ATOMIC_RELEASE);
        __atomic_store_n(&way->state, NONE, __ATOMIC_SEQ_CST);
    }
}
ON(context_left, ways_context_left);

static void ways_forked(void) {
    memset(ways, 0, sizeof ways);
}
ON(forked, ways_forked);
