/* The parameters that a program gives to a kernel, as a record has them: one piece, by the layout of the kernel. */
#ifndef DIVVY_REMOTE_PACK_H
#define DIVVY_REMOTE_PACK_H

#include "remote/client/client.h"
#include "remote/layout.h"

/* How parameters were given, which a record says by the parameters that are in it. */
enum remote_form {
    REMOTE_NO_PARAMS,
    REMOTE_POINTERS, /* kernelParams: packed by the layout */
    REMOTE_BUFFER,   /* CU_LAUNCH_PARAM_BUFFER_POINTER: as the program packed them */
};

struct remote_packed {
    enum remote_form form;
    uint32_t size;
    const void *at;           /* in `room` or `large`, or the program's own buffer */
    void *large;              /* of malloc's; NULL for none */
    unsigned char room[1024]; /* little enough for the stack of any thread */
};

/* Packs what a launch or a node is given. A result other than success is what the call answers. In any case the packed
 * parameters are ended once they were sent. */
CUresult remote_pack(CUfunction function, void **params, void **extra,
                     struct remote_packed *packed);
void remote_packed_end(struct remote_packed *packed);

/* The layout of a function, or of a kernel given as one, asked of the worker the first time. NULL where it cannot be told,
 * with what the call answers. Valid while its module is loaded. */
const struct remote_layout *remote_layout_of(CUfunction function, CUresult *result);

/* Has an array of `count` addresses, of the layout, lead to the parameters in packed bytes. */
void remote_unpack(const struct remote_layout *layout, const void *bytes, void **params);

/* What is wrong with the shape of a launch on every GPU: of how many blocks, and threads in each. */
CUresult remote_judge_shape(const unsigned grid[3], const unsigned block[3]);

#endif
