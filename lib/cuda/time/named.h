/*
 * NAMED(launch, (a0, a1, …)): notes the swapped memory that the arguments of a copy or fill name:
 * addresses, descriptions of shaped copies, the first of a list.
 */
#ifndef DIVVY_CUDA_TIME_NAMED_H
#define DIVVY_CUDA_TIME_NAMED_H

#include "cuda/time/uses.h"

static inline void named_nothing(uint32_t turns, const void *at) {
    (void)turns;
    (void)at;
}
static inline void named_address(uint32_t turns, const void *at) {
    uses_address(turns, *(const CUdeviceptr *)at);
}
static inline void named_list(uint32_t turns, const void *at) {
    const CUdeviceptr *list = *(CUdeviceptr *const *)at;
    if (list != NULL) {
        uses_address(turns, list[0]);
    }
}
#define NAMED_BY(name, type)                                                                       \
    static inline void name(uint32_t turns, const void *at) {                                      \
        const type *copy = *(const type *const *)at;                                               \
        if (copy != NULL) {                                                                        \
            uses_address(turns, copy->srcDevice);                                                  \
            uses_address(turns, copy->dstDevice);                                                  \
        }                                                                                          \
    }
NAMED_BY(named_plane, CUDA_MEMCPY2D)
NAMED_BY(named_box, CUDA_MEMCPY3D)
NAMED_BY(named_peer_box, CUDA_MEMCPY3D_PEER)
#undef NAMED_BY

#define NAMED_ONE(turns, argument)                                                                 \
    _Generic((argument),                                                                           \
        CUdeviceptr: named_address,                                                                \
        CUdeviceptr *: named_list,                                                                 \
        const CUDA_MEMCPY2D *: named_plane,                                                        \
        const CUDA_MEMCPY3D *: named_box,                                                          \
        const CUDA_MEMCPY3D_PEER *: named_peer_box,                                                \
        default: named_nothing)((turns), &(argument))

/* Fewer arguments are filled up, and more than six name no memory. */
#define NAMED_SIX(turns, a, b, c, d, e, f, ...)                                                    \
    do {                                                                                           \
        NAMED_ONE(turns, a);                                                                       \
        NAMED_ONE(turns, b);                                                                       \
        NAMED_ONE(turns, c);                                                                       \
        NAMED_ONE(turns, d);                                                                       \
        NAMED_ONE(turns, e);                                                                       \
        NAMED_ONE(turns, f);                                                                       \
    } while (0)
#define NAMED_ALL(...) NAMED_SIX(__VA_ARGS__, rest, rest, rest, rest, rest, rest)
#define NAMED_LIST(...) __VA_ARGS__

#define NAMED(launch, arguments)                                                                   \
    if (uses_matter(launch)) {                                                                     \
        const int rest = 0;                                                                        \
        (void)rest;                                                                                \
        NAMED_ALL((launch)->turns, NAMED_LIST arguments);                                          \
    }

#endif
