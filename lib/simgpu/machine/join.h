/* How a process asks the control daemon of MPS for a server, over a connection to the socket `control`
 * of the pipe directory. Part of what simgpu's programs say to each other; NVIDIA's say it otherwise. */
#ifndef SIMGPU_MACHINE_JOIN_H
#define SIMGPU_MACHINE_JOIN_H

#include <stdint.h>

#include "simgpu/machine/servers.h"

/* The first packet from the daemon to everybody who connects, with its zero byte, as drivers 535, 550 and
 * 555 send and await it (traced with strace). */
#define SG_JOIN_GREETING "OUTBHELL"

/* The first byte of a packet to the daemon. */
enum sg_join_packet {
    SG_JOIN_UI = 'u',      /* a program will give commands */
    SG_JOIN_COMMAND = 'c', /* a line of the control language follows */
    SG_JOIN_CLIENT = 'j',  /* a process asks for a server: struct sg_join_request */
};

struct sg_join_request {
    char kind;
    char pad[3];
    uint32_t client, generation; /* the process's slot */
    uint64_t machine;            /* its key_seed, which tells machines apart */
};

/* Comes when it is decided, which may take as long as other users' processes run. */
struct sg_join_answer {
    uint32_t result; /* enum sg_join */
    uint32_t server; /* its entry, when it is SG_JOINED */
};

#endif
