/* The process's side of the simulated CUDA driver: handles, locks, and what the files of this folder
 * offer one another.
 *
 * Locks, in the order in which they may be taken: work (streams, events, deferred operations), memory
 * (addresses, allocations, pools), then those of the shared state. A call of the user's function
 * holds none of them.
 *
 * Handles are pointers to structures that are recycled within their kind and never given back to
 * malloc, so that a stale handle can be told by its mark without touching freed memory.
 */
#ifndef SIMGPU_DRIVER_H
#define SIMGPU_DRIVER_H

#include "abi/cuda_functions.h"
#include "simgpu/fault.h"
#include "simgpu/machine_layout.h"
#include "simgpu/state.h"

#include <pthread.h>

#define SG_GRANULE 512u          /* alignment and grain of small allocations: documented for cuMemAlloc */
#define SG_SMALL_MAX (1ull << 20) /* larger requests get blocks of their own */
#define SG_PITCH 512u            /* CU_DEVICE_ATTRIBUTE_TEXTURE_PITCH_ALIGNMENT's effect on pitches */

enum handle_kind {
    HANDLE_NONE,
    HANDLE_CONTEXT = 0x5347c001,
    HANDLE_STREAM,
    HANDLE_EVENT,
    HANDLE_MODULE,
    HANDLE_FUNCTION,
    HANDLE_LIBRARY,
    HANDLE_KERNEL,
    HANDLE_POOL,
    HANDLE_ARRAY,
    HANDLE_MIPMAP,
    HANDLE_PHYSICAL,
    HANDLE_GRAPH,
    HANDLE_NODE,
    HANDLE_EXEC,
    HANDLE_EXTERNAL,
    HANDLE_TEXTURE,
    HANDLE_KINDS_END,
};

struct handle {
    uint32_t mark; /* the kind while it lives */
    uint32_t pad;
    struct handle *recycled;
};

/* A new zeroed structure with that mark; NULL without memory. */
void *handle_new(enum handle_kind kind, size_t size);
void handle_end(void *h, enum handle_kind kind);
static inline bool handle_is(const void *h, enum handle_kind kind)
{
    return h && __atomic_load_n(&((const struct handle *)h)->mark, __ATOMIC_RELAXED) == (uint32_t)kind;
}

/* A doubly linked list whose head is one of its own links. */
struct link {
    struct link *next, *prev;
};
void link_init(struct link *head);
void link_add(struct link *head, struct link *item);
void link_remove(struct link *item);
#define CONTAINER(pointer, type, member) ((type *)((char *)(pointer) - offsetof(type, member)))

/* ---- devices and contexts ---- */

struct heap;
struct stream_op;

struct device {
    uint32_t gpu;            /* number in the machine */
    int ordinal;             /* CUdevice */
    const sim_gpu *model;
    CUcontext primary;       /* its structure stays the same for the life of the process */
    unsigned primary_users;
    unsigned primary_flags;
    uint32_t contexts;       /* live contexts of this process */
    uint32_t overhead_count; /* blocks held for them */
    uint32_t *overhead;
    CUmemoryPool default_pool, current_pool;
    struct link pools;       /* all of this device; the memory lock */
    int loose;               /* chunks that are empty: what a synchronisation may give back */
};

struct CUctx_st {
    struct handle handle;
    struct device *device;
    unsigned flags;
    unsigned api_version;
    bool is_primary;
    bool active;           /* a primary context may exist without being active */
    unsigned attach_count;
    CUresult fault;        /* sticky: every later call in this context answers it */
    unsigned long long id;
    uint64_t peers;        /* bit per device ordinal whose contexts' memory is reachable */
    size_t limits[16];
    CUfunc_cache cache_config;
    CUsharedconfig shared_config;
    struct heap *heap;     /* small allocations */
    struct link ranges;    /* struct range.of_context */
    struct link streams;   /* CUstream_st.of_context; the work lock */
    struct link modules;
    struct link arrays, mipmaps;
    CUstream legacy;       /* the default stream */
    uint64_t blocking_tail; /* largest tail of the streams that the legacy stream waits for */
    unsigned deferred;     /* operations that wait in streams of this context */
};

struct driver {
    int state; /* DRIVER_* */
    struct sg_instance instance;
    const sim_machine *machine;
    int device_count;
    struct device devices[SG_GPUS_MAX];
    pthread_mutex_t memory;
    pthread_mutex_t work;
    unsigned long long next_id;
};
enum { DRIVER_DOWN, DRIVER_UP, DRIVER_ENDED, DRIVER_FORKED };
extern struct driver sg_driver;

unsigned long long sg_new_id(void);
void sg_memory_lock(void);
void sg_memory_unlock(void);
void sg_work_lock(void);
void sg_work_unlock(void);

/* Whether the driver is initialised: CUDA_SUCCESS or what the caller must answer. */
CUresult sg_ready(void);
/* The current context of the thread, usable: or what the caller must answer. `name` is the exported
 * function, for faults on demand. */
CUresult sg_enter(CUcontext *ctx, enum sg_fault_class class, const char *name);
#define SG_ENTER(ctx, class)                                  \
    CUcontext ctx;                                            \
    {                                                         \
        CUresult entered = sg_enter(&ctx, class, __func__);   \
        if (entered != CUDA_SUCCESS)                          \
            return entered;                                   \
    }
#define SG_READY()                          \
    do {                                    \
        CUresult ready = sg_ready();        \
        if (ready != CUDA_SUCCESS)          \
            return ready;                   \
    } while (0)
#define SG_REQUIRE(condition, result) \
    do {                              \
        if (!(condition))             \
            return result;            \
    } while (0)
#define SG_TRY(expression)              \
    do {                                \
        CUresult tried = (expression);  \
        if (tried != CUDA_SUCCESS)      \
            return tried;               \
    } while (0)

struct device *sg_device(CUdevice ordinal);   /* NULL when there is none */
struct device *sg_device_of_gpu(uint32_t gpu); /* NULL when it is not visible */
CUcontext sg_current(void);                   /* of this thread, NULL when none */
bool sg_context_usable(CUcontext ctx);
bool sg_can_access(uint32_t gpu, uint32_t peer);
void sg_burn(uint64_t ns); /* uses CPU time, as the machine says the driver does */

/* visible.c: which GPUs of the machine the process sees, in CUDA's order; returns their number. */
unsigned sg_visible(const sim_machine *machine, const char *visible, const char *order,
                    uint32_t gpus[SG_GPUS_MAX]);

/* ---- memory: range.c, pages.c, heap.c, access.c ---- */

enum range_kind {
    RANGE_SMALL,    /* a heap's block; holds many allocations */
    RANGE_OWN,      /* one allocation */
    RANGE_CHUNK,    /* of a pool */
    RANGE_RESERVED, /* addresses for cuMemMap */
    RANGE_IMPORT,   /* another process's memory */
    RANGE_GRAPH,    /* of a memory node of a graph; its pages come and go */
};

/* Device addresses in one piece, a multiple of the block size. */
struct range {
    enum range_kind kind;
    CUdeviceptr base;
    uint64_t size;
    uint64_t requested; /* bytes asked for; RANGE_OWN and RANGE_IMPORT */
    CUcontext ctx;      /* whose end ends it; NULL for pools and reservations */
    struct device *device;
    uint32_t count;     /* blocks; 0 for reservations */
    uint32_t *blocks;
    uint32_t first;     /* room for the number of a single block */
    int64_t object;     /* in the state, -1 when private */
    unsigned opens;     /* RANGE_IMPORT: how often it was opened; RANGE_GRAPH: users */
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
bool pages_take_at(CUdeviceptr at, uint64_t size);
void pages_return(CUdeviceptr base, uint64_t size);
bool pages_hold(CUdeviceptr address); /* whether the address can be a device address at all; no lock */
struct page *page_of(CUdeviceptr address); /* NULL outside; no lock */

/* range.c; the memory lock. Results are CUDA_SUCCESS, OUT_OF_MEMORY or what the fault says. */
CUresult range_new(struct device *device, CUcontext ctx, enum range_kind kind,
                   enum sg_category category, uint64_t bytes, struct range **out);
/* Begins or adds to the process's hold of an object; blocks gets its numbers, which free() ends. */
CUresult object_hold(uint32_t object, uint64_t key, uint32_t *gpu, uint64_t *bytes, uint32_t *count,
                     uint32_t **blocks);
void object_drop(uint32_t object);
/* Maps an object that the process holds; its end drops the hold. */
CUresult range_import(struct device *device, CUcontext ctx, uint32_t object, uint32_t count,
                      uint32_t *blocks, struct range **out);
void range_end(struct range *range);
struct range *range_of(CUdeviceptr address); /* NULL when there is none */
/* Makes blocks an object that others can hold, unless *object says that they are one already. */
CUresult blocks_share(struct device *device, uint32_t n, const uint32_t *numbers, int64_t *object,
                      uint64_t *key);
/* Physical blocks alone. */
CUresult blocks_take(struct device *device, enum sg_category category, uint32_t n, uint32_t *numbers);
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
bool heap_find(const struct region *region, CUdeviceptr address, CUdeviceptr *base, uint64_t *bytes);
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

/* host.c: host memory that the device may use; the memory lock. */
struct host_range {
    uintptr_t base;
    uint64_t size;
    unsigned flags;
    bool registered; /* the user's own memory */
    bool managed;
    struct device *device;
    CUcontext ctx;
    uint32_t *blocks; /* managed: block number + 1 per 2 MiB that is resident on the device */
    struct device *resident; /* where blocks are */
    unsigned long long id;
    int read_mostly, preferred, last_prefetch; /* managed: advice; CU_DEVICE_INVALID when none */
    uint64_t accessed_by;
    unsigned attach;
};
struct host_range *host_of(uintptr_t address);
CUresult host_add(const struct host_range *range);
void host_remove(uintptr_t base);
void host_end_context(CUcontext ctx);
/* managed.c: makes the pages of managed memory resident as far as there is room. */
void managed_touch(struct device *device, CUdeviceptr address, uint64_t bytes);
void managed_evict(struct host_range *range);

/* memory.c */
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

/* ---- work: op.c, stream.c, event.c, queue.c ---- */

struct CUstream_st {
    struct handle handle;
    CUcontext ctx;
    unsigned flags;
    int priority;
    unsigned long long id;
    bool is_legacy;
    bool per_thread;
    pthread_t thread;       /* owner of a per-thread default stream */
    uint64_t tail;          /* position of the channel at which everything issued here has ended */
    uint64_t tickets;       /* operations ever given */
    uint64_t passed;        /* operations after which the next may be issued */
    struct stream_op *first, *last; /* waiting operations */
    unsigned waiting;
    uint64_t *launches;     /* positions of the last launches, a ring of the queue's depth */
    uint64_t launch_count;
    struct capture *capture;
    struct link of_context;
    struct link busy; /* among the streams with waiting operations */
};

/* What an event's last record stands for. */
struct mark {
    CUstream stream;  /* NULL: never recorded */
    unsigned long long stream_id;
    uint64_t ticket;  /* the record's place in that stream */
    struct device *device;
    uint64_t position;
    uint64_t given;   /* when it was issued: it cannot be reached before */
    uint64_t moment;  /* when it was reached; 0 while that is not known */
    bool issued;
};

struct CUevent_st {
    struct handle handle;
    CUcontext ctx;
    unsigned flags;
    struct mark mark;
    struct capture *capture; /* recorded in a capture: the nodes it stands for */
};

enum op_kind {
    OP_EMPTY,
    OP_KERNEL,
    OP_COPY,
    OP_FILL,
    OP_HOST,
    OP_RECORD,
    OP_WAIT,
    OP_VALUES, /* stream memory operations */
    OP_ALLOC,  /* memory nodes of graphs */
    OP_FREE,
    OP_CHILD,
};

/* One end of a copy. */
struct place {
    CUmemorytype type; /* HOST, DEVICE or ARRAY */
    uint64_t address;  /* host or device address of the first byte of the copy; arrays: unused */
    CUarray array;
    size_t x, y, z;    /* arrays: bytes, rows, slices */
    size_t pitch, slice;
};
struct copy {
    struct place to, from;
    size_t width, height, depth;
};
struct fill {
    CUdeviceptr to;
    size_t pitch, width, height; /* width in elements */
    unsigned value, element;
};
struct launch {
    CUfunction function;
    unsigned grid[3], block[3], shared;
    void **params; /* or a packed buffer */
    const void *buffer;
    size_t buffer_bytes;
    bool cooperative;
};
struct values {
    unsigned count;
    CUstreamBatchMemOpParams *list;
};

struct stream_op {
    enum op_kind kind;
    union {
        struct launch launch;
        struct copy copy;
        struct fill fill;
        struct {
            CUhostFn function;
            CUstreamCallback callback;
            void *data;
        } host;
        CUevent event;
        struct values values;
        struct {
            CUdeviceptr address;
            uint64_t bytes;
        } memory;
        CUgraph child;
    };
    /* for operations that wait in a stream */
    struct mark wait;      /* OP_WAIT: what was recorded when the wait was given */
    uint64_t ticket;
    struct barrier *barriers; /* other streams' operations that come first */
    unsigned barrier_count;
    struct stream_op *next;
    bool running; /* OP_HOST: under way */
};

/* op.c: what an operation does to memory, and what it costs. */
/* Whether its arguments are right; `later` when it becomes part of a graph. */
CUresult op_check(const struct stream_op *op, bool later);
uint64_t op_perform(const struct stream_op *op, struct device *device); /* returns GPU ns */
struct stream_op *op_keep(const struct stream_op *op); /* a copy that owns its arguments */
void op_drop(struct stream_op *op);

/* queue.c: the way of an operation through a stream. */
CUresult sg_enqueue(CUstream stream, const struct stream_op *op);
/* Waits until everything given to the stream is done. */
CUresult sg_drain(CUstream stream);
CUresult sg_drain_context(CUcontext ctx);
bool sg_stream_done(CUstream stream);
void queue_fork_child(void);

/* stream.c: the stream of a handle in the current context; ptds tells what NULL means. */
CUresult sg_stream(CUstream handle, bool ptds, const char *name, CUstream *out);
#define SG_STREAM(stream, handle, ptds) \
    CUstream stream;                    \
    SG_TRY(sg_stream(handle, ptds, __func__, &stream))
CUresult streams_start(CUcontext ctx);
void streams_end_context(CUcontext ctx);

/* capture.c */
CUresult capture_add(CUstream stream, const struct stream_op *op);
/* Whether the thread may do what is unsafe while a stream is being captured: CUDA_SUCCESS, or the
 * documented error, and then the captures that forbid it are invalid. */
CUresult capture_allows(CUcontext ctx);
/* Whether the stream can be waited for or asked: not while it is captured. */
CUresult capture_blocks(CUstream stream);
/* The same for work given to the legacy stream while a stream is captured that it waits for. */
CUresult capture_implicit(CUstream stream);
void capture_abandon(CUstream stream);
void capture_forget_event(CUevent event);
CUresult capture_alloc(CUstream stream, struct device *device, size_t bytes, CUdeviceptr *out);
CUresult capture_record(CUstream stream, CUevent event);
CUresult capture_wait(CUstream stream, CUevent event);

/* module.c, kernel.c */
enum known_kernel { KERNEL_OTHER, KERNEL_BUSY, KERNEL_VECADD, KERNEL_FILL };
/* Also what a CUkernel points to: the interfaces take one for the other. */
struct CUfunc_st {
    struct handle handle;
    CUmodule module;   /* NULL for a kernel of a library */
    CUlibrary library; /* NULL for a function of a module */
    CUcontext ctx; /* whose fault it is when the kernel faults */
    enum known_kernel known;
    char *name;
    int attributes[16];
    unsigned block[3], shared;      /* of the interface before CUDA 4 */
    unsigned char params[4096];
    unsigned params_size;
    struct CUfunc_st *next;
};
/* The code that a module or library was loaded from: which kernels it has. */
struct image {
    char *ptx; /* NULL for binary code, which is taken to have every kernel that is asked for */
    struct CUfunc_st *functions; /* handed out so far */
};
/* INVALID_IMAGE for what is neither PTX, nor a cubin, nor a fat binary. */
CUresult image_load(struct image *image, const void *code);
CUresult image_load_file(struct image *image, const char *path);
/* The function of that name, with that mark; NULL when the code has none. */
CUfunction image_function(struct image *image, const char *name, enum handle_kind kind);
/* Names of the kernels in PTX, one after another; returns NULL after the last. */
const char *image_next(const struct image *image, const char *after, size_t *length);
void image_end(struct image *image);
static inline bool function_is(CUfunction f)
{
    return handle_is(f, HANDLE_FUNCTION) || handle_is(f, HANDLE_KERNEL);
}
/* launch.c: checks a launch and reads its extra list. */
CUresult launch_check(struct launch *l, void **extra);
void modules_end_context(CUcontext ctx);
enum known_kernel kernel_known(const char *name);
/* Runs a known kernel and returns its GPU time. */
uint64_t kernel_run(const struct launch *launch, struct device *device);
/* Bytes of the parameters of a known kernel; 0 for others. */
size_t kernel_param_count(enum known_kernel known, const size_t **sizes);

#endif
