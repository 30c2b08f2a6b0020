/* What a process gives its channel, and when that was done. */
#include "simgpu/machine/paging.h"
#include "simgpu/machine/turns.h"

static uint64_t least(uint64_t a, uint64_t b) {
    return a < b ? a : b;
}

void sg_channel_start(struct sg_instance *in, uint32_t gpu, uint32_t multiprocessors,
                      uint32_t usable) {
    struct sg_channel *channel = sg_channel(in, in->id, gpu);

    sg_schedule_lock(in, gpu);
    if (channel->engines.multiprocessors == 0) {
        sg_engines_start(&channel->engines, multiprocessors);
    }
    sg_engines_limit(&channel->engines, usable);
    sg_schedule_unlock(in, gpu);
}

uint64_t sg_give_locked(struct sg_instance *in, uint32_t gpu, const struct sg_work *work) {
    struct sg_channel *channel = sg_channel(in, in->id, gpu);

    if (channel->engines.multiprocessors == 0) {
        sg_engines_start(&channel->engines, 1);
    }
    uint64_t end = sg_place(&channel->engines, channel->executed, work);
    if (end > channel->submitted) {
        channel->submitted = end;
    }
    if (work->touch_count) {
        sg_pages_lock(in);
        paging_demand(in, gpu, work, end - sg_work_ns(&channel->engines, work), end);
        sg_pages_unlock(in);
    }
    if (end > channel->executed && !(sg_paging(in) && paging_until(in, gpu, in->id))) {
        turn_set(in, gpu, in->id, true);
    }
    return end;
}

uint64_t sg_submit(struct sg_instance *in, uint32_t gpu, uint64_t now, const struct sg_work *work) {
    sg_schedule_lock(in, gpu);
    sg_advance_locked(in, gpu, now);
    uint64_t end = sg_give_locked(in, gpu, work);
    sg_schedule_unlock(in, gpu);
    return end;
}

/* When a segment passed some of the channel's own time, at the latest at its end. */
static uint64_t time_in(const struct sg_segment *s, uint64_t own) {
    double slower = (double)SG_FULL_RATE / (double)s->rate;

    return least(s->rate == SG_FULL_RATE ? own : (uint64_t)((double)own * slower), s->length);
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
    return position > s->done ? s->wall + time_in(s, position - s->done) : s->wall;
}

/* The least time in which a party would do all its work. */
static uint64_t work_of(const struct sg_instance *in, uint32_t gpu, uint32_t party) {
    uint32_t members[SG_GROUP_MAX], count = turn_members(in, gpu, party, members);
    uint64_t most = 0;

    for (uint32_t i = 0; i < count; i++) {
        const struct sg_channel *channel = sg_channel(in, members[i], gpu);
        uint64_t left = channel->submitted - channel->executed;
        most = left > most ? left : most;
    }
    return most;
}

/* The least time until a runnable client's turn begins; others may take turns before it. */
static uint64_t until_turn(const struct sg_instance *in, uint32_t gpu, uint32_t client) {
    const struct sg_gpu *g = &in->state->gpus[gpu];
    uint32_t at = g->current % SG_CLIENTS_MAX, party = turn_of(in, gpu, client);
    uint64_t sum = 0;

    if (g->slice_left && turn_bit(g->turns, at)) {
        if (at == party) {
            return 0;
        }
        sum = least(g->slice_left, work_of(in, gpu, at));
    }
    while ((at = turn_next(g, (at + 1) % SG_CLIENTS_MAX)) != party && at < SG_CLIENTS_MAX) {
        sum += least(turn_slice(in, gpu, at), work_of(in, gpu, at));
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
        uint64_t until = paging_until(in, gpu, in->id), clock = in->state->gpus[gpu].clock;
        uint64_t turn = !until ? until_turn(in, gpu, in->id) : until > clock ? until - clock : 1;
        *left = turn + position - channel->executed;
    }
    sg_schedule_unlock(in, gpu);
    return moment;
}
