/* The process's side of the simulated CUDA driver: handles, locks, devices and contexts.
 *
 * Lock order: work (streams, events, deferred operations),
 * memory (addresses, allocations, pools), then those of the shared state. A call of the user's
 * function holds none of them.
 *
 * Handles are pointers to structures that are recycled within their kind and never given back to
 * malloc, so that one that has ended can be told by its mark without touching freed memory. It can
 * be told as long as its structure is not used again; the machine says how soon that happens.
 */
#ifndef SIMGPU_CUDA_PROCESS_H
#define SIMGPU_CUDA_PROCESS_H

#include "abi/generated/cuda_functions.h"
#include "abi/generated/machine_layout.h"
#include "simgpu/cuda/gate.h"
#include "simgpu/machine/fault.h"
#include "simgpu/machine/state.h"
#include "simgpu/machine/visible.h"

#include <pthread.h>

#define SG_GRANULE 512u /* alignment and grain of small allocations: documented for cuMemAlloc */
#define SG_SMALL_MAX (1ull << 20) /* larger requests get blocks of their own */
#define SG_PITCH 512u /* CU_DEVICE_ATTRIBUTE_TEXTURE_PITCH_ALIGNMENT's effect on pitches */

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
    HANDLE_TEXTURE,
    HANDLE_SURFACE,
    HANDLE_LINK,
    HANDLE_GREEN,
    HANDLE_KINDS_END,
};

struct handle {
    uint32_t mark; /* the kind while it lives, its complement when it has ended */
    uint32_t size;
    struct handle *recycled;
};

/* A new zeroed structure with that mark; NULL without memory. */
void *handle_new(enum handle_kind kind, size_t size);
void handle_end(void *h, enum handle_kind kind);
/* The fixed handles of streams are small numbers, and no memory. */
static inline bool handle_points(const void *h) {
    return (uintptr_t)h >= 4096;
}
static inline bool handle_is(const void *h, enum handle_kind kind) {
    return handle_points(h) &&
           __atomic_load_n(&((const struct handle *)h)->mark, __ATOMIC_RELAXED) == (uint32_t)kind;
}

/* The program has passed a handle that has ended: counts it, and ends the program if the machine
 * says so. Returns false. */
bool handle_dead(const void *h, enum handle_kind kind);
/* The same if it is one that has ended. */
bool handle_refuse(const void *h);
/* For a handle that the program has passed. */
static inline bool handle_given(const void *h, enum handle_kind kind) {
    return handle_is(h, kind) || handle_refuse(h);
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
    uint32_t gpu; /* number in the machine */
    int ordinal;  /* CUdevice */
    const sim_gpu *model;
    CUcontext primary; /* its structure stays the same for the life of the process */
    unsigned primary_users;
    unsigned primary_flags;
    uint32_t usable;         /* multiprocessors that this process may occupy at once */
    uint64_t memory_limit;   /* bytes that it may have, contexts not counted; 0 is no limit */
    uint32_t contexts;       /* live contexts of this process */
    uint32_t overhead_count; /* blocks held for them */
    uint32_t *overhead;
    uint32_t grown_count; /* blocks of code and local memory of its contexts */
    uint32_t *grown;
    uint64_t grown_bytes;
    CUmemoryPool default_pool, current_pool;
    struct link pools; /* all of this device; the memory lock */
    int loose;         /* chunks that are empty: what a synchronisation may give back */
};

struct CUctx_st {
    struct handle handle;
    struct device *device;
    unsigned flags;
    unsigned api_version;
    bool is_primary;
    bool active;      /* a primary context may exist without being active */
    CUcontext of;     /* of a green context's: the primary context that calls mean; else NULL */
    CUgreenCtx green; /* and the green context */
    unsigned attach_count;
    CUresult fault; /* sticky: every later call in this context answers it */
    unsigned long long id;
    uint64_t peers; /* bit per device ordinal whose contexts' memory is reachable */
    size_t limits[16];
    uint64_t code_bytes, local_bytes; /* in device->grown_bytes */
    uint64_t heap_bytes, print_bytes; /* likewise */
    CUfunc_cache cache_config;
    CUsharedconfig shared_config;
    struct heap *heap;      /* small allocations */
    struct heap *variables; /* small variables of code */
    struct link ranges;     /* struct range.of_context */
    struct link streams;    /* CUstream_st.of_context; the work lock */
    struct link events;     /* CUevent_st.of_context; the work lock */
    struct link modules;
    struct link arrays, mipmaps;
    struct link of_process; /* among sg_driver.contexts while it is active */
    CUstream legacy;        /* the default stream */
    CUstream
        gathering; /* in which events of the whole context are recorded; NULL before the first */
    uint64_t blocking_tail; /* largest tail of the streams that the legacy stream waits for */
    unsigned deferred;      /* operations that wait in streams of this context */
};

struct driver {
    int state; /* DRIVER_* */
    struct sg_instance instance;
    const sim_machine *machine;
    int device_count;
    struct device devices[SG_GPUS_MAX];
    pthread_mutex_t memory;
    pthread_mutex_t work;
    struct link contexts; /* all that are active; the memory lock */
    unsigned long long next_id;
};
enum { DRIVER_DOWN, DRIVER_UP, DRIVER_ENDED, DRIVER_FORKED };
extern struct driver sg_driver;

unsigned long long sg_new_id(void);
void sg_memory_lock(void);
void sg_memory_unlock(void);
void sg_work_lock(void);
void sg_work_unlock(void);

/* Whether the driver is initialised: CUDA_SUCCESS or what the caller must answer. What a function checks
 * before this, or before sg_enter, NVIDIA's driver checks before it too: test/drivers compares the answers to zeros.
 * Where versions differ the order is the newest's. */
CUresult sg_ready(void);
/* The current context of the thread, usable: or what the caller must answer. For a green context its
 * primary one. `name` is the exported function, for faults on demand. */
CUresult sg_enter(CUcontext *ctx, enum sg_fault_class class, const char *name);
/* What every call in a context answers since a kernel faulted, or an MPS server failed its clients; CUDA_SUCCESS where
 * neither happened. */
CUresult sg_context_result(CUcontext ctx);
#define SG_ENTER(ctx, class)                                                                       \
    SG_GATE();                                                                                     \
    CUcontext ctx;                                                                                 \
    {                                                                                              \
        CUresult entered = sg_enter(&ctx, class, __func__);                                        \
        if (entered != CUDA_SUCCESS)                                                               \
            return entered;                                                                        \
    }
#define SG_READY()                                                                                 \
    SG_GATE();                                                                                     \
    SG_TRY(sg_ready())
#define SG_REQUIRE(condition, result)                                                              \
    do {                                                                                           \
        if (!(condition))                                                                          \
            return result;                                                                         \
    } while (0)
#define SG_TRY(expression)                                                                         \
    do {                                                                                           \
        CUresult tried = (expression);                                                             \
        if (tried != CUDA_SUCCESS)                                                                 \
            return tried;                                                                          \
    } while (0)

/* What cuDriverGetVersion answers, looked for once: programs look up hundreds of functions before cuInit. */
CUresult sg_claimed_version(int *version);
struct device *sg_device(CUdevice ordinal);    /* NULL when there is none */
struct device *sg_device_of_gpu(uint32_t gpu); /* NULL when it is not visible */
/* mps.c: MPS as its client. */
/* Asks the control daemon for a server, if there is a daemon. CUDA_SUCCESS also without one: the process is no client
 * then. */
CUresult mps_join(void);
/* The instance that is its server's GPU; 0 where there is none. */
uint32_t mps_place(void);
/* Bits of the GPUs that a client does not see because its server has not got them. */
uint32_t mps_hidden(void);
/* Takes the limits of the server and of the environment for a device of the process. */
void mps_limit(void);
/* What calls on a GPU answer because of the process's server; CUDA_SUCCESS when nothing is wrong. */
CUresult mps_result(uint32_t gpu);
/* Finds out whether the process's server lives, when that takes a system call. */
void mps_look(void);
/* A kernel made a fatal fault: the other clients of the server answer it too. */
void mps_fault(uint32_t gpu, CUresult result);
bool mps_is_client(void);
/* current.c: the stack of contexts of this thread. */
CUcontext sg_current(void); /* NULL when there is none */
CUresult current_push(CUcontext ctx);
void current_leave(CUcontext ctx); /* pops it if it is the current one */
bool sg_context_usable(CUcontext ctx);
bool sg_context_given(CUcontext ctx); /* the same for one that the program has passed */
bool sg_can_access(uint32_t gpu, uint32_t peer);
void sg_burn(uint64_t ns); /* uses CPU time, as the machine says the driver does */

/* instance.c: makes the process a user of the MIG device that it sees, DIR being the instance's directory; with `only`
 * no other place counts. Returns that as a GPU's model, and its GPU. NULL when it sees none. */
const sim_gpu *instance_enter(const struct sg_sight *sight, const char *dir, uint32_t only,
                              uint32_t *gpu);

#endif
