/* Decides which launches of a flight are measured together, and what is charged for each. */
#include "cuda/time/capture.h"
#include "cuda/time/flight.h"
#include "cuda/time/gate.h"

#include <sched.h>
#include <string.h>

#include "cuda/time/notes.h"
#include "cuda/time/now.h"

#define BATCH_NS 1000000u   /* a batch ends after so much estimated work */
#define BATCH_LAUNCHES 256u /* or so many launches */
#define QUEUE_NS 150000u    /* with so much work ahead a stream will not run dry soon */
#define ALONE_NS                                                                                   \
    1600000u /* one launch is measured alone in so much work, because its events cost 10 us */
#define LOAD_NS 200000u /* a driver's launch takes some us, unless it loads something */
#define ALONE_MOST 100u /* at least one launch of so many is measured alone */
/* Whoever uses a stream waits at most so long for another thread that records in it. */
#define CLOSING_NS 100000000u

static uint64_t later(uint64_t a, uint64_t b) {
    return a > b ? a : b;
}

static void put(uint64_t *word, uint64_t value) {
    __atomic_store_n(word, value, __ATOMIC_RELAXED);
}

/* Notes when the oldest batch that is still to be read began; the caller holds the flight's
   lock. */
static void note_oldest(struct flight *flight) {
    uint64_t oldest = UINT64_MAX;
    if (flight->count > 0) {
        oldest = flight->ring[flight->first].begin_after;
    } else if (flight->is_open) {
        oldest = flight->open.begin_after;
    }
    put(&flight->oldest, oldest);
}

/* Gives up measuring the open batch. Returns its event, which the caller gives back. */
static CUevent spoil(struct flight *flight) {
    CUevent begin = flight->open.begin;
    put(&flight->plain, flight->plain + flight->open.charged);
    __atomic_store_n(&flight->is_open, false, __ATOMIC_RELAXED);
    flight->adjoins = false;
    note_oldest(flight);
    return begin;
}

/* The stream has finished its work by now. What follows comes after a gap, and an open batch would
 * contain that gap. */
static CUevent run_dry(struct flight *flight) {
    /* What was launched in its turn is measured in any case. */
    CUevent begin = flight->is_open && flight->open.turn == 0 ? spoil(flight) : NULL;
    flight->adjoins = false;
    if (flight->count == 0) {
        put(&flight->done, flight->given);
    }
    return begin;
}

static bool is_due(struct flight *flight, const struct launch *launch) {
    uint64_t of = ALONE_NS / launch->ns;
    of = of > ALONE_MOST ? ALONE_MOST : of;
    return cost_samples(launch->cost) < COST_LEARNED || of <= 1 || ++flight->turn % of == 0;
}

enum way { JOIN, PLAIN, ALONE, BATCH };

/* No batch measures the launch. */
static void give_up_turn(const struct flight *flight, struct launch *launch) {
    if (launch->turn != 0) {
        gate_turned(flight->gpu, launch->turn);
        launch->turn = 0;
    }
}

/* Decides how the launch is measured; the caller holds the flight's lock. */
static enum way choose(struct flight *flight, struct launch *launch) {
    bool fresh = launch->alone || cost_samples(launch->cost) == 0;
    if (flight->is_open && !fresh) {
        return JOIN;
    }
    if (flight->count + 1 >= FLIGHT_BATCHES || stamps_state(flight->stamps) != STAMPS_LIVE ||
        flight->refuses || launch->apart) {
        give_up_turn(flight, launch);
        return flight->is_open ? JOIN : PLAIN;
    }
    if (launch->alone || (fresh && cost_try(launch->cost))) {
        return ALONE;
    }
    if (flight->is_open) {
        return JOIN;
    }
    if (flight_orders(flight)) {
        return is_due(flight, launch) ? ALONE : PLAIN;
    }
    if (fresh || launch->waited || flight->expected > launch->now + QUEUE_NS) {
        return BATCH;
    }
    return is_due(flight, launch) ? ALONE : PLAIN;
}

static void add_part(struct batch *batch, const struct launch *launch) {
    struct part *part = &batch->parts[(uintptr_t)launch->cost / sizeof(struct cost) % FLIGHT_PARTS];
    if (part->cost == NULL) {
        *part = (struct part){.cost = launch->cost, .fresh = cost_samples(launch->cost) == 0};
    }
    if (part->cost == launch->cost) {
        part->ns += launch->ns;
        part->count++;
    }
}

static void owe(struct flight *flight, int64_t ns, int32_t launches) {
    __atomic_store_n(&flight->owed, flight->owed + ns, __ATOMIC_RELAXED);
    flight->owed_launches += launches;
}

/* Charges the launch to the flight; the caller holds the flight's lock. */
static void account(struct flight *flight, struct launch *launch) {
    put(&flight->given, flight->given + launch->ns);
    put(&flight->expected, later(flight->expected, launch->now) + launch->ns);
    if (!launch->taken) {
        /* gate_wait sets it to 0 without the lock. */
        uint64_t unseen = __atomic_load_n(&flight->unseen, __ATOMIC_RELAXED);
        put(&flight->unseen, unseen + later(launch->ns, launch->charge));
        if (launch->records) {
            uint64_t records = __atomic_load_n(&flight->records, __ATOMIC_RELAXED);
            put(&flight->records, records + later(launch->ns, launch->charge));
        }
        owe(flight, (int64_t)launch->charge, 1);
    }
    if (!flight->is_open) {
        put(&flight->plain, flight->plain + launch->charge);
        flight->adjoins = false;
        return;
    }
    struct batch *batch = &flight->open;
    batch->ns += launch->ns;
    batch->charged += launch->charge;
    batch->launches++;
    add_part(batch, launch);
    launch->batch = batch->number;
    launch->ends_batch = batch->alone || batch->ns >= BATCH_NS || batch->launches >= BATCH_LAUNCHES;
}

/* Takes the open batch out of the flight, so that its end can be recorded. Not while a thread gives
 * the driver what the batch counts: the end would come before that work, which would be taken for
 * none. That thread ends the batch itself, or whoever comes next. `beside`: the calling thread has
 * just launched into the stream, or is about to. */
static bool take_open(struct flight *flight, struct batch *batch, bool beside) {
    lock_take(&flight->lock);
    bool was = flight->is_open && !notes_launching(flight) && (beside || !flight_orders(flight));
    if (was) {
        *batch = flight->open;
        batch->given = flight->given;
        flight->closing++;
        __atomic_store_n(&flight->is_open, false, __ATOMIC_RELAXED);
    }
    lock_give(&flight->lock);
    return was;
}

/* Records the end of the open batch. Not called while the stream is being captured. */
static void close_open(struct flight *flight, bool beside) {
    struct batch batch;
    if (!take_open(flight, &batch, beside)) {
        return;
    }
    batch.end = stamps_record(flight->stamps, flight->stream, &batch.end_after);
    batch.echo = batch.end != NULL ? stamps_echo(flight->stamps, flight->stream) : NULL;
    lock_take(&flight->lock);
    flight->closing--;
    flight->refuses = flight->refuses || batch.end_after == STAMPS_REFUSED;
    bool kept = batch.end != NULL && flight->count < FLIGHT_BATCHES;
    if (kept) {
        flight->ring[(flight->first + flight->count) % FLIGHT_BATCHES] = batch;
        __atomic_store_n(&flight->count, flight->count + 1, __ATOMIC_RELAXED);
    } else {
        put(&flight->plain, flight->plain + batch.charged);
    }
    flight->adjoins = kept && !flight_orders(flight);
    note_oldest(flight);
    lock_give(&flight->lock);
    if (!kept) {
        stamps_give(flight->stamps, batch.begin);
        stamps_give(flight->stamps, batch.end);
        stamps_give(flight->stamps, batch.echo);
        if (batch.turn != 0) {
            flight_drop_turn(flight, batch.turn);
        }
    }
}

/* Opens a batch that begins with this launch. If that fails the launch is not measured. */
static void open_batch(struct flight *flight, struct launch *launch, bool alone) {
    uint64_t after = launch->now;
    CUevent begin = NULL;
    close_open(flight, true);
    lock_take(&flight->lock);
    bool loads = launch->alone && launch->loads;
    bool adjoins = flight->adjoins && !loads; /* while it loads, the stream may run dry */
    lock_give(&flight->lock);
    if (!adjoins) {
        begin = stamps_record(flight->stamps, flight->stream, &after);
    }
    lock_take(&flight->lock);
    flight->refuses = flight->refuses || after == STAMPS_REFUSED;
    bool usable = (adjoins ? flight->adjoins : begin != NULL) && !flight->is_open;
    if (usable) {
        struct batch *batch = &flight->open;
        if (adjoins && flight->count > 0) {
            after = flight->ring[(flight->first + flight->count - 1) % FLIGHT_BATCHES].end_after;
        } else if (adjoins) {
            after = flight->ended_after;
        }
        memset(batch, 0, sizeof *batch);
        batch->begin = begin;
        batch->begin_after = after;
        batch->launch_after = begin != NULL ? now_ns() : 0;
        batch->alone = alone;
        batch->turn = launch->turn;
        launch->turn = 0;
        batch->number = ++flight->batches;
        batch->neighbours =
            dv_time_stretch(flight->gpu->share, flight->gpu->number) < DV_PAGE_WHOLE;
        __atomic_store_n(&flight->is_open, true, __ATOMIC_RELAXED);
        note_oldest(flight);
    }
    account(flight, launch);
    lock_give(&flight->lock);
    if (!usable) {
        stamps_give(flight->stamps, begin);
    }
}

void flight_give(struct flight *flight, struct launch *launch) {
    CUevent spoiled = NULL;
    launch->batch = 0;
    launch->ends_batch = false;
    lock_take(&flight->lock);
    if (launch->now >= flight->expected) {
        spoiled = run_dry(flight);
    }
    enum way way = choose(flight, launch);
    if (way == JOIN || way == PLAIN) {
        account(flight, launch);
    }
    lock_give(&flight->lock);
    if (spoiled != NULL) {
        stamps_give(flight->stamps, spoiled);
    }
    if (way == ALONE || way == BATCH) {
        open_batch(flight, launch, way == ALONE);
        give_up_turn(flight, launch);
        if (__atomic_load_n(&flight->gpu->open_since, __ATOMIC_RELAXED) == 0) {
            flights_tell(flight->gpu);
        }
    }
}

/* The driver refused the launch. */
static void take_back(struct flight *flight, const struct launch *launch) {
    lock_take(&flight->lock);
    put(&flight->given, flight->given - launch->ns);
    put(&flight->expected, flight->expected - launch->ns);
    owe(flight, -(int64_t)launch->charge, -1);
    if (launch->batch != 0 && flight->is_open && flight->open.number == launch->batch) {
        flight->open.ns -= launch->ns;
        flight->open.charged -= launch->charge;
        flight->open.launches--;
    } else if (launch->batch == 0 && flight->plain >= launch->charge) {
        put(&flight->plain, flight->plain - launch->charge);
    }
    lock_give(&flight->lock);
}

/* Whether a batch can be ended. In a stream that is far ahead the batch goes on growing instead,
 * because one for which there is no room would not be measured. */
static bool has_room(struct flight *flight) {
    if (__atomic_load_n(&flight->count, __ATOMIC_RELAXED) + 2 >= FLIGHT_BATCHES) {
        flight_read(flight);
    }
    return __atomic_load_n(&flight->count, __ATOMIC_RELAXED) + 2 < FLIGHT_BATCHES;
}

/* A call that took long has loaded code first and then given the launch. */
static void note_load(struct flight *flight, const struct launch *launch) {
    uint64_t now = now_ns();
    lock_take(&flight->lock);
    struct batch *batch = &flight->open;
    if (flight->is_open && batch->number == launch->batch && batch->begin != NULL &&
        now - batch->launch_after > LOAD_NS) {
        batch->launch_after = now;
        batch->loaded = true;
    }
    lock_give(&flight->lock);
}

void flight_given(struct flight *flight, struct launch *launch, CUresult result) {
    if (launch->alone && launch->loads) {
        note_load(flight, launch);
    }
    if (__builtin_expect(result != CUDA_SUCCESS, 0)) {
        take_back(flight, launch);
    }
    if (launch->ends_batch && (has_room(flight) || flight_orders(flight))) {
        close_open(flight, true);
        if (__atomic_load_n(&flight->count, __ATOMIC_RELAXED) > 1) {
            flight_read(flight); /* reads the batch before; this one has hardly begun */
            if (gpu_is_behind(flight->gpu)) {
                flights_read(flight->stamps);
            }
        }
    }
}

/* The open batch of a legacy stream that orders others: its end was to be recorded in the call that
 * launched, and is not any more. */
static void give_up(struct flight *flight) {
    CUevent begin = NULL;
    uint64_t turn = 0;
    lock_take(&flight->lock);
    if (flight->is_open && !notes_launching(flight)) {
        turn = flight->open.turn;
        begin = spoil(flight);
    }
    lock_give(&flight->lock);
    stamps_give(flight->stamps, begin);
    if (turn != 0) {
        flight_drop_turn(flight, turn);
    }
}

void flight_close(struct flight *flight) {
    if (!__atomic_load_n(&flight->is_open, __ATOMIC_RELAXED)) {
        return;
    }
    if (flight_orders(flight)) {
        give_up(flight);
    } else if (!capture_has(flight->stream)) {
        close_open(flight, false);
    }
}

void flight_break(struct flight *flight) {
    uint64_t until = 0, now = 0;
    flight_close(flight);
    lock_take(&flight->lock);
    flight->adjoins = false;
    while (flight->closing > 0 && now <= until) {
        lock_give(&flight->lock);
        now = now_ns();
        until = until != 0 ? until : now + CLOSING_NS;
        sched_yield();
        lock_take(&flight->lock);
    }
    lock_give(&flight->lock);
}

int64_t flight_settle(struct flight *flight, int32_t *launches) {
    lock_take(&flight->lock);
    int64_t owed = flight->owed;
    *launches = flight->owed_launches;
    owe(flight, -owed, -*launches);
    lock_give(&flight->lock);
    return owed;
}

void flight_owe(struct flight *flight, int64_t ns) {
    lock_take(&flight->lock);
    owe(flight, ns, 0);
    lock_give(&flight->lock);
}
