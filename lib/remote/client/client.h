/* What the files of the client library share. The order of locks: the table of numbers, then the stream. */
#ifndef DIVVY_REMOTE_CLIENT_H
#define DIVVY_REMOTE_CLIENT_H

#include "abi/generated/cuda_functions.h"
#include "remote/call.h"
#include "remote/link.h"

/* session.c: the one connection of the process, from the first cuInit or nvmlInit on. */

/* Connects if nobody has yet. The result of cuInit; `why` was said on standard error, once. */
CUresult remote_session_begin(void);
/* The link, NULL before it begins and after it has ended. */
struct remote_link *remote_session_link(void);
/* Ends it because the other side does not keep to the protocol, or is gone; says why in one line. */
void remote_session_end(const char *why);

/* stream.c: remote_send, remote_wait and the rest of transport.h. */

/* The number of the calling thread, from 1. */
uint32_t remote_thread(void);
/* remote_link_give, in its place among what is sent. False where the two sides are on different hosts, or have no link. */
bool remote_give_descriptor(uint64_t number, int descriptor);
/* Frames that the worker sends by itself, with sequence 0 and this number as call, are given to this function on a
 * thread of the client's own, which is started by the first to register. It may send and wait. */
typedef void remote_notice(const struct remote_answer *head, const unsigned char *body,
                           size_t size);
void remote_notice_register(uint16_t call, remote_notice *notice);

/* current.c: the contexts that are current to the calling thread, as numbers. */

/* 0 for none, and where it has ended. */
uint64_t remote_current(void);
/* What a call answers that needs a current context: CUDA_SUCCESS, that there is none, that it has ended, or the fault that it
 * has had. */
CUresult remote_current_result(void);
/* What the program is told for a result of the worker, which knows no contexts that have ended: stream.c calls it on the
 * thread whose call it was. */
int32_t remote_current_told(uint16_t call, int32_t result);
/* Calls this when a context has ended, after what the client had of it is forgotten. There is one who asks for it, host.c. */
void remote_context_watch(void (*ended)(uint64_t context));
/* The device of a context, or -1. */
CUdevice remote_context_device(uint64_t context);

/* ranges.c: the ranges that the client has of the worker. address.c makes and frees them. */
enum remote_range_kind {
    REMOTE_RANGE_LINEAR,   /* cuMemAlloc's, or host memory */
    REMOTE_RANGE_POOL,     /* of no context */
    REMOTE_RANGE_RESERVED, /* addresses for cuMemMap */
    /* Nothing tells when these end, so others take their place. */
    REMOTE_RANGE_GRAPH, /* of a node */
    REMOTE_RANGE_CODE,  /* a variable of a module */
};
struct remote_range {
    CUdeviceptr start;
    size_t size;
    uint64_t context; /* whose end ends it, 0 for none */
    void *host;       /* where the program reads and writes it; NULL for memory of a device */
    unsigned flags;   /* of host memory */
    uint64_t pool;    /* number of the pool, 0 for none or that of the device */
    enum remote_range_kind kind;
};
/* Copies the range with this address; false if there is none. */
bool remote_range_find(CUdeviceptr address, struct remote_range *range);
/* Whether the address can be the worker's though no range has it, such as a variable of a module: the program has nothing
 * there. */
bool remote_range_foreign(CUdeviceptr address);
/* Notes a range, and reserves its addresses in the client unless its memory is the program's at the same ones. False if
 * the address means something else in the client already. */
bool remote_range_add(const struct remote_range *range);
/* Forgets the range that starts there, and lets go of its addresses. */
bool remote_range_remove(CUdeviceptr start, struct remote_range *range);
/* Before the worker is asked to end the range that starts there, or with 0 all that a context has of devices: they are
 * not found any more. Afterwards: forgets them, unless others have their addresses now, or has them back. */
void remote_range_leave(uint64_t context, CUdeviceptr start);
void remote_range_left(uint64_t context, CUdeviceptr start, bool ended);

/* copies.c: memory of the program that both sides see, if this range is such; its number and where in it. */
bool remote_region_find(const void *at, size_t size, uint64_t *region, uint64_t *offset);

/* copies_land.c: copies to host memory that were posted, whose bytes come before a later answer. */

/* Waits until those that were posted so far have landed: before what they are of ends. */
void remote_landings_wait(void);
/* The same, and none is posted from now on. */
void remote_landings_stop(void);

/* within.c: whether the calling thread is inside a function of the program that a stream has called. There every call
 * answers CUDA_ERROR_NOT_PERMITTED. */
bool remote_in_callback(void);
/* callback.c says so. */
void remote_callback_enters(bool enters);

#endif
