/* How many of each thing one simulated machine has room for. Part of state.h. */
#ifndef SIMGPU_MACHINE_LIMITS_H
#define SIMGPU_MACHINE_LIMITS_H

#define SG_GPUS_MAX 16u
#define SG_CLIENTS_MAX 1024u /* processes with device state */
#define SG_SERVERS_MAX 16u   /* of MPS */

#endif
