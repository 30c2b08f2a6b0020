/* MPS servers and who is a client of them. Part of state.h.
 *
 * A server is a process with a client slot of its own. Its entry is in use while `status` is not
 * SG_SERVER_NONE. The state lock guards entries and memberships; a process reads its own without it. */
#ifndef SIMGPU_MACHINE_SERVERS_H
#define SIMGPU_MACHINE_SERVERS_H

#include <stdbool.h>
#include <stdint.h>

#include "simgpu/machine/limits.h"

struct sg_instance;

/* What a server does, as get_server_status tells it. */
enum sg_server_status {
    SG_SERVER_NONE,         /* there is no server */
    SG_SERVER_INITIALIZING, /* it makes its contexts and takes no clients yet */
    SG_SERVER_ACTIVE,
    SG_SERVER_FAULT, /* a client made a fatal fault: none is taken before all have left */
};

struct sg_server {
    uint32_t status;             /* enum sg_server_status */
    uint32_t client, generation; /* the server's own slot */
    uint32_t number;             /* no two servers of the machine have the same */
    uint32_t place;              /* the compute instance that is its GPU, see mig.h; 0 is none */
    uint32_t uid;                /* whose clients it serves */
    uint32_t any_uid;            /* it serves everybody's */
    uint32_t gpus;               /* bits of those that it has */
    uint32_t control;            /* process of its control daemon; information only */
    uint32_t fault[SG_GPUS_MAX]; /* what its clients' calls answer for that GPU; 0 is no fault */
    double percentage;           /* of the multiprocessors, for each client that comes */
    uint64_t
        limits[SG_GPUS_MAX]; /* bytes of device memory, for each client that comes; 0 is none */
};

/* A process's place at a server. */
struct sg_membership {
    uint32_t server;     /* entry + 1; 0 is none */
    uint32_t number;     /* the server's */
    uint32_t terminated; /* the server was told to end its work */
    uint32_t uid;
    uint32_t usable[SG_GPUS_MAX]; /* multiprocessors */
    uint64_t limits[SG_GPUS_MAX]; /* bytes of device memory; 0 is none */
};

/* What a process learns when it asks for its server. */
enum sg_join {
    SG_JOINED,
    SG_JOIN_NOT_READY, /* the server is in FAULT, or not up yet */
    SG_JOIN_FULL,      /* it has as many clients as it may */
    SG_JOIN_GONE,      /* one of the two has ended */
    SG_JOIN_REFUSED,   /* there can be no server for it */
    SG_JOIN_ABROAD,    /* the daemon is of another machine */
};

/* Makes the caller the server with these GPUs and their order; returns its entry, -EUSERS when there are
 * too many servers. */
int sg_server_start(struct sg_instance *in, const struct sg_server *server);
/* The caller's server takes clients from now on. */
void sg_server_activate(struct sg_instance *in, uint32_t server);
/* Makes a client, which has that generation, one of the server's, which has at most so many. */
enum sg_join sg_server_admit(struct sg_instance *in, uint32_t server, uint32_t client,
                             uint32_t generation, uint32_t most);
/* The state lock: how many clients a server has. */
uint32_t sg_server_clients(const struct sg_instance *in, uint32_t server);
/* The next server's entry from `from` on; SG_SERVERS_MAX when there is none. */
uint32_t sg_next_server(const struct sg_instance *in, uint32_t from);
/* The caller's server, if it is a client and the server lives; NULL without. */
struct sg_server *sg_server_of(const struct sg_instance *in, uint32_t client);
/* The state lock: a client that the process is, or the server whose client it is. */
uint32_t sg_party(const struct sg_instance *in, uint32_t client);
/* A kernel of the caller's made a fatal fault on the GPU: if it is a client, all clients of its server
 * that have a context there answer `result` from now on. */
void sg_server_fault(struct sg_instance *in, uint32_t gpu, uint32_t result);
/* The state lock: ends a FAULT whose clients have all left. */
void sg_server_recover(struct sg_instance *in, uint32_t server);
/* The state lock: has the calls of a client of that server answer that it was terminated, and drops its work. */
void sg_server_terminate(struct sg_instance *in, uint32_t client);
/* The state lock: the server with that slot has ended. Its clients' work is dropped. */
void sg_server_ended(struct sg_instance *in, uint32_t client);

#endif
