/* The time of the simulated GPUs.
 *
 * A GPU runs one process's channel at a time. Channels with runnable work take turns in order of
 * their slots, each for its time slice; a channel that is alone runs on. Nothing runs in the
 * background: whoever needs the schedule decides it from where it was decided last up to the
 * present, so it does not depend on when a process gets a CPU.
 *
 * A channel's work is laid out by engines.c on a time line of its own, without gaps. That time
 * passes only while the channel has the GPU. The segments tell its owner when a position was
 * reached.
 */
#include "simgpu/machine/state.h"

#define CHECK_ALIVE_NS 2000000u

static bool runnable(const struct sg_gpu *g, uint32_t client) {
    return g->runnable[client / 64] >> (client % 64) & 1;
}

static void set_runnable(struct sg_gpu *g, uint32_t client, bool on) {
    uint64_t bit = UINT64_C(1) << (client % 64);

    if (on) {
        g->runnable[client / 64] |= bit;
    } else {
        g->runnable[client / 64] &= ~bit;
    }
}

/* The first runnable client at or after `from`, around the end; SG_CLIENTS_MAX when there is
   none. */
static uint32_t next_runnable(const struct sg_gpu *g, uint32_t from) {
    for (uint32_t i = 0; i <= SG_CLIENTS_MAX / 64; i++) {
        uint32_t word = (from / 64 + i) % (SG_CLIENTS_MAX / 64);
        uint64_t bits = g->runnable[word];
        if (i == 0) {
            bits &= ~UINT64_C(0) << (from % 64);
        }
        if (bits) {
            return word * 64 + (uint32_t)__builtin_ctzll(bits);
        }
    }
    return SG_CLIENTS_MAX;
}

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

static void begin_step(struct sg_gpu *g, uint32_t client, struct sg_channel *channel) {
    g->step = (struct sg_step){.client = client,
                               .current = g->current,
                               .clock = g->clock,
                               .slice_left = g->slice_left,
                               .busy_ns = g->busy_ns,
                               .executed = channel->executed,
                               .segment_count = channel->segment_count,
                               .segment = *last_segment(channel)};
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

    if (!before->under_way) {
        return;
    }
    struct sg_channel *channel = sg_channel(in, before->client, gpu);
    g->current = before->current;
    g->clock = before->clock;
    g->slice_left = before->slice_left;
    g->busy_ns = before->busy_ns;
    channel->segment_count = before->segment_count;
    *last_segment(channel) = before->segment;
    __atomic_store_n(&channel->executed, before->executed, __ATOMIC_RELEASE);
    set_runnable(g, before->client, true);
    end_step(g);
}

static void run_segment(struct sg_channel *channel, uint64_t wall, uint64_t length) {
    struct sg_segment *last = last_segment(channel);

    if (channel->segment_count && last->wall + last->length == wall) {
        last->length += length;
    } else {
        channel->segments[channel->segment_count % SG_SEGMENTS] =
            (struct sg_segment){.wall = wall, .done = channel->executed, .length = length};
        channel->segment_count++;
    }
    /* Its owner reads it without the lock. */
    __atomic_store_n(&channel->executed, channel->executed + length, __ATOMIC_RELEASE);
}

static uint64_t least(uint64_t a, uint64_t b) {
    return a < b ? a : b;
}

static uint64_t slice_of(const struct sg_instance *in, const struct sg_channel *channel) {
    return channel->slice_ns ? channel->slice_ns : in->state->slice_ns;
}

/* One step of the schedule: until something changes, at most up to `now`. */
static void step(struct sg_instance *in, uint32_t gpu, uint64_t now) {
    struct sg_gpu *g = &in->state->gpus[gpu];
    uint32_t client = g->slice_left && runnable(g, g->current % SG_CLIENTS_MAX)
                          ? g->current
                          : next_runnable(g, (g->current + 1) % SG_CLIENTS_MAX);

    if (client == SG_CLIENTS_MAX) {
        pass_to(in, gpu, now);
        return;
    }
    struct sg_channel *channel = sg_channel(in, client, gpu);
    begin_step(g, client, channel);
    if (client != g->current || g->slice_left == 0) {
        g->current = client;
        g->slice_left = slice_of(in, channel);
    }
    uint64_t left = channel->submitted - channel->executed;
    uint64_t run = least(least(now - g->clock, left), g->slice_left);
    run = least(run, (g->clock / SG_SAMPLE_NS + 1) * SG_SAMPLE_NS - g->clock);
    run_segment(channel, g->clock, run);
    g->busy_ns += run;
    g->slice_left -= run;
    if (run == left) {
        set_runnable(g, client, false);
        g->slice_left = 0;
    }
    pass_to(in, gpu, g->clock + run);
    end_step(g);
}

/* Removes dead clients from the GPU: nobody waits for their work, and it would take others'
   time. */
static void drop_dead(struct sg_instance *in, uint32_t gpu, uint64_t now) {
    struct sg_gpu *g = &in->state->gpus[gpu];

    if (now - g->checked < CHECK_ALIVE_NS) {
        return;
    }
    g->checked = now;
    for (uint32_t i = 0; i < SG_CLIENTS_MAX; i++) {
        if (g->runnable[i / 64] == 0) {
            i |= 63;
        } else if (runnable(g, i) && !sg_alive(in, i)) {
            struct sg_channel *channel = sg_channel(in, i, gpu);
            channel->submitted = channel->executed;
            set_runnable(g, i, false);
        }
    }
}

void sg_advance_locked(struct sg_instance *in, uint32_t gpu, uint64_t now) {
    struct sg_gpu *g = &in->state->gpus[gpu];

    if (now > g->clock) {
        drop_dead(in, gpu, now);
    }
    while (g->clock < now) {
        step(in, gpu, now);
    }
}

void sg_advance(struct sg_instance *in, uint32_t gpu, uint64_t now) {
    sg_schedule_lock(in, gpu);
    sg_advance_locked(in, gpu, now);
    sg_schedule_unlock(in, gpu);
}

uint64_t sg_give_locked(struct sg_instance *in, uint32_t gpu, struct sg_engines *engines,
                        const struct sg_work *work) {
    struct sg_channel *channel = sg_channel(in, in->id, gpu);
    uint64_t end = sg_place(engines, channel->executed, work);

    if (end > channel->submitted) {
        channel->submitted = end;
    }
    if (end > channel->executed) {
        set_runnable(&in->state->gpus[gpu], in->id, true);
    }
    return end;
}

uint64_t sg_submit(struct sg_instance *in, uint32_t gpu, uint64_t now, struct sg_engines *engines,
                   const struct sg_work *work) {
    sg_schedule_lock(in, gpu);
    sg_advance_locked(in, gpu, now);
    uint64_t end = sg_give_locked(in, gpu, engines, work);
    sg_schedule_unlock(in, gpu);
    return end;
}

/* The moment at which the position was passed. Positions before the oldest segment count as reached
 * at its begin.
 */
static uint64_t look_up(const struct sg_channel *channel, uint64_t position) {
    uint64_t end = channel->segment_count, begin = end - least(end, SG_SEGMENTS);

    if (begin == end || position == 0) {
        return 1;
    }
    /* The last segment that began before the position. */
    while (end - begin > 1) {
        uint64_t middle = begin + (end - begin) / 2;
        if (channel->segments[middle % SG_SEGMENTS].done < position) {
            begin = middle;
        } else {
            end = middle;
        }
    }
    const struct sg_segment *s = &channel->segments[begin % SG_SEGMENTS];
    return position > s->done ? s->wall + least(position - s->done, s->length) : s->wall;
}

/* The least time until a runnable client's turn begins; others may take turns before it. */
static uint64_t until_turn(const struct sg_instance *in, uint32_t gpu, uint32_t client) {
    const struct sg_gpu *g = &in->state->gpus[gpu];
    uint32_t at = g->current % SG_CLIENTS_MAX;
    uint64_t sum = 0;

    if (g->slice_left && runnable(g, at)) {
        const struct sg_channel *channel = sg_channel(in, at, gpu);
        if (at == client) {
            return 0;
        }
        sum = least(g->slice_left, channel->submitted - channel->executed);
    }
    while ((at = next_runnable(g, (at + 1) % SG_CLIENTS_MAX)) != client && at < SG_CLIENTS_MAX) {
        const struct sg_channel *channel = sg_channel(in, at, gpu);
        sum += least(slice_of(in, channel), channel->submitted - channel->executed);
    }
    return sum;
}

uint64_t sg_reached(struct sg_instance *in, uint32_t gpu, uint64_t now, uint64_t position,
                    uint64_t *left) {
    struct sg_channel *channel = sg_channel(in, in->id, gpu);
    uint64_t moment = 0;

    sg_schedule_lock(in, gpu);
    sg_advance_locked(in, gpu, now);
    if (channel->executed >= position) {
        moment = look_up(channel, position);
    } else {
        *left = until_turn(in, gpu, in->id) + position - channel->executed;
    }
    sg_schedule_unlock(in, gpu);
    return moment;
}
