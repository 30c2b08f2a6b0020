/* nvidia-cuda-mps-server: a process that has a context on each of its GPUs while its daemon wants it to. The daemon is at
 * the other end of the socket MPS_SERVER_SOCKET, says first what the server is for, and gets its entry in the machine's
 * table when the server takes clients. */
#define _GNU_SOURCE
#include "simgpu/mps/server.h"
#include "simgpu/machine/visible.h"

#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

/* What NVIDIA's server takes of each GPU, about, as nvidia-smi shows it beside its clients. */
#define CONTEXT_BYTES (30ull << 20)
#define ORPHAN_LOOK_MS                                                                             \
    50 /* between looks whether the last client has left, when the daemon is dead */

static bool make_context(struct sg_instance *in, uint32_t gpu, uint64_t client_bytes) {
    uint64_t bytes = client_bytes < CONTEXT_BYTES ? client_bytes : CONTEXT_BYTES;
    uint32_t count = (uint32_t)((bytes + SG_BLOCK_BYTES - 1) / SG_BLOCK_BYTES);
    uint32_t numbers[CONTEXT_BYTES / SG_BLOCK_BYTES + 1];

    sg_state_lock(in);
    bool made =
        sg_admits_context(in, gpu) && sg_blocks_take(in, gpu, SG_CONTEXT, count, numbers) == 0;
    in->state->clients[in->id].contexts[gpu] = made;
    sg_state_unlock(in);
    return made;
}

static bool enter(struct sg_instance *in, uint32_t place) {
    sg_state_lock(in);
    bool entered = sg_mig_enter(in, place);
    sg_state_unlock(in);
    return entered;
}

/* Becomes a server of the machine; its entry, or a negative errno. */
static int begin(struct sg_instance *in, const struct mps_server_purpose *purpose) {
    size_t bytes;
    const sim_machine *machine = sg_state_machine(in, &bytes);
    struct sg_server server = {.status = SG_SERVER_INITIALIZING,
                               .uid = purpose->uid,
                               .any_uid = purpose->any_user,
                               .control = (uint32_t)getppid(),
                               .percentage = purpose->percentage};
    uint32_t gpus[SG_GPUS_MAX];
    unsigned n = mps_gpus(in, gpus);
    uint32_t place = mps_own_place(in);

    for (unsigned i = 0; i < n; i++) {
        server.gpus |= 1u << gpus[i];
        server.limits[gpus[i]] = purpose->limits[i];
    }
    if (place && !enter(in, place)) {
        return -1;
    }
    int entry = n ? sg_server_start(in, &server) : -1;
    for (unsigned i = 0; entry >= 0 && i < n; i++) {
        if (!make_context(in, gpus[i], machine->gpus[gpus[i]].context_bytes)) {
            return -1;
        }
    }
    return entry;
}

/* Until the daemon says that it is over, or is dead and the last client has left. */
static void serve(struct sg_instance *in, uint32_t entry) {
    struct pollfd daemon = {.fd = MPS_SERVER_SOCKET, .events = POLLIN};
    bool orphan = false;
    uint32_t left = 1;
    char over;

    while (left > 0) {
        poll(&daemon, orphan ? 0 : 1, orphan ? ORPHAN_LOOK_MS : -1);
        if (!orphan && recv(MPS_SERVER_SOCKET, &over, 1, MSG_DONTWAIT) > 0) {
            return;
        }
        orphan = true;
        sg_state_lock(in);
        sg_reap(in);
        left = sg_server_clients(in, entry);
        sg_state_unlock(in);
    }
}

int mps_server_main(void) {
    static const char self;
    char dir[SG_PATH_BYTES], tag[SG_TAG_BYTES];
    struct mps_server_purpose purpose;
    struct sg_instance in;

    prctl(PR_SET_NAME, MPS_SERVER_PROGRAM);
    if (recv(MPS_SERVER_SOCKET, &purpose, sizeof purpose, 0) != (ssize_t)sizeof purpose) {
        fputs("the MPS server is started by nvidia-cuda-mps-control\n", stderr);
        return 1;
    }
    if (sg_find(&self, dir, tag) != 0 || sg_open(&in, dir, "", true) != 0) {
        return 1;
    }
    int entry = begin(&in, &purpose);
    if (entry >= 0) {
        struct mps_server_ready ready = {.entry = (uint32_t)entry};
        sg_server_activate(&in, ready.entry);
        if (send(MPS_SERVER_SOCKET, &ready, sizeof ready, MSG_NOSIGNAL) == (ssize_t)sizeof ready) {
            serve(&in, ready.entry);
        }
    }
    sg_close(&in);
    return entry < 0;
}
