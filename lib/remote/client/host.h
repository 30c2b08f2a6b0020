/* The client's table of host memory, by address. */
#ifndef DIVVY_REMOTE_HOST_H
#define DIVVY_REMOTE_HOST_H

#include "remote/client/copies.h"

struct remote_host {
    unsigned char *at;
    size_t size;
    CUdeviceptr device; /* 0 where it has no address */
    uint64_t region;    /* 0 where the worker does not see it */
    uint64_t context;
    unsigned flags;
    bool registered; /* the program's own */
};

/* The memory in which the address is. */
bool remote_host_find(const void *address, struct remote_host *found);
CUresult remote_host_add(const struct remote_host *host);
/* Takes out what begins there and is the program's own, or is not. */
bool remote_host_take(const void *at, bool registered, struct remote_host *host);
/* Takes out anything that a context has. */
bool remote_host_take_of(uint64_t context, struct remote_host *host);
/* A number for memory that both sides see, 0 if all are in use; and its end. */
uint64_t remote_host_number_new(void);
void remote_host_number_end(uint64_t number);

#endif
