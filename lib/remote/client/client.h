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
/* Frames that the worker sends by itself, with sequence 0 and this number as call, are given to this function on a
 * thread of the client's own, which is started by the first to register. It may send and wait. */
typedef void remote_notice(const struct remote_answer *head, const unsigned char *body, size_t size);
void remote_notice_register(uint16_t call, remote_notice *notice);

/* current.c: the contexts that are current to the calling thread, as numbers. */

/* 0 for none. */
uint64_t remote_current(void);
/* The device of a context, or -1. */
CUdevice remote_context_device(uint64_t context);

/* address.c: the ranges that the client has of the worker. */
struct remote_range {
    CUdeviceptr start;
    size_t size;
    uint64_t context; /* in which it was made */
    void *host;       /* where the program reads and writes it; NULL for memory of a device */
    unsigned flags;   /* of host memory */
    uint64_t pool;    /* number of the pool, 0 for none */
};
/* Copies the range with this address; false if there is none. */
bool remote_range_find(CUdeviceptr address, struct remote_range *range);
/* Notes a range. False if the address means something else in the client already. */
bool remote_range_add(const struct remote_range *range);
bool remote_range_remove(CUdeviceptr start, struct remote_range *range);

/* copies.c: memory of the program that both sides see, if this range is such; its number and where in it. */
bool remote_region_find(const void *at, size_t size, uint64_t *region, uint64_t *offset);

/* callback.c: whether the calling thread is inside a function of the program that a stream has called. There every call
 * answers CUDA_ERROR_NOT_PERMITTED. */
bool remote_in_callback(void);

#endif
