/* What a daemon and its servers say to each other. */
#ifndef SIMGPU_MPS_SERVER_H
#define SIMGPU_MPS_SERVER_H

#include "simgpu/mps/mps.h"

#define MPS_SERVER_PROGRAM "nvidia-cuda-mps-server"
#define MPS_SERVER_SOCKET 3 /* the server's descriptor of the socket to its daemon */

/* The daemon's first packet. A packet that follows ends the server. */
struct mps_server_purpose {
    uint32_t uid, any_user;
    double percentage;
    uint64_t limits[MPS_DEVICES]; /* by CUDA's numbers of the GPUs that the server sees */
};

/* The server's one packet: it takes clients. */
struct mps_server_ready {
    uint32_t entry;
};

#endif
