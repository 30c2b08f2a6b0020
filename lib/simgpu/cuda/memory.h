/* Device memory in the process: addresses, ranges, heaps, contents. */
#ifndef SIMGPU_CUDA_MEMORY_H
#define SIMGPU_CUDA_MEMORY_H

#include "simgpu/cuda/process.h"

/* ---- memory: range.c, pages.c, heap.c, access.c ---- */

enum range_kind {
    RANGE_SMALL,    /* a heap's block; holds many allocations */
    RANGE_OWN,      /* one allocation */
    RANGE_NARROW,   /* one allocation whose address has 32 bits */
    RANGE_CHUNK,    /* of a pool */
    RANGE_RESERVED, /* addresses for cuMemMap */
    RANGE_IMPORT,   /* another process's memory */
    RANGE_CODE,     /* the variables of a module */
    RANGE_GRAPH,    /* of a memory node of a graph; its pages come and go */
};

/* Device addresses in one piece, a multiple of the block size. */
struct range {
    enum range_kind kind;
    CUdeviceptr base;
    uint64_t size;
    uint64_t requested; /* bytes asked for; RANGE_OWN, RANGE_CODE and RANGE_IMPORT */
    CUcontext ctx;      /* whose end ends it; NULL for pools and reservations */
    struct device *device;
    uint32_t count; /* blocks; 0 for reservations */
    uint32_t *blocks;
    uint32_t first; /* room for the number of a single block */
    int64_t object; /* in the state, -1 when private */
    unsigned opens; /* RANGE_IMPORT: how often it was opened; RANGE_GRAPH: users */
    unsigned long long id;
    struct region *region; /* RANGE_SMALL, RANGE_CHUNK */
    CUmemoryPool pool;
    struct link of_context;
};

/* One page of 2 MiB of device addresses. */
struct page {
    struct range *range; /* who has the addresses; NULL when nobody */
    uint32_t block;      /* block number + 1; 0 when nothing is mapped */
    uint16_t gpu;
    uint16_t readers, writers; /* devices with access, a bit per ordinal; cuMemSetAccess sets it */
    bool first, last;          /* of a mapping by cuMemMap, which goes only as a whole */
    struct physical *physical; /* what is mapped there */
};

/* pages.c; the memory lock. */
bool pages_start(void);
CUdeviceptr pages_take(uint64_t size, uint64_t align); /* 0 when the address space is used up */
CUdeviceptr pages_take_narrow(uint64_t size);          /* below 4 GiB; 0 when there is none */
bool pages_take_at(CUdeviceptr at, uint64_t size);
void pages_return(CUdeviceptr base, uint64_t size);
bool pages_hold(
    CUdeviceptr address); /* whether the address can be a device address at all; no lock */
struct page *page_of(CUdeviceptr address); /* NULL outside; no lock */

/* All places where the process keeps numbers of blocks; the memory lock. `visit` may change the numbers. */
typedef void blocks_visit(uint32_t gpu, uint32_t n, uint32_t *numbers);
void pages_visit(blocks_visit *visit);             /* pages, and the ranges behind them */
void pages_move(const uint32_t gpus[SG_GPUS_MAX]); /* what is on a GPU is on that one now */
void vmm_visit(blocks_visit *visit);               /* vmm.c */
void graph_memory_visit(blocks_visit *visit);      /* graph_memory.c */

/* range.c; the memory lock. Results are CUDA_SUCCESS, OUT_OF_MEMORY or what the fault says. */
CUresult range_new(struct device *device, CUcontext ctx, enum range_kind kind,
                   enum sg_category category, uint64_t bytes, struct range **out);
/* Begins or adds to the process's hold of an object; blocks gets its numbers, which free() ends. */
CUresult object_hold(uint32_t object, uint64_t key, uint32_t *gpu, uint64_t *bytes, uint32_t *count,
                     uint32_t **blocks);
void object_drop(uint32_t object);
bool object_is_own(uint32_t object); /* made by this process */
/* Maps an object that the process holds; its end drops the hold. */
CUresult range_import(struct device *device, CUcontext ctx, uint32_t object, uint32_t count,
                      uint32_t *blocks, struct range **out);
void range_end(struct range *range);
struct range *range_of(CUdeviceptr address); /* NULL when there is none */
/* Makes blocks an object that others can hold, unless *object says that they are one already. */
CUresult blocks_share(struct device *device, uint32_t n, const uint32_t *numbers, int64_t *object,
                      uint64_t *key);
/* Physical blocks alone. */
CUresult blocks_take(struct device *device, enum sg_category category, uint32_t n,
                     uint32_t *numbers);
void blocks_return(struct device *device, uint32_t n, const uint32_t *numbers);

/* heap.c; the memory lock. A heap of allocations within regions of device addresses. */
struct region {
    struct heap *heap;
    CUdeviceptr base;
    uint32_t granules;
    uint32_t used; /* granules in use */
    uint32_t live; /* allocations; kept by the owner of the heap */
    struct run *runs;
    struct region *recycled;
    struct range *range;
    void *owner;
};
struct heap *heap_new(uint64_t granule);
void heap_end(struct heap *heap); /* its regions must have been removed */
struct region *heap_add(struct heap *heap, CUdeviceptr base, uint64_t size);
void heap_remove(struct region *region);
CUdeviceptr heap_take(struct heap *heap, uint64_t bytes, struct region **region); /* 0: no room */
/* The bytes that were asked for at exactly this address; 0 when there is no such allocation. */
uint64_t heap_bytes(const struct region *region, CUdeviceptr address);
/* Finds the allocation that holds the address. */
bool heap_find(const struct region *region, CUdeviceptr address, CUdeviceptr *base,
               uint64_t *bytes);
void heap_give(struct region *region, CUdeviceptr address);

/* access.c: the contents behind device addresses. */
/* Host memory behind the address and, in *room, how far it goes on; NULL when nothing is mapped.
 * Marks the blocks as written when `write`. */
void *sg_host(CUdeviceptr address, uint64_t wanted, bool write, uint64_t *room);
/* The same for a block of a GPU. */
void *sg_block_host(uint32_t gpu, uint32_t block, bool write);
/* Whether all of it is mapped device memory, managed memory or registered host memory. */
bool sg_mapped(CUdeviceptr address, uint64_t bytes);
void sg_copy_in(CUdeviceptr to, const void *from, uint64_t bytes);
void sg_copy_out(void *to, CUdeviceptr from, uint64_t bytes);
void sg_copy_within(CUdeviceptr to, CUdeviceptr from, uint64_t bytes);
void sg_fill(CUdeviceptr to, const void *pattern, uint32_t width, uint64_t count);

/* host_state.c: host memory that the device may use; the memory lock. */
struct host_range {
    uintptr_t base;
    uint64_t size;
    unsigned flags;
    bool registered; /* the user's own memory */
    bool managed;
    struct device *device;
    CUcontext ctx;
    uint32_t first, chunks; /* managed: its chunks in the machine's table, */
    char *contents;         /* and the driver's own mapping */
    unsigned long long id;
    int read_mostly, preferred, last_prefetch; /* managed: advice; CU_DEVICE_INVALID when none */
    uint64_t accessed_by;
    unsigned attach;
};
struct host_range *host_of(uintptr_t address);
CUresult host_add(const struct host_range *range);
void host_remove(uintptr_t base);
struct host_range *host_of_context(CUcontext ctx); /* any of its own; NULL when there is none */
void host_end_context(CUcontext ctx);              /* managed_state.c */

/* allocation.c */
CUresult sg_alloc(CUcontext ctx, uint64_t bytes, CUdeviceptr *out); /* the memory lock */
CUresult sg_free(CUdeviceptr address);                              /* the memory lock */

/* pool.c */
CUresult pools_start(struct device *device);
void pools_synchronised(struct device *device); /* gives kept memory back as thresholds say */
uint64_t pool_reserved(CUmemoryPool pool);
CUresult pool_take(CUmemoryPool pool, uint64_t bytes, CUdeviceptr *out); /* the memory lock */
CUresult pool_give(struct range *chunk, CUdeviceptr address);            /* the memory lock */

/* array.c */
struct CUarray_st {
    struct handle handle;
    CUcontext ctx;
    CUDA_ARRAY3D_DESCRIPTOR what;
    unsigned element;         /* bytes of one element */
    size_t row, slice, bytes; /* of the contents, without padding */
    CUdeviceptr base;         /* where the contents are; 0 when nothing is mapped */
    struct range *range;      /* NULL for a view of a level or plane */
    CUmipmappedArray parent;
    struct link of_context;
};
void arrays_end_context(CUcontext ctx);

#endif
