/* Reads what the GPU has done of a flight, and learns what launches cost. */
#include "cuda/time/capture.h"
#include "cuda/time/flight.h"
#include "cuda/time/gap.h"
#include "cuda/time/gate.h"

#include "cuda/time/now.h"

#define KEEP_EVERY 64u         /* samples after which the share is told again, a power of two */
#define LOADED_LEAST_NS 10000u /* shorter work beside a load is not told from none */
#define TURN_NAP_NS 100000u    /* between looks at a launch that is to be measured */
#define PLAIN_NS 100000u       /* so much unmeasured charge is kept before the arbiter is told */

static void put(uint64_t *word, uint64_t value) {
    __atomic_store_n(word, value, __ATOMIC_RELAXED);
}

static uint64_t fresh_part(const struct batch *batch) {
    uint64_t fresh = 0;
    for (unsigned i = 0; i < FLIGHT_PARTS; i++) {
        fresh += batch->parts[i].fresh ? batch->parts[i].ns : 0;
    }
    return fresh;
}

/* A pause of the thread between the two calls that record events, or in one of them, looks like
 * work of the GPU. */
static bool may_contain_pause(const struct batch *batch) {
    return batch->launches <= 1 && batch->begin != NULL;
}

/* Keeps for other processes what is learned, at first and then now and then. */
static void remember(const struct gpu *gpu, const struct cost *cost) {
    uint64_t digest = __atomic_load_n(&cost->digest, __ATOMIC_RELAXED);
    uint32_t samples = cost_samples(cost), every = samples < COST_LEARNED ? samples : KEEP_EVERY;
    if (digest > COST_NAMELESS && (samples & (every - 1)) == 0) {
        dv_time_learn(gpu->share, gpu->number, digest, cost_ns(cost));
    }
}

/* Spreads the time of a batch over its launches. If some had no known cost (their estimates sum up
 * to `fresh`), they get the time that the others leave. Returns whether the time was believed. */
static bool learn(const struct gpu *gpu, const struct batch *batch, uint64_t fresh, uint64_t took) {
    uint64_t known = batch->ns > fresh ? batch->ns - fresh : 0;
    uint64_t left = took > known ? took - known : took / 4;
    bool doubtful = batch->neighbours || may_contain_pause(batch), believed = true;
    for (unsigned i = 0; i < FLIGHT_PARTS; i++) {
        const struct part *part = &batch->parts[i];
        if (part->cost == NULL || part->count == 0 || (fresh > 0 && !part->fresh)) {
            continue;
        }
        double of = fresh > 0 ? (double)left / (double)fresh : (double)took / (double)batch->ns;
        double each = (double)part->ns * of / part->count;
        believed = cost_learn(part->cost, (uint64_t)each, doubtful) && believed;
        remember(gpu, part->cost);
    }
    return believed || !may_contain_pause(batch);
}

/* Replaces a charge that was a guess by the true one. */
static void settle_price(struct flight *flight, struct batch *batch, uint64_t took) {
    if (batch->charged > 0) {
        const struct gpu *gpu = flight->gpu;
        uint64_t price = took * dv_time_stretch(gpu->share, gpu->number) / DV_PAGE_WHOLE;
        flight_owe(flight, (int64_t)price - (int64_t)batch->charged);
        batch->charged = price;
    }
}

struct result {
    bool known;
    int64_t begin, end; /* in the context's clock */
};

static void hear(struct stamps *stamps, const struct batch *batch, bool ended, int64_t end,
                 uint64_t seen) {
    int64_t echo = 0;
    if (ended && stamps_read(stamps, batch->echo, batch->end_after, seen, &echo)) {
        stamps_heard(stamps, end, echo);
        stamps_done(stamps, batch->echo, echo);
    } else {
        stamps_give(stamps, batch->echo);
    }
}

/* For the reader: when a batch began and ended. */
static struct result result_of(struct flight *flight, const struct batch *batch, uint64_t seen) {
    struct result result = {.known = false};
    struct stamps *stamps = flight->stamps;
    bool begun = flight->ended_known;
    int64_t stamped = 0;
    result.begin = flight->ended_at;
    if (batch->begin != NULL) {
        begun = stamps_read(stamps, batch->begin, batch->begin_after, seen, &stamped);
        result.begin = stamped;
    }
    bool ended = stamps_read(stamps, batch->end, batch->end_after, seen, &result.end);
    if (begun && ended && batch->begin != NULL) {
        int64_t begin = result.begin + batch_gap(batch->begin_after, batch->launch_after,
                                                 stamps_earliest(stamps, result.begin));
        result.begin = begin < result.end ? begin : result.end;
    }
    result.known = begun && ended && result.end >= result.begin;
    flight->ended_known = ended;
    flight->ended_at = result.end;
    if (batch->begin != NULL) {
        if (begun) {
            stamps_done(stamps, batch->begin, stamped);
        } else {
            stamps_give(stamps, batch->begin);
        }
    }
    if (batch->echo != NULL) {
        hear(stamps, batch, ended, result.end, seen);
    }
    if (ended) {
        stamps_done(stamps, batch->end, result.end);
    } else {
        stamps_give(stamps, batch->end);
    }
    return result;
}

/* Takes the oldest batch, which was read, out of the ring. */
static void pop(struct flight *flight, const struct batch *batch, const struct result *result) {
    lock_take(&flight->lock);
    flight->first = (flight->first + 1) % FLIGHT_BATCHES;
    __atomic_store_n(&flight->count, flight->count - 1, __ATOMIC_RELAXED);
    if (batch->given > flight->done) {
        put(&flight->done, batch->given);
    }
    flight->ended_after = batch->end_after;
    if (!result->known) {
        put(&flight->plain, flight->plain + batch->charged);
    } else {
        uint64_t end = stamps_monotonic(flight->stamps, result->end);
        uint64_t rest = flight->given > flight->done ? flight->given - flight->done : 0;
        uint64_t expected = end + rest;
        flight->ended_after = end;
        if (expected > flight->expected) {
            put(&flight->expected, expected);
        }
    }
    struct batch *next = flight->count > 0 ? &flight->ring[flight->first]
                         : flight->is_open ? &flight->open
                                           : NULL;
    /* An event that was recorded while the batch before it ran is stamped after the end of that
     * batch. */
    if (next != NULL && (next->begin == NULL || next->begin_after < flight->ended_after)) {
        next->begin_after = flight->ended_after;
    }
    __atomic_store_n(&flight->oldest, next != NULL ? next->begin_after : UINT64_MAX,
                     __ATOMIC_RELAXED);
    lock_give(&flight->lock);
}

/* Charges and learns what a batch took. Returns whether that was believed. */
static bool settle(struct flight *flight, struct batch *batch, uint64_t took) {
    uint64_t fresh = fresh_part(batch);
    if (batch->loaded && took < LOADED_LEAST_NS) {
        return false; /* it ended before the call that loaded it, which says nothing */
    }
    if (fresh > 0) {
        settle_price(flight, batch, took);
    }
    if (batch->turn != 0) {
        gate_charge(flight, 0, now_ns()); /* before the same work is known and goes on credit */
    }
    return learn(flight->gpu, batch, fresh, took);
}

/* Reads the oldest batch if it is done. */
static bool read_one(struct flight *flight) {
    if (__atomic_load_n(&flight->count, __ATOMIC_RELAXED) == 0) {
        return false;
    }
    lock_take(&flight->lock);
    const struct batch *batch = flight->count > 0 ? &flight->ring[flight->first] : NULL;
    lock_give(&flight->lock);
    if (batch == NULL) {
        return false;
    }
    CUevent last = batch->echo != NULL ? batch->echo : batch->end;
    /* Asked also after a wait for the stream: another thread may record the end only after it. */
    if (DV_CALL(cuEventQuery, last) == CUDA_ERROR_NOT_READY) {
        return false;
    }
    struct batch copy = *batch;
    struct result result = result_of(flight, &copy, now_ns());
    if (result.known && copy.ns > 0) {
        result.known =
            settle(flight, &copy, stamps_between(flight->stamps, result.begin, result.end));
    }
    if (copy.turn != 0) {
        gate_turned(flight->gpu, copy.turn);
    }
    pop(flight, &copy, &result);
    if (result.known) {
        struct piece piece = {.begin = stamps_monotonic(flight->stamps, result.begin),
                              .charged = copy.charged};
        piece.end = piece.begin + (uint64_t)(result.end - result.begin);
        gpu_add(flight->gpu, piece);
    }
    return true;
}

static void tell_plain(struct flight *flight) {
    lock_take(&flight->lock);
    uint64_t plain = flight->plain;
    put(&flight->plain, 0);
    lock_give(&flight->lock);
    gpu_unmeasured(flight->gpu, plain);
}

static bool read_all(struct flight *flight) {
    struct stamps *stamps = __atomic_load_n(&flight->stamps, __ATOMIC_RELAXED);
    bool any = false;
    if (__atomic_load_n(&flight->count, __ATOMIC_RELAXED) > 0 && stamps_begin(stamps)) {
        CUstreamCaptureMode mode = capture_relax();
        while (read_one(flight)) {
            any = true;
        }
        capture_restore(mode);
        stamps_end(stamps);
    }
    if (any || __atomic_load_n(&flight->plain, __ATOMIC_RELAXED) > PLAIN_NS) {
        tell_plain(flight);
    }
    return any;
}

void flight_read(struct flight *flight) {
    if (read_all(flight)) {
        flights_tell(flight->gpu);
    }
}

void flight_finish(struct flight *flight, uint64_t finished) {
    lock_take(&flight->lock);
    if (finished > flight->done) {
        put(&flight->done, finished);
    }
    if (flight->done >= flight->given) {
        put(&flight->expected, 0);
        flight->adjoins = false;
    }
    lock_give(&flight->lock);
    flight_read(flight);
    if (gpu_is_behind(flight->gpu)) {
        flights_read(flight->stamps);
    }
    gate_rest(flight->gpu);
}

/* The turn of the launch that is not measured yet; 0: there is none. The caller holds the lock. */
static uint64_t held_turn(const struct flight *flight) {
    uint64_t turn = flight->is_open ? flight->open.turn : 0;
    for (uint32_t i = 0; i < flight->count && turn == 0; i++) {
        turn = flight->ring[(flight->first + i) % FLIGHT_BATCHES].turn;
    }
    return turn;
}

void flight_await_turn(struct flight *flight) {
    uint64_t turn;
    do {
        flight_read(flight);
        lock_take(&flight->lock);
        turn = held_turn(flight);
        lock_give(&flight->lock);
        if (turn != 0) {
            dv_time_nap(TURN_NAP_NS);
        }
    } while (turn != 0 && now_ns() < turn + DV_TIME_WAIT_NS);
}

void flight_drop_turn(struct flight *flight, uint64_t turn) {
    uint64_t now = now_ns(), took = now > turn ? now - turn : 0;
    took = took < DV_TIME_WAIT_NS ? took : DV_TIME_WAIT_NS;
    gate_charge(flight, took, now);
    gate_turned(flight->gpu, turn);
}

void flight_drop(struct flight *flight) {
    CUevent events[3 * FLIGHT_BATCHES + 1];
    unsigned count = 0;
    lock_take(&flight->lock);
    uint64_t turn = held_turn(flight);
    for (uint32_t i = 0; i < flight->count; i++) {
        const struct batch *batch = &flight->ring[(flight->first + i) % FLIGHT_BATCHES];
        put(&flight->plain, flight->plain + batch->charged);
        events[count++] = batch->begin;
        events[count++] = batch->end;
        events[count++] = batch->echo;
    }
    __atomic_store_n(&flight->count, 0, __ATOMIC_RELAXED);
    flight->first = 0;
    if (flight->is_open) {
        put(&flight->plain, flight->plain + flight->open.charged);
        events[count++] = flight->open.begin;
    }
    __atomic_store_n(&flight->is_open, false, __ATOMIC_RELAXED);
    put(&flight->done, flight->given);
    put(&flight->expected, 0);
    put(&flight->oldest, UINT64_MAX);
    flight->adjoins = flight->ended_known = false;
    lock_give(&flight->lock);
    while (count > 0) {
        stamps_give(flight->stamps, events[--count]);
    }
    tell_plain(flight);
    gate_charge(flight, 0, now_ns());
    if (turn != 0) {
        flight_drop_turn(flight, turn);
    }
    flights_tell(flight->gpu);
}
