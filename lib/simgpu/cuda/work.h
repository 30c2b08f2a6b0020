/* Work: streams, events, operations, capture, code. */
#ifndef SIMGPU_CUDA_WORK_H
#define SIMGPU_CUDA_WORK_H

#include "simgpu/cuda/process.h"

/* ---- work: op.c, stream.c, event.c, queue.c ---- */

struct CUstream_st {
    struct handle handle;
    CUcontext ctx;
    unsigned flags;
    int priority;
    unsigned long long id;
    bool is_legacy;
    bool gathers; /* all that other streams of the context have comes before what is given to it */
    bool per_thread;
    pthread_t thread; /* owner of a per-thread default stream */
    uint64_t tail;    /* position of the channel at which everything issued here has ended */
    uint64_t tickets; /* operations ever given */
    uint64_t passed;  /* operations after which the next may be issued */
    struct stream_op *first, *last; /* waiting operations */
    unsigned waiting;
    uint64_t *launches; /* positions of the last launches, a ring of the queue's depth */
    uint64_t launch_count;
    struct capture *capture;
    CUcontext view; /* of a green context's stream: that context, while it lives */
    bool detached;  /* the green context has ended */
    struct link of_context;
    struct link busy; /* among the streams with waiting operations */
};

/* What an event's last record stands for. */
struct mark {
    CUstream stream; /* NULL: never recorded */
    unsigned long long stream_id;
    uint64_t ticket; /* the record's place in that stream */
    struct device *device;
    uint64_t position;
    uint64_t moment;     /* when it was reached; 0 while that is not known */
    uint64_t not_before; /* it cannot be reached earlier */
    bool issued;
    uint32_t shared; /* number + 1 of an event that other processes know; then also: */
    uint32_t recorder, recorder_generation;
};

struct CUevent_st {
    struct handle handle;
    CUcontext ctx;
    unsigned flags;
    struct mark mark;
    uint32_t shared; /* number + 1 in the state's table; 0 while only this process knows it */
    bool imported;
    struct capture *capture; /* recorded in a capture: the nodes it stands for */
    struct link of_context;
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
    OP_PREFETCH,
};

/* One end of a copy. */
struct placement {
    CUmemorytype type; /* HOST, DEVICE or ARRAY */
    uint64_t address;  /* host or device address of the first byte of the copy; arrays: unused */
    CUarray array;
    size_t x, y, z; /* arrays: bytes, rows, slices */
    size_t pitch, slice;
};
struct copy {
    struct placement to, from;
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
        struct {
            CUdeviceptr address;
            uint64_t bytes;
            bool to_host;
        } prefetch;
    };
    /* for operations that wait in a stream */
    struct mark wait; /* OP_WAIT: what was recorded when the wait was given */
    uint64_t ticket;
    struct barrier *barriers; /* other streams' operations that come first */
    unsigned barrier_count;
    struct stream_op *next;
    bool running; /* OP_HOST: under way */
};

/* op.c: what an operation does to memory, and what it costs. */
/* Whether its arguments are valid; `later` when it becomes part of a graph. */
CUresult op_check(const struct stream_op *op, bool later);
/* Has the operation's effect, and returns what it takes of the GPU. op_given ends it when that was given. */
struct sg_work op_perform(const struct stream_op *op, struct device *device);
void op_given(struct sg_work *work);
/* op_work.c: what it takes; ns is 0 for what takes nothing. `kernel_ns` is a kernel's time. */
struct sg_work op_work(const struct stream_op *op, const struct device *device, uint64_t kernel_ns);
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
#define SG_STREAM(stream, handle, ptds)                                                            \
    SG_GATE();                                                                                     \
    CUstream stream;                                                                               \
    SG_TRY(sg_stream(handle, ptds, __func__, &stream))
/* A stream of the context; view is the green context's that it is of, or NULL. NULL without memory. */
CUstream stream_new(CUcontext ctx, CUcontext view, unsigned flags, int priority);
/* Of a green context that ends: its default stream ends, its other streams take nothing any more. */
void streams_detach(CUcontext view);
CUresult streams_start(CUcontext ctx);
void streams_end_context(CUcontext ctx);
/* The stream that gathers; NULL without memory. */
CUstream stream_gathering(CUcontext ctx);
/* event.c: a new event of the context; NULL without memory. */
CUevent event_new(CUcontext ctx, unsigned flags);
void events_end_context(CUcontext ctx);

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
enum known_kernel {
    KERNEL_OTHER,
    KERNEL_BUSY,
    KERNEL_AWAIT,
    KERNEL_VECADD,
    KERNEL_FILL,
    KERNEL_FAULT,
    KERNEL_SWEEP,
    KERNEL_SCATTER,
};
/* Also what a CUkernel points to: the interfaces take one for the other. */
struct CUfunc_st {
    struct handle handle;
    CUmodule module;   /* NULL for a kernel of a library */
    CUlibrary library; /* NULL for a function of a module */
    CUcontext ctx;     /* whose fault it is when the kernel faults */
    enum known_kernel known;
    char *name;
    const char *entry; /* its name in the text of its image; NULL for binary code */
    int attributes[16];
    unsigned block[3], shared; /* of the interface before CUDA 4 */
    unsigned char params[4096];
    unsigned params_size;
    bool loaded; /* its code is on the GPU; atomic */
    struct CUfunc_st *next;
};
/* The code that a module or library was loaded from: which kernels it has. */
struct image {
    char *ptx; /* NULL for binary code, which is taken to have every kernel that is asked for */
    uint64_t variable_bytes;     /* of binary code */
    bool allocates, prints;      /* its kernels call malloc, or printf */
    struct CUfunc_st *functions; /* handed out so far */
};
/* INVALID_IMAGE for what is neither PTX, nor a cubin, nor a fat binary. */
CUresult image_load(struct image *image, const void *code);
CUresult image_load_file(struct image *image, const char *path);
/* The function of that name, with that mark; NULL when the code has none. */
CUfunction image_function(struct image *image, const char *name, enum handle_kind kind);
void image_end(struct image *image);
/* How many kernels of it are loaded. */
int image_loaded(const struct image *image);
/* library.c: the library is needed in a context, and has its variables there from then on. */
CUresult library_enter(CUlibrary library, CUcontext ctx);
/* function.c: loads the code into a context, which takes time and memory the first time. */
CUresult function_load(CUfunction function, CUcontext ctx);
/* code.c: memory of a context for so many kernels more, or less, for a larger stack, and for the heap and
 * the print buffer of kernels, from the first code on that uses them. */
CUresult code_take(CUcontext ctx, int kernels);
CUresult code_needs(CUcontext ctx, bool heap, bool prints);
CUresult buffer_set(CUcontext ctx, CUlimit limit, size_t bytes);
CUresult stack_set(CUcontext ctx, size_t bytes);
CUresult stack_raise(CUcontext ctx, size_t bytes); /* unless it is as large already */
static inline bool function_is(CUfunction f) {
    return handle_is(f, HANDLE_FUNCTION) || handle_given(f, HANDLE_KERNEL);
}
/* launch.c: before a kernel runs in a context, which may have to load its library or raise its stack. */
CUresult launch_prepare(CUfunction function, CUcontext ctx);
/* launch.c: checks a launch and reads its extra list. */
CUresult launch_check(struct launch *l, void **extra);
void modules_end_context(CUcontext ctx);
enum known_kernel kernel_known(const char *name);
/* Runs a known kernel and returns its GPU time. */
uint64_t kernel_run(const struct launch *launch);
/* Parameter i of a known kernel. */
uint64_t kernel_param(const struct launch *launch, size_t i);
/* Reads parameter i of any kernel, which lies at an offset of a packed buffer; false when the launch has none there. */
bool launch_param(const struct launch *launch, size_t i, uint64_t offset, void *value,
                  size_t bytes);
/* Whether it goes on running because the word that it waits for has another value. */
bool kernel_awaits(const struct launch *launch);
/* Bytes of the parameters of a known kernel; 0 for others. */
size_t kernel_param_count(enum known_kernel known, const size_t **sizes);

#endif
