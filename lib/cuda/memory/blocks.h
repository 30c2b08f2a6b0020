/*
 * The 2 MiB blocks in which the driver takes memory from the GPU.
 *
 * The driver serves small requests from a block and returns the block when nothing in it is in use.
 * So the memory really taken is 2 MiB times the number of blocks that allocations touch. Only the
 * first and last block of an allocation, which it may cover partly, can be touched by others.
 */
#ifndef DIVVY_CUDA_MEMORY_BLOCKS_H
#define DIVVY_CUDA_MEMORY_BLOCKS_H

#include <stdint.h>

#define BLOCK_BYTES ((uint64_t)2 << 20)

/* The most that a request of so many bytes can add; UINT64_MAX if it is beyond any GPU. */
static inline uint64_t blocks_worst(uint64_t bytes) {
    return bytes > UINT64_MAX - BLOCK_BYTES ? UINT64_MAX
                                            : (bytes + BLOCK_BYTES - 1) & ~(BLOCK_BYTES - 1);
}

/* A range of addresses by its blocks. */
struct span {
    uint64_t whole;    /* bytes of the blocks covered fully */
    uint64_t edges[2]; /* addresses of the blocks covered partly */
    unsigned edge_count;
};

static inline struct span span_of(uint64_t address, uint64_t bytes) {
    uint64_t end = address + bytes;
    uint64_t first = address & ~(BLOCK_BYTES - 1), last = end & ~(BLOCK_BYTES - 1);
    struct span span = {.edge_count = 0};
    if (address != first || first == last) {
        span.edges[span.edge_count++] = first;
        first += BLOCK_BYTES;
    }
    if (end != last && last >= first) {
        span.edges[span.edge_count++] = last;
    }
    span.whole = last > first ? last - first : 0;
    return span;
}

#endif
