/*
 * Variables of modules: device memory that code has from its loading on. They are reserved before
 * the driver loads the code, and charged until the module or its context ends.
 *
 *     result = variables_open(&variables, &image);
 *     if (result != CUDA_SUCCESS)
 *         return result;
 *     result = DV_CALL(...);
 *     variables_settle(&variables, result, module);
 *
 * Variables of less than a block share blocks with those of other modules.
 */
#ifndef DIVVY_CUDA_MEMORY_VARIABLES_H
#define DIVVY_CUDA_MEMORY_VARIABLES_H

#include "cuda/memory/blocks.h"
#include "cuda/memory/growth.h"
#include "cuda/memory/image.h"

struct variables {
    uint64_t bytes;
    bool counted; /* in the context's blocks already, which had room */
    struct reservation reservation;
    struct growth growths[2];
};

/* Reserves for code, in the current context. */
DV_HIDDEN CUresult variables_open(struct variables *variables, const struct image *image);
DV_HIDDEN void variables_settle(struct variables *variables, CUresult result, const void *module);

/* What was noted of a module is taken out before the driver unloads it, because another thread may
 * get its handle at once, and then settled by the driver's answer. */
DV_HIDDEN bool variables_take(const void *module, struct entry *entry);
DV_HIDDEN void variables_ended(const void *module, const struct entry *entry, CUresult result);

/* Heap and print buffer of kernels: of code that needs them, in the current context. */
DV_HIDDEN CUresult variables_grow(struct growth growths[2], const struct image *image);
DV_HIDDEN void variables_grown(struct growth growths[2], CUresult result);

/* Whether so many bytes share blocks, the bytes of the blocks that so many need in all, and the
 * most that one more set of variables can add. A shared block is left when the next set finds no
 * room in it, so two that follow each other are more than half full; the driver may round up. */
static inline bool variables_small(uint64_t bytes) {
    return bytes <= BLOCK_BYTES / 2;
}
static inline uint64_t variables_pooled(uint64_t bytes) {
    return blocks_worst(bytes * 2 + bytes / 4);
}
static inline uint64_t variables_worst(uint64_t bytes) {
    return variables_small(bytes) ? variables_pooled(bytes) : blocks_worst(bytes);
}

#endif
