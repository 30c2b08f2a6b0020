#include "simgpu/machine/state.h"

#include <errno.h>
#include <string.h>

uint32_t sg_next_server(const struct sg_instance *in, uint32_t from) {
    while (from < SG_SERVERS_MAX &&
           __atomic_load_n(&in->state->servers[from].status, __ATOMIC_ACQUIRE) == SG_SERVER_NONE) {
        from++;
    }
    return from;
}

static bool lives(const struct sg_instance *in, const struct sg_server *server) {
    return server->status != SG_SERVER_NONE &&
           in->state->clients[server->client % SG_CLIENTS_MAX].generation == server->generation;
}

static bool is_member(const struct sg_instance *in, uint32_t client, uint32_t server) {
    const struct sg_membership *m = &in->state->clients[client].membership;

    return m->server == server + 1 && m->number == in->state->servers[server].number;
}

struct sg_server *sg_server_of(const struct sg_instance *in, uint32_t client) {
    const struct sg_membership *m = &in->state->clients[client].membership;
    uint32_t entry = __atomic_load_n(&m->server, __ATOMIC_ACQUIRE);

    if (entry == 0 || entry > SG_SERVERS_MAX) {
        return NULL;
    }
    struct sg_server *server = &in->state->servers[entry - 1];
    return lives(in, server) && server->number == m->number ? server : NULL;
}

uint32_t sg_party(const struct sg_instance *in, uint32_t client) {
    const struct sg_server *server = sg_server_of(in, client);

    return server ? server->client : client;
}

uint32_t sg_server_clients(const struct sg_instance *in, uint32_t server) {
    uint32_t count = 0;

    for (uint32_t i = 0; (i = sg_next_client(in, i)) < SG_CLIENTS_MAX; i++) {
        count += is_member(in, i, server);
    }
    return count;
}

int sg_server_start(struct sg_instance *in, const struct sg_server *server) {
    struct sg_state *st = in->state;
    uint32_t i = 0;

    sg_state_lock(in);
    sg_reap(in);
    while (i < SG_SERVERS_MAX && st->servers[i].status != SG_SERVER_NONE) {
        i++;
    }
    if (i < SG_SERVERS_MAX) {
        struct sg_server *entry = &st->servers[i];
        *entry = *server;
        entry->status = SG_SERVER_NONE;
        entry->client = in->id;
        entry->generation = st->clients[in->id].generation;
        entry->number = ++st->servers_made;
        entry->place = st->clients[in->id].place;
        for (uint32_t gpu = 0; gpu < st->gpu_count; gpu++) {
            sg_group_join(in, gpu, in->id, in->id);
        }
        __atomic_store_n(&entry->status, server->status, __ATOMIC_RELEASE);
    }
    sg_state_unlock(in);
    return i < SG_SERVERS_MAX ? (int)i : -EUSERS;
}

void sg_server_activate(struct sg_instance *in, uint32_t server) {
    sg_state_lock(in);
    __atomic_store_n(&in->state->servers[server].status, SG_SERVER_ACTIVE, __ATOMIC_RELEASE);
    sg_state_unlock(in);
}

static enum sg_join admit(struct sg_instance *in, uint32_t server, uint32_t client,
                          uint32_t generation, uint32_t most) {
    struct sg_server *entry = &in->state->servers[server];
    struct sg_client *c = &in->state->clients[client];

    if (!lives(in, entry) || c->generation != generation || !sg_alive(in, client)) {
        return SG_JOIN_GONE;
    }
    if (entry->status != SG_SERVER_ACTIVE) {
        return SG_JOIN_NOT_READY;
    }
    if (sg_server_clients(in, server) >= most) {
        return SG_JOIN_FULL;
    }
    for (uint32_t gpu = 0; gpu < in->state->gpu_count; gpu++) {
        sg_group_join(in, gpu, client, entry->client);
    }
    c->membership.number = entry->number;
    __atomic_store_n(&c->membership.server, server + 1, __ATOMIC_RELEASE);
    return SG_JOINED;
}

enum sg_join sg_server_admit(struct sg_instance *in, uint32_t server, uint32_t client,
                             uint32_t generation, uint32_t most) {
    if (server >= SG_SERVERS_MAX || client >= SG_CLIENTS_MAX) {
        return SG_JOIN_GONE;
    }
    sg_state_lock(in);
    sg_reap(in);
    enum sg_join result = admit(in, server, client, generation, most);
    sg_state_unlock(in);
    return result;
}

static void drop_work(struct sg_instance *in, uint32_t client) {
    for (uint32_t gpu = 0; gpu < in->state->gpu_count; gpu++) {
        sg_schedule_lock(in, gpu);
        sg_drop_locked(in, gpu, client);
        sg_schedule_unlock(in, gpu);
    }
}

void sg_server_fault(struct sg_instance *in, uint32_t gpu, uint32_t result) {
    sg_state_lock(in);
    struct sg_server *server = sg_server_of(in, in->id);
    if (server) {
        uint32_t entry = (uint32_t)(server - in->state->servers);
        if (server->fault[gpu] == 0) {
            __atomic_store_n(&server->fault[gpu], result, __ATOMIC_RELEASE);
        }
        __atomic_store_n(&server->status, SG_SERVER_FAULT, __ATOMIC_RELEASE);
        for (uint32_t i = 0; (i = sg_next_client(in, i)) < SG_CLIENTS_MAX; i++) {
            if (is_member(in, i, entry)) {
                sg_schedule_lock(in, gpu);
                sg_drop_locked(in, gpu, i);
                sg_schedule_unlock(in, gpu);
            }
        }
    }
    sg_state_unlock(in);
}

void sg_server_recover(struct sg_instance *in, uint32_t server) {
    struct sg_server *entry = &in->state->servers[server];

    if (entry->status == SG_SERVER_FAULT && sg_server_clients(in, server) == 0) {
        memset(entry->fault, 0, sizeof entry->fault);
        __atomic_store_n(&entry->status, SG_SERVER_ACTIVE, __ATOMIC_RELEASE);
    }
}

void sg_server_terminate(struct sg_instance *in, uint32_t client) {
    __atomic_store_n(&in->state->clients[client].membership.terminated, 1, __ATOMIC_RELEASE);
    drop_work(in, client);
}

void sg_server_ended(struct sg_instance *in, uint32_t client) {
    struct sg_state *st = in->state;

    for (uint32_t server = 0; server < SG_SERVERS_MAX; server++) {
        if (st->servers[server].status == SG_SERVER_NONE || st->servers[server].client != client) {
            continue;
        }
        for (uint32_t i = 0; (i = sg_next_client(in, i)) < SG_CLIENTS_MAX; i++) {
            if (i != client && is_member(in, i, server)) {
                drop_work(in, i);
                for (uint32_t gpu = 0; gpu < st->gpu_count; gpu++) {
                    sg_group_join(in, gpu, i, SG_CLIENTS_MAX);
                }
            }
        }
        __atomic_store_n(&st->servers[server].status, SG_SERVER_NONE, __ATOMIC_RELEASE);
    }
}
