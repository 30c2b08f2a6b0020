/* Events that several processes know. The state holds the last record: whose channel must reach
 * which position. Every process can look that up. */
#include "simgpu/cuda/queue.h"

#include <string.h>

#define TOKEN_MAGIC 0x53474950434556ull

struct token {
    uint64_t magic;
    uint64_t key;
    uint32_t number;
    uint32_t pad;
    uint64_t reserved[5];
};
_Static_assert(sizeof(struct token) == sizeof(CUipcEventHandle), "token");

static struct sg_event *entry_of(const struct CUevent_st *event) {
    return &sg_driver.instance.state->events[event->shared - 1];
}

static bool lives(const struct sg_instance *in, uint32_t client, uint32_t generation) {
    return in->state->clients[client].generation == generation && sg_alive(in, client);
}

void event_publish(const struct CUevent_st *event) {
    struct sg_instance *in = &sg_driver.instance;

    if (!event->shared) {
        return;
    }
    struct sg_event *entry = entry_of(event);
    sg_state_lock(in);
    entry->recorder = in->id;
    entry->recorder_generation = in->state->clients[in->id].generation;
    entry->gpu = event->mark.device->gpu;
    entry->position = event->mark.position;
    entry->pending = !event->mark.issued;
    sg_state_unlock(in);
}

struct mark event_shared_mark(const struct CUevent_st *event) {
    struct sg_instance *in = &sg_driver.instance;
    const struct sg_event *entry = entry_of(event);

    sg_state_lock(in);
    struct mark mark = {.shared = event->shared,
                        .recorder = entry->recorder,
                        .recorder_generation = entry->recorder_generation,
                        .device = event->ctx->device,
                        .position = entry->position,
                        .issued = !entry->pending};
    sg_state_unlock(in);
    return mark;
}

/* A record that was pending is looked for until it is issued; then its position counts. */
bool event_shared_over(const struct mark *mark, uint64_t *left) {
    struct sg_instance *in = &sg_driver.instance;
    const struct sg_event *entry = &in->state->events[mark->shared - 1];

    *left = QUEUE_POLL_NS;
    sg_state_lock(in);
    uint64_t position = mark->issued ? mark->position : entry->position;
    bool pending = !mark->issued && entry->pending;
    uint32_t gpu = entry->gpu;
    bool gone = !lives(in, mark->recorder, mark->recorder_generation);
    sg_state_unlock(in);
    if (gone) {
        return true;
    }
    if (pending) {
        return false;
    }
    sg_advance(in, gpu, sg_time(in));
    return __atomic_load_n(&sg_channel(in, mark->recorder, gpu)->executed, __ATOMIC_ACQUIRE) >=
           position;
}

void event_unshare(const struct CUevent_st *event) {
    struct sg_instance *in = &sg_driver.instance;

    if (!event->shared || event->imported) {
        return;
    }
    sg_state_lock(in);
    entry_of(event)->key = 0;
    sg_state_unlock(in);
}

/* The state lock. A free place in the table, or one whose owner is dead. */
static uint32_t free_place(const struct sg_instance *in) {
    const struct sg_event *events = in->state->events;
    uint32_t i = 0;

    while (i < SG_EVENTS_MAX && events[i].key &&
           lives(in, events[i].owner, events[i].owner_generation)) {
        i++;
    }
    return i;
}

static bool share(CUevent event) {
    struct sg_instance *in = &sg_driver.instance;

    sg_state_lock(in);
    uint32_t place = free_place(in);
    if (place < SG_EVENTS_MAX) {
        uint32_t generation = in->state->clients[in->id].generation;
        in->state->events[place] = (struct sg_event){.owner = in->id,
                                                     .owner_generation = generation,
                                                     .recorder = in->id,
                                                     .recorder_generation = generation,
                                                     .gpu = event->ctx->device->gpu,
                                                     .key = sg_new_key(in)};
        event->shared = place + 1;
    }
    sg_state_unlock(in);
    if (event->shared && event->mark.stream) {
        event_publish(event);
    }
    return event->shared != 0;
}

CUresult cuIpcGetEventHandle(CUipcEventHandle *handle, CUevent event) {
    SG_REQUIRE(handle && event, CUDA_ERROR_INVALID_VALUE);
    SG_READY();
    SG_REQUIRE(handle_given(event, HANDLE_EVENT), CUDA_ERROR_INVALID_HANDLE);
    SG_REQUIRE((event->flags & CU_EVENT_INTERPROCESS) && !event->imported,
               CUDA_ERROR_INVALID_VALUE);
    sg_work_lock();
    bool shared = event->shared || share(event);
    sg_work_unlock();
    if (!shared) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    struct token token = {
        .magic = TOKEN_MAGIC, .key = entry_of(event)->key, .number = event->shared - 1};
    memcpy(handle->reserved, &token, sizeof token);
    return CUDA_SUCCESS;
}

CUresult cuIpcOpenEventHandle(CUevent *out, CUipcEventHandle handle) {
    struct sg_instance *in = &sg_driver.instance;
    struct token token;

    SG_REQUIRE(out, CUDA_ERROR_INVALID_VALUE);
    SG_ENTER(ctx, SG_FAULT_OTHER)
    memcpy(&token, handle.reserved, sizeof token);
    SG_REQUIRE(token.magic == TOKEN_MAGIC && token.number < SG_EVENTS_MAX && token.key,
               CUDA_ERROR_INVALID_VALUE);
    sg_state_lock(in);
    const struct sg_event *entry = &in->state->events[token.number];
    bool known = entry->key == token.key && lives(in, entry->owner, entry->owner_generation);
    bool own = known && entry->owner == in->id;
    sg_state_unlock(in);
    SG_REQUIRE(known, CUDA_ERROR_INVALID_HANDLE);
    SG_REQUIRE(!own, CUDA_ERROR_INVALID_CONTEXT);
    CUevent event = event_new(ctx, CU_EVENT_INTERPROCESS | CU_EVENT_DISABLE_TIMING);
    if (!event) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    event->shared = token.number + 1;
    event->imported = true;
    *out = event;
    return CUDA_SUCCESS;
}
