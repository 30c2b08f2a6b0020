/*
 * Which 2 MiB blocks of device memory this process's allocations touch.
 *
 * The driver serves small requests out of 2 MiB blocks and returns a block when nothing of it is in
 * use. An address tells its block, so that the memory really taken is 2 MiB times the number of
 * blocks touched. Addresses are unique in a process whatever the GPU (unified addressing). Blocks
 * that one allocation covers fully cannot be touched by another; only an allocation's partly covered
 * first and last block are looked up and counted.
 */
#ifndef DIVVY_CUDA_BLOCKS_H
#define DIVVY_CUDA_BLOCKS_H

#include <stdbool.h>
#include <stdint.h>

#define BLOCK_BYTES ((uint64_t)2 << 20)

/* The most that a request of so many bytes can add; UINT64_MAX if it is beyond any GPU. */
static inline uint64_t blocks_worst(uint64_t bytes) {
    return bytes > UINT64_MAX - BLOCK_BYTES ? UINT64_MAX
                                            : (bytes + BLOCK_BYTES - 1) & ~(BLOCK_BYTES - 1);
}

/* Notes an allocation of bytes > 0 at address; writes the bytes of blocks that it is the first to
 * touch. False, with nothing noted, if there is no memory for the note. */
bool blocks_touch(uint64_t address, uint64_t bytes, uint64_t *added);

/* Takes the note back; returns the bytes of blocks that nothing touches any more. */
uint64_t blocks_leave(uint64_t address, uint64_t bytes);

/* Bytes of the blocks that a range covers fully, and of those that it covers partly, which it may have
 * in common with others. */
uint64_t blocks_whole(uint64_t address, uint64_t bytes);
uint64_t blocks_partial(uint64_t address, uint64_t bytes);

/* For the child of a fork. */
void blocks_forget(void);

#endif
