/* What the files that draw copies share. */
#ifndef DIVVY_REMOTE_TEST_COPIES_DRAW_H
#define DIVVY_REMOTE_TEST_COPIES_DRAW_H

#include "remote/test/copies_steps.h"

#define OK(call) CHECK_EQUAL(call, CUDA_SUCCESS)
#define ROOM COPIES_ROOM
#define CHUNK (15u << 16)
#define FAR ((size_t)1 << 44) /* where a device has no memory */
#define WIDTH 1024u           /* of the arrays, in elements */
#define ELEMENT 4u
#define HEIGHT 96u
#define DEPTH 4u

uint64_t copies_draw(void);

static inline uint64_t below(uint64_t bound) {
    return bound ? copies_draw() % bound : 0;
}

/* What a side of a drawn copy is. */
enum where { DEVICE, OTHER_DEVICE, PAGEABLE, PINNED, FLAT, DEEP, NOWHERE };

static inline bool is_array(enum where where) {
    return where == FLAT || where == DEEP;
}

static inline bool is_host(enum where where) {
    return where == PAGEABLE || where == PINNED;
}

static inline enum where draw_where(void) {
    return below(40) ? (enum where)below(NOWHERE) : NOWHERE;
}

static inline void *host_of(const struct copies_side *side, enum where where, unsigned which,
                            size_t at) {
    return where == NOWHERE ? NULL : (where == PINNED ? side->pinned : side->pageable)[which] + at;
}

static inline CUdeviceptr device_of(const struct copies_side *side, enum where where, size_t at) {
    return where == NOWHERE ? 0 : side->device[where == OTHER_DEVICE] + at;
}

/* In one process an address of the device that the client does not know is reserved nevertheless, by the driver. */
static inline CUdeviceptr unified_of(const struct copies_side *side, enum where where,
                                     unsigned which, size_t at) {
    return is_host(where) || where == NOWHERE ? (uintptr_t)host_of(side, where, which, at)
                                              : device_of(side, DEVICE, at);
}

/* copies_shapes.c */
CUresult copies_shape(const struct copies_side *side);

#endif
