/* The time of the simulated GPUs.
 *
 * A GPU runs one party at a time: one process, or the clients of one MPS server. Parties with
 * runnable work take turns in order of their slots, each for its time slice; one that is alone runs
 * on. Nothing runs in the background: whoever needs the schedule decides it from where it was
 * decided last up to the present, so it does not depend on when a process gets a CPU.
 *
 * A channel's work is laid out by engines.c on a time line of its own, without gaps. That time
 * passes only while the channel has the GPU. The segments tell its owner when a position was
 * reached.
 *
 * Members of a group run side by side. While they occupy no more multiprocessors than there are,
 * each goes as fast as if it were alone; else all that occupy some go equally much slower, so that
 * together they occupy all. So do the users of a divided GPU, each with the multiprocessors of its
 * instance.
 *
 * Who waits for managed memory (paging.c) has no runnable work meanwhile.
 */
#include "simgpu/machine/paging.h"
#include "simgpu/machine/turns.h"

#define CHECK_ALIVE_NS 2000000u

static void sample(struct sg_instance *in, uint32_t gpu, uint64_t boundary) {
    struct sg_gpu *g = &in->state->gpus[gpu];

    g->samples[boundary % SG_SAMPLES] = g->busy_ns;
    for (uint32_t i = 0; (i = sg_next_client(in, i)) < SG_CLIENTS_MAX; i++) {
        struct sg_channel *channel = sg_channel(in, i, gpu);
        channel->samples[boundary % SG_SAMPLES] = channel->executed;
    }
}

/* Moves the clock and takes the samples of the boundaries it passes. */
static void pass_to(struct sg_instance *in, uint32_t gpu, uint64_t to) {
    struct sg_gpu *g = &in->state->gpus[gpu];
    uint64_t boundary = g->clock / SG_SAMPLE_NS + 1, last = to / SG_SAMPLE_NS;

    if (last >= SG_SAMPLES && boundary + SG_SAMPLES <= last) {
        boundary = last - SG_SAMPLES + 1;
    }
    for (; boundary <= last; boundary++) {
        sample(in, gpu, boundary);
    }
    g->clock = to;
}

/* Keeps the compiler from moving stores across: another process must find all stores of a process
 * that died up to some instruction, and none after it. */
static void in_order(void) {
    __atomic_signal_fence(__ATOMIC_SEQ_CST);
}

static struct sg_segment *last_segment(struct sg_channel *channel) {
    return &channel->segments[(channel->segment_count - 1) % SG_SEGMENTS];
}

/* What has the GPU in one step. */
struct run {
    uint32_t count;
    uint32_t members[SG_GROUP_MAX];
    uint64_t rates[SG_GROUP_MAX];
};

static void begin_step(struct sg_instance *in, uint32_t gpu, const struct run *run) {
    struct sg_gpu *g = &in->state->gpus[gpu];

    g->step.current = g->current;
    g->step.clock = g->clock;
    g->step.slice_left = g->slice_left;
    g->step.busy_ns = g->busy_ns;
    g->step.sm_ns = g->sm_ns;
    g->step.count = run->count;
    for (uint32_t i = 0; i < run->count; i++) {
        struct sg_channel *channel = sg_channel(in, run->members[i], gpu);
        g->step.members[i] = (struct sg_step_member){.client = run->members[i],
                                                     .executed = channel->executed,
                                                     .fraction = channel->fraction,
                                                     .sm_ns = channel->sm_ns,
                                                     .segment_count = channel->segment_count,
                                                     .segment = *last_segment(channel)};
    }
    in_order();
    g->step.under_way = 1;
    in_order();
}

static void end_step(struct sg_gpu *g) {
    in_order();
    g->step.under_way = 0;
    in_order();
}

void sg_schedule_repair(struct sg_instance *in, uint32_t gpu) {
    struct sg_gpu *g = &in->state->gpus[gpu];
    const struct sg_step *before = &g->step;

    if (before->under_way) {
        g->current = before->current;
        g->clock = before->clock;
        g->slice_left = before->slice_left;
        g->busy_ns = before->busy_ns;
        g->sm_ns = before->sm_ns;
        for (uint32_t i = 0; i < before->count; i++) {
            const struct sg_step_member *was = &before->members[i];
            struct sg_channel *channel = sg_channel(in, was->client, gpu);
            channel->segment_count = was->segment_count;
            *last_segment(channel) = was->segment;
            channel->fraction = was->fraction;
            channel->sm_ns = was->sm_ns;
            __atomic_store_n(&channel->executed, was->executed, __ATOMIC_RELEASE);
            turn_set(in, gpu, was->client, true);
        }
        end_step(g);
    }
    for (uint32_t i = 0; sg_paging(in) && (i = sg_next_client(in, i)) < SG_CLIENTS_MAX; i++) {
        paging_repair(in, gpu, i);
    }
    turn_recount(in, gpu);
}

static uint64_t least(uint64_t a, uint64_t b) {
    return a < b ? a : b;
}

/* How long a channel takes for some of its own time at a rate; UINT64_MAX when that is more than any
 * step. */
static uint64_t time_for(const struct sg_channel *channel, uint64_t own, uint64_t rate) {
    if (own > SG_SAMPLE_NS) {
        return UINT64_MAX;
    }
    return (own * SG_FULL_RATE - channel->fraction + rate - 1) / rate;
}

/* How fast each member goes, for at most `ns`; returns for how long that holds. */
static uint64_t set_rates(struct sg_instance *in, uint32_t gpu, struct run *run, uint64_t ns,
                          bool paging) {
    uint64_t until[SG_GROUP_MAX];
    uint32_t used[SG_GROUP_MAX];

    for (uint32_t i = 0; i < run->count; i++) {
        const struct sg_channel *channel = sg_channel(in, run->members[i], gpu);
        uint64_t change = UINT64_MAX;
        /* A channel that is alone goes as fast as time, whatever it occupies. */
        used[i] =
            run->count > 1 ? sg_engines_used(&channel->engines, channel->executed, &change) : 0;
        uint64_t end = least(change, channel->submitted);
        if (paging) {
            end = paging_next(in, gpu, run->members[i], least(end, channel->executed + ns));
        }
        until[i] = end - channel->executed;
    }
    for (uint32_t i = 0; i < run->count; i++) {
        uint32_t place = in->state->clients[run->members[i]].place, sum = 0, whole = 1;
        /* An instance's multiprocessors are its users' alone. */
        for (uint32_t k = 0; k < run->count; k++) {
            const struct sg_channel *other = sg_channel(in, run->members[k], gpu);
            if (in->state->clients[run->members[k]].place == place) {
                sum += used[k];
                whole = other->engines.whole > whole ? other->engines.whole : whole;
            }
        }
        run->rates[i] = used[i] && sum > whole ? whole * SG_FULL_RATE / sum : SG_FULL_RATE;
        ns = least(ns, time_for(sg_channel(in, run->members[i], gpu), until[i], run->rates[i]));
    }
    return ns;
}

static void note_segment(struct sg_channel *channel, uint64_t wall, uint64_t length,
                         uint64_t rate) {
    struct sg_segment *last = last_segment(channel);

    if (channel->segment_count && last->wall + last->length == wall && last->rate == rate) {
        last->length += length;
    } else {
        channel->segments[channel->segment_count % SG_SEGMENTS] = (struct sg_segment){
            .wall = wall, .done = channel->executed, .length = length, .rate = rate};
        channel->segment_count++;
    }
}

/* Lets a channel go for so long. */
static void go(struct sg_instance *in, uint32_t gpu, uint32_t client, uint64_t ns, uint64_t rate,
               bool paging) {
    struct sg_channel *channel = sg_channel(in, client, gpu);
    struct sg_gpu *g = &in->state->gpus[gpu];
    uint64_t left = channel->submitted - channel->executed;
    uint64_t sum = channel->fraction + ns * rate, own = least(sum / SG_FULL_RATE, left);
    uint64_t area = sg_engines_area(&channel->engines, channel->executed, channel->executed + own);

    note_segment(channel, g->clock, ns, rate);
    channel->sm_ns += area;
    g->sm_ns += area;
    channel->fraction = own == left ? 0 : sum % SG_FULL_RATE;
    /* Its owner reads it without the lock. */
    __atomic_store_n(&channel->executed, channel->executed + own, __ATOMIC_RELEASE);
    if (paging) {
        paging_pass(in, gpu, client, channel->executed);
    }
    if (own == left) {
        turn_set(in, gpu, client, false);
    }
}

/* Whether a member of the party that has its turn begins to wait; a turn of whom nobody is left ends. */
static bool stall(struct sg_instance *in, uint32_t gpu, uint32_t party, const struct run *run) {
    struct sg_gpu *g = &in->state->gpus[gpu];
    bool any = false;

    for (uint32_t i = 0; i < run->count; i++) {
        any |= paging_stall(in, gpu, run->members[i]);
    }
    if (any && party == g->current && !turn_bit(g->turns, party)) {
        g->slice_left = 0;
    }
    return any;
}

/* One step of the schedule: until something changes, at most up to `now`. */
static void step(struct sg_instance *in, uint32_t gpu, uint64_t now, bool paging) {
    struct sg_gpu *g = &in->state->gpus[gpu];
    struct run run;
    uint64_t wake = paging ? paging_wake(in, gpu) : UINT64_MAX;
    uint32_t party = g->slice_left && turn_bit(g->turns, g->current % SG_CLIENTS_MAX)
                         ? g->current
                         : turn_next(g, (g->current + 1) % SG_CLIENTS_MAX);

    if (party == SG_CLIENTS_MAX) {
        pass_to(in, gpu, least(now, wake));
        return;
    }
    if ((run.count = turn_members(in, gpu, party, run.members)) == 0) {
        turn_recount(in, gpu); /* who marked the party died before it had work */
        return;
    }
    if (paging && stall(in, gpu, party, &run)) {
        return;
    }
    begin_step(in, gpu, &run);
    if (party != g->current || g->slice_left == 0) {
        g->current = party;
        g->slice_left = turn_slice(in, gpu, party);
    }
    uint64_t ns = least(least(now, wake) - g->clock, g->slice_left);
    ns = least(ns, (g->clock / SG_SAMPLE_NS + 1) * SG_SAMPLE_NS - g->clock);
    ns = set_rates(in, gpu, &run, ns, paging);
    for (uint32_t i = 0; i < run.count; i++) {
        go(in, gpu, run.members[i], ns, run.rates[i], paging);
    }
    g->busy_ns += ns;
    g->slice_left = turn_bit(g->turns, party) ? g->slice_left - ns : 0;
    pass_to(in, gpu, g->clock + ns);
    end_step(g);
}

void sg_drop_locked(struct sg_instance *in, uint32_t gpu, uint32_t client) {
    struct sg_channel *channel = sg_channel(in, client, gpu);

    paging_drop(in, gpu, client);
    channel->submitted = channel->executed;
    channel->fraction = 0;
    turn_set(in, gpu, client, false);
}

/* Frees managed memory of dead clients: nobody may wait for it to leave. */
static void end_dead(struct sg_instance *in, uint32_t gpu) {
    for (uint32_t i = 0; (i = sg_next_client(in, i)) < SG_CLIENTS_MAX; i++) {
        const struct sg_client *client = &in->state->clients[i];
        uint32_t generation = __atomic_load_n(&client->generation, __ATOMIC_ACQUIRE);
        if (__atomic_load_n(&client->pages, __ATOMIC_ACQUIRE) && !sg_alive(in, i)) {
            sg_drop_locked(in, gpu, i);
            sg_pages_end(in, i, generation);
        }
    }
}

/* Removes dead clients from the GPU, and those of dead servers: nobody waits for their work, and it
   would take others' time. */
static void drop_dead(struct sg_instance *in, uint32_t gpu, uint64_t now) {
    struct sg_gpu *g = &in->state->gpus[gpu];

    if (now - g->checked < CHECK_ALIVE_NS) {
        return;
    }
    g->checked = now;
    if (sg_paging(in)) {
        end_dead(in, gpu);
    }
    for (uint32_t i = 0; i < SG_CLIENTS_MAX; i++) {
        if (g->runnable[i / 64] == 0) {
            i |= 63;
            continue;
        }
        if (!turn_bit(g->runnable, i)) {
            continue;
        }
        uint32_t party = turn_of(in, gpu, i);
        bool grouped = sg_channel(in, i, gpu)->server != 0;
        if (!sg_alive(in, i) || (grouped && party != i && !sg_alive(in, party))) {
            sg_drop_locked(in, gpu, i);
        }
    }
}

void sg_advance_locked(struct sg_instance *in, uint32_t gpu, uint64_t now) {
    struct sg_gpu *g = &in->state->gpus[gpu];

    if (now <= g->clock) {
        return;
    }
    drop_dead(in, gpu, now);
    bool paging = sg_paging(in);
    if (paging) {
        sg_pages_lock(in);
    }
    while (g->clock < now) {
        step(in, gpu, now, paging);
    }
    if (paging) {
        sg_pages_unlock(in);
    }
}

void sg_advance(struct sg_instance *in, uint32_t gpu, uint64_t now) {
    sg_schedule_lock(in, gpu);
    sg_advance_locked(in, gpu, now);
    sg_schedule_unlock(in, gpu);
}

void sg_group_join(struct sg_instance *in, uint32_t gpu, uint32_t client, uint32_t server) {
    sg_schedule_lock(in, gpu);
    sg_channel(in, client, gpu)->server = server == SG_CLIENTS_MAX ? 0 : server + 1;
    turn_recount(in, gpu);
    sg_schedule_unlock(in, gpu);
}
