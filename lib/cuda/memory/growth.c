#define _GNU_SOURCE
#include "cuda/memory/growth.h"

#include <string.h>
#include <sys/mman.h>

#include "cuda/attach.h"
#include "cuda/device.h"
#include "cuda/fork.h"
#include "cuda/lock.h"
#include "cuda/memory/blocks.h"

#define ROWS_AT_ONCE 256u
#define LOOKS_MAX 8
#define UNKNOWN UINT64_MAX

/* NVIDIA's programming guide says of the depth that each level may need up to 150 MB. Of a launch
 * that waits it gives no figure: it has parameters of 4 KiB at most, and its configuration. */
#define DEPTH_BYTES (UINT64_C(150) << 20)
#define PENDING_BYTES (UINT64_C(8) << 10)
#define BYTES_MAX (UINT64_C(1) << 48) /* more than any GPU has */

static const CUlimit limits[GROWTH_KINDS] = {
    CU_LIMIT_STACK_SIZE, CU_LIMIT_PRINTF_FIFO_SIZE, CU_LIMIT_MALLOC_HEAP_SIZE,
    CU_LIMIT_DEV_RUNTIME_SYNC_DEPTH, CU_LIMIT_DEV_RUNTIME_PENDING_LAUNCH_COUNT};

/* What a context takes beyond what contexts begin with. A row that somebody uses keeps at least
 * what was reserved: what the driver took in the end is known when nobody changes it. */
struct row {
    CUcontext context; /* NULL: unused */
    struct home home;
    enum growth_kind kind;
    uint64_t charge; /* bytes */
    uint64_t deep;   /* stack that kernels needed since the limit was last set */
    bool there;      /* code is loaded that needs it: of GROWTH_PRINTS and GROWTH_HEAP */
    bool ended;      /* the context's memory went while somebody used the row */
    uint32_t users;
    uint32_t begun; /* counts them */
};

struct chunk {
    struct chunk *next;
    struct row rows[ROWS_AT_ONCE];
};

/* guard protects the rows. */
static lock guard;
static struct chunk *chunks;

/* By device, atomic: threads that are on the GPU at once, 0 until asked; and, plus 1, the values
 * with which contexts begin. */
static uint64_t threads[DV_PAGE_DEVICES];
static uint64_t usual[DV_PAGE_DEVICES][GROWTH_KINDS];

enum growth_kind growth_kind_of(CUlimit limit) {
    for (unsigned i = 0; i < GROWTH_KINDS; i++) {
        if (limits[i] == limit) {
            return (enum growth_kind)i;
        }
    }
    return GROWTH_KINDS;
}

/* The limit of a context, UNKNOWN if the driver does not say. */
static uint64_t ask(CUcontext context, enum growth_kind kind) {
    CUcontext current = NULL, popped;
    size_t value;
    DV_CALL(cuCtxGetCurrent, &current);
    if (current != context && DV_CALL(cuCtxPushCurrent_v2, context) != CUDA_SUCCESS) {
        return UNKNOWN;
    }
    CUresult result = DV_CALL(cuCtxGetLimit, &value, limits[kind]);
    if (current != context) {
        DV_CALL(cuCtxPopCurrent_v2, &popped);
    }
    return result == CUDA_SUCCESS ? value : UNKNOWN;
}

uint64_t growth_usual(CUcontext context, struct home home, enum growth_kind kind) {
    uint64_t *known = &usual[home.device][kind], before = __atomic_load_n(known, __ATOMIC_ACQUIRE);
    if (before != 0) {
        return before - 1;
    }
    uint64_t value = ask(context, kind);
    if (value == UNKNOWN) {
        return 0;
    }
    return __atomic_compare_exchange_n(known, &before, value + 1, false, __ATOMIC_ACQ_REL,
                                       __ATOMIC_ACQUIRE)
               ? value
               : before - 1;
}

bool growth_raised(CUcontext context, struct home home, enum growth_kind kind) {
    uint64_t value = ask(context, kind);
    return value != UNKNOWN && value > growth_usual(context, home, kind);
}

/* How many threads have a stack, as many as the GPU can hold. */
static uint64_t threads_of(unsigned device) {
    uint64_t known = __atomic_load_n(&threads[device], __ATOMIC_RELAXED);
    CUdevice ordinal;
    int processors = 0, each = 0;
    if (known == 0 && device_of_number(device, &ordinal) &&
        DV_CALL(cuDeviceGetAttribute, &processors, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT,
                ordinal) == CUDA_SUCCESS &&
        DV_CALL(cuDeviceGetAttribute, &each, CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR,
                ordinal) == CUDA_SUCCESS &&
        processors > 0 && each > 0) {
        known = (uint64_t)processors * (uint64_t)each;
        __atomic_store_n(&threads[device], known, __ATOMIC_RELAXED);
    }
    return known;
}

/* Bytes that a limit of this value takes beyond what contexts begin with. The buffers of the device
 * runtime are made when code needs them, and then wholly. */
static uint64_t cost(struct home home, enum growth_kind kind, uint64_t value, uint64_t begins) {
    uint64_t unit = kind == GROWTH_STACK     ? threads_of(home.device)
                    : kind == GROWTH_DEPTH   ? DEPTH_BYTES
                    : kind == GROWTH_PENDING ? PENDING_BYTES
                                             : 1;
    bool whole = kind == GROWTH_PRINTS || kind == GROWTH_HEAP;
    uint64_t more = whole ? value : value > begins ? value - begins : 0, bytes;
    if (__builtin_mul_overflow(more, unit, &bytes) || bytes > BYTES_MAX) {
        return BYTES_MAX;
    }
    return blocks_worst(bytes);
}

/* The row, or an unused one to become it. NULL if there is no memory. */
static struct row *find(CUcontext context, enum growth_kind kind) {
    struct row *unused = NULL;
    for (struct chunk *chunk = chunks; chunk != NULL; chunk = chunk->next) {
        for (unsigned i = 0; i < ROWS_AT_ONCE; i++) {
            struct row *row = &chunk->rows[i];
            if (row->context == context && row->kind == kind) {
                return row;
            }
            unused = unused == NULL && row->context == NULL ? row : unused;
        }
    }
    if (unused == NULL) {
        struct chunk *chunk =
            mmap(NULL, sizeof *chunk, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (chunk == MAP_FAILED) {
            return NULL;
        }
        chunk->next = chunks;
        chunks = chunk;
        unused = &chunk->rows[0];
    }
    return unused;
}

/* Whether the limit takes memory now, or would with this growth. */
static bool counts(const struct row *row, enum growth_reason reason) {
    return (row->kind != GROWTH_PRINTS && row->kind != GROWTH_HEAP) || row->there ||
           reason == GROWTH_CODE;
}

/* Makes the calling growth a user of its row; false if there is no memory for one. */
static bool join(struct growth *growth, uint64_t begins, uint64_t *need, uint64_t *charge) {
    lock_take(&guard);
    struct row *row = find(growth->context, growth->kind);
    if (row != NULL) {
        if (row->context == NULL) {
            *row = (struct row){.context = growth->context, .kind = growth->kind};
        }
        row->home = growth->home;
        row->ended = false;
        row->users++;
        growth->begun = ++row->begun;
        *need = counts(row, growth->reason)
                    ? cost(growth->home, growth->kind, growth->value, begins)
                    : 0;
        *charge = row->charge;
    }
    lock_give(&guard);
    growth->row = row;
    return row != NULL;
}

/* The reservation has become a charge of the row, as far as others have not charged it meanwhile. */
static void become_charge(struct growth *growth, struct reservation *reservation, uint64_t need) {
    lock_take(&guard);
    uint64_t more = need > growth->row->charge ? need - growth->row->charge : 0;
    growth->row->charge += more;
    lock_give(&guard);
    reservation_settle(reservation, more);
}

CUresult growth_begin(struct growth *growth, CUcontext context, enum growth_kind kind,
                      enum growth_reason reason, uint64_t value) {
    struct reservation reservation;
    uint64_t need, charge;
    *growth = (struct growth){.context = context, .kind = kind, .reason = reason, .value = value};
    CUresult result = context_find(context, &growth->home);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    uint64_t begins = growth_usual(context, growth->home, kind);
    if (reason == GROWTH_CODE) {
        growth->value = ask(context, kind);
        if (growth->value == UNKNOWN) {
            return CUDA_SUCCESS;
        }
    }
    threads_of(growth->home.device); /* asks the driver, so before the lock */
    if (!join(growth, begins, &need, &charge)) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    growth->settled = need <= charge;
    if (!growth->settled) {
        result = reservation_open_number(&reservation, growth->home.device, need - charge);
        if (result == CUDA_SUCCESS) {
            become_charge(growth, &reservation, need);
        } else {
            growth_end(growth, false);
        }
    }
    return result;
}

/* The last user leaves the row with what the driver says that the context has. Returns false if
 * somebody came meanwhile, and so the driver's answer may be old. */
static bool leave(struct growth *growth, uint64_t value, bool surely, int64_t *more) {
    struct row *row = growth->row;
    uint64_t begins = growth_usual(growth->context, growth->home, growth->kind);
    lock_take(&guard);
    bool last = row->users == 1, current = row->begun == growth->begun;
    if (last && !current && !surely) {
        growth->begun = row->begun;
        lock_give(&guard);
        return false;
    }
    value = value != UNKNOWN && row->deep > value ? row->deep : value;
    /* A context in which a kernel failed answers nothing and keeps its memory. */
    uint64_t bytes = value == UNKNOWN && !row->ended ? row->charge : 0;
    if (value != UNKNOWN && counts(row, GROWTH_SET)) {
        bytes = cost(growth->home, growth->kind, value, begins);
    }
    if (!last || !current) {
        bytes = bytes > row->charge ? bytes : row->charge;
    }
    *more = (int64_t)(bytes - row->charge);
    row->charge = bytes;
    row->users--;
    if (last && bytes == 0 && row->deep == 0 && !row->there) {
        row->context = NULL;
    }
    lock_give(&guard);
    return true;
}

/* What the driver did is known by its reason. */
static void note(struct growth *growth) {
    struct row *row = growth->row;
    lock_take(&guard);
    if (growth->reason == GROWTH_KERNEL) {
        row->deep = row->deep > growth->value ? row->deep : growth->value;
    } else if (growth->reason == GROWTH_CODE) {
        row->there = true;
    } else if (row->begun == growth->begun) {
        row->deep = 0; /* no kernel came since */
    }
    lock_give(&guard);
}

/* A kernel that was launched with a stack that was there, while nobody changed it. */
static bool unchanged(const struct growth *growth) {
    struct row *row = growth->row;
    lock_take(&guard);
    bool same = growth->settled && growth->reason == GROWTH_KERNEL && row->deep >= growth->value &&
                row->begun == growth->begun;
    row->users -= same;
    lock_give(&guard);
    return same;
}

void growth_end(struct growth *growth, bool done) {
    int64_t more = 0;
    if (growth->row == NULL || unchanged(growth)) {
        return;
    }
    if (done) {
        note(growth);
    }
    for (int i = 1; !leave(growth, ask(growth->context, growth->kind), i == LOOKS_MAX, &more);) {
        i++;
    }
    if (more > 0) {
        reservation_charge(growth->home.device, (uint64_t)more);
    } else {
        reservation_release(growth->home.device, (uint64_t)-more);
    }
    growth->row = NULL;
}

/* Rows that somebody uses get the truth from their last user. */
static void growth_emptied(struct home home) {
    uint64_t bytes = 0;
    lock_take(&guard);
    for (struct chunk *chunk = chunks; chunk != NULL; chunk = chunk->next) {
        for (unsigned i = 0; i < ROWS_AT_ONCE; i++) {
            struct row *row = &chunk->rows[i];
            if (row->context == NULL || row->home.owner != home.owner) {
                continue;
            }
            row->deep = 0;
            row->there = false;
            row->ended = true;
            if (row->users == 0) {
                bytes += row->charge;
                *row = (struct row){.begun = row->begun};
            }
        }
    }
    lock_give(&guard);
    reservation_release(home.device, bytes);
}
ON(context_emptied, growth_emptied);

static void growth_forked(void) {
    guard = (lock){0};
    chunks = NULL;
    memset(threads, 0, sizeof threads);
    memset(usual, 0, sizeof usual);
}
ON(forked, growth_forked);
