#include "cuda/memory/pool.h"

#include <sched.h>
#include <string.h>

#include "cuda/attach.h"
#include "cuda/device.h"
#include "cuda/fork.h"
#include "cuda/memory/blocks.h"
#include "cuda/memory/meter.h"
#include "share/share.h"

#define POOLS_MAX 1024u
#define STEP_BYTES                                                                                 \
    ((uint64_t)32 << 20) /* step by which the driver grows a pool, if the share does not tell */

struct pool {
    CUmemoryPool handle; /* NULL while and after it is destroyed */
    unsigned askers;     /* threads that ask the driver about it, which wait for nobody */
    unsigned device;     /* number in the share */
    bool used;
    bool destroyed;
    bool charged;    /* its memory is this process's and on a GPU */
    uint64_t in_use; /* allocations not yet freed */
    struct meter kept;
};

/* Protects all fields of every pool but kept. Not held during a driver call. */
static lock guard;
static struct pool pools[POOLS_MAX];
static unsigned pools_end; /* no pool is used from here on */
static uint32_t ending;    /* pools that the driver is being told to destroy */
static uint32_t ended;     /* pools of which that was true */
static table by_handle;    /* owner: index in pools */
static table pointers;     /* by address: owner is the pool's index */
uint32_t pools_pointers;

static struct pool *known(CUmemoryPool handle) {
    struct entry note;
    return table_get(&by_handle, (uint64_t)(uintptr_t)handle, &note) ? &pools[note.owner] : NULL;
}

/* Read without the guard too. */
static unsigned device_of(const struct pool *pool) {
    return __atomic_load_n(&pool->device, __ATOMIC_RELAXED);
}

/* The program may destroy a pool in any thread while we ask about it, so its end waits until
 * asked. NULL if the pool ends or has ended. */
static CUmemoryPool ask(struct pool *pool) {
    lock_take(&guard);
    CUmemoryPool handle = pool->handle;
    pool->askers += handle != NULL;
    lock_give(&guard);
    return handle;
}

static void asked(struct pool *pool) {
    lock_take(&guard);
    pool->askers--;
    lock_give(&guard);
}

/* The caller holds the guard. */
static struct pool *add_guarded(CUmemoryPool handle, unsigned device, bool charged) {
    struct pool *pool = NULL;
    for (unsigned i = 0; i < POOLS_MAX && pool == NULL; i++) {
        pool = pools[i].used ? NULL : &pools[i];
    }
    if (pool != NULL) {
        pool->handle = handle;
        __atomic_store_n(&pool->device, device, __ATOMIC_RELAXED);
        pool->charged = charged;
        pool->used = true;
        unsigned index = (unsigned)(pool - pools);
        if (index >= pools_end) {
            __atomic_store_n(&pools_end, index + 1, __ATOMIC_RELAXED);
        }
        struct entry note = entry_make(0, index, device);
        pool->used = table_put(&by_handle, (uint64_t)(uintptr_t)handle, note, NULL, NULL);
        pool = pool->used ? pool : NULL;
    }
    return pool;
}

static struct pool *add(CUmemoryPool handle, unsigned device, bool charged) {
    lock_take(&guard);
    struct pool *pool = add_guarded(handle, device, charged);
    lock_give(&guard);
    return pool;
}

/* Pools that this library did not see made, such as each GPU's default pool, tell their location
 * themselves where the driver can (CUDA 13); else they are on the current context's GPU. */
static bool location_of(CUmemoryPool handle, unsigned *device, bool *charged) {
    int type = 0, id = 0, number;
    struct home home;
    if (DV_CALL(cuMemPoolGetAttribute, handle, CU_MEMPOOL_ATTR_LOCATION_TYPE, &type) ==
            CUDA_SUCCESS &&
        DV_CALL(cuMemPoolGetAttribute, handle, CU_MEMPOOL_ATTR_LOCATION_ID, &id) == CUDA_SUCCESS) {
        *charged = type == CU_MEM_LOCATION_TYPE_DEVICE;
        number = *charged ? device_number(id) : 0;
        *device = (unsigned)number;
        return number >= 0;
    }
    *charged = true;
    if (context_current(&home) != CUDA_SUCCESS) {
        return false;
    }
    *device = home.device;
    return true;
}

static bool attribute(CUmemoryPool handle, CUmemPool_attribute name, uint64_t *bytes) {
    cuuint64_t value = 0;
    bool told = DV_CALL(cuMemPoolGetAttribute, handle, name, &value) == CUDA_SUCCESS;
    *bytes = value;
    return told;
}

static bool read_kept(void *handle, uint64_t *bytes) {
    return attribute(handle, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, bytes);
}

/* Reads what the pool holds. Returns the difference, which the caller charges. */
static int64_t follow(struct pool *pool) {
    CUmemoryPool handle = ask(pool);
    if (handle == NULL) {
        return 0;
    }
    int64_t more = meter_follow(&pool->kept, read_kept, handle);
    asked(pool);
    return more;
}

struct pool *pool_note(CUmemoryPool handle, unsigned device, bool charged) {
    struct pool *pool = known(handle);
    return pool != NULL ? pool : add(handle, device, charged);
}

/* Another thread may destroy the pool between the driver's answer and ours, after which the driver
 * has another current pool. */
CUresult pool_current(struct pool **pool, CUdevice device, unsigned number) {
    CUmemoryPool handle = NULL;
    for (*pool = NULL; *pool == NULL; sched_yield()) {
        uint32_t before = __atomic_load_n(&ended, __ATOMIC_ACQUIRE);
        CUresult result = DV_CALL(cuDeviceGetMemPool, &handle, device);
        *pool = result == CUDA_SUCCESS ? known(handle) : NULL;
        if (result != CUDA_SUCCESS || *pool != NULL) {
            return result;
        }
        lock_take(&guard);
        bool is_current = ending == 0 && ended == before;
        *pool = is_current ? add_guarded(handle, number, true) : NULL;
        lock_give(&guard);
        if (is_current) {
            break;
        }
    }
    return CUDA_SUCCESS;
}

struct pool *pool_find(CUmemoryPool handle) {
    unsigned device;
    bool charged;
    uint64_t kept;
    struct pool *pool = known(handle);
    if (pool != NULL) {
        return pool;
    }
    bool real = read_kept(handle, &kept) && location_of(handle, &device, &charged);
    return real ? add(handle, device, charged) : NULL;
}

static uint64_t step_of(const struct pool *pool) {
    uint64_t step = dv_share_device(attached_share(), device_of(pool))->pool_chunk;
    return step != 0 ? step : STEP_BYTES;
}

/* Whether the pool holds so many bytes that nothing uses. */
static bool has_spare(struct pool *pool, uint64_t bytes) {
    uint64_t kept, in_use;
    CUmemoryPool handle = ask(pool);
    if (handle == NULL) {
        return false;
    }
    bool told = attribute(handle, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, &kept) &&
                attribute(handle, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, &in_use);
    asked(pool);
    return told && kept > in_use && kept - in_use >= bytes;
}

CUresult pool_open(struct pool *pool, struct reservation *reservation, size_t bytes) {
    uint64_t step = step_of(pool);
    if (!pool->charged) {
        return reservation_open_number(reservation, device_of(pool), 0);
    }
    uint64_t worst = bytes > UINT64_MAX - step ? UINT64_MAX : (bytes + step - 1) / step * step;
    CUresult result = reservation_try_number(reservation, device_of(pool), worst);
    if (result == CUDA_ERROR_OUT_OF_MEMORY && bytes >= step) {
        /* For a request larger than a step the driver may add just what is missing. */
        result = reservation_try_number(reservation, device_of(pool), blocks_worst(bytes));
    }
    if (result == CUDA_ERROR_OUT_OF_MEMORY && has_spare(pool, bytes)) {
        result = reservation_try_number(reservation, device_of(pool), 0);
    }
    if (result == CUDA_ERROR_OUT_OF_MEMORY) {
        reservation_refused(device_of(pool), blocks_worst(bytes));
    }
    return result;
}

/* Charges growth beyond what was reserved if there is room for it. */
static bool fits(struct reservation *reservation, uint64_t more) {
    struct reservation rest;
    if (more <= reservation->bytes) {
        return true;
    }
    if (reservation_open_number(&rest, reservation->home.device, more - reservation->bytes) !=
        CUDA_SUCCESS) {
        return false;
    }
    reservation->bytes = more;
    return true;
}

static bool put_pointer(CUdeviceptr address, struct entry note) {
    bool had;
    bool done = table_put(&pointers, address, note, NULL, &had);
    if (done && !had) {
        __atomic_add_fetch(&pools_pointers, 1, __ATOMIC_RELEASE);
    }
    return done;
}

bool pool_take(CUdeviceptr address, struct entry *note) {
    bool known = address != 0 && pools_have_pointers() && table_take(&pointers, address, note);
    if (known) {
        __atomic_sub_fetch(&pools_pointers, 1, __ATOMIC_RELEASE);
    }
    return known;
}

void pool_put_back(CUdeviceptr address, struct entry note) {
    put_pointer(address, note);
}

CUresult pool_keep(struct pool *pool, struct reservation *reservation, CUdeviceptr address) {
    struct entry note = entry_make(0, (uint32_t)(pool - pools), 0);
    if (!put_pointer(address, note)) {
        reservation_settle(reservation, 0);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    int64_t more = pool->charged ? follow(pool) : 0;
    bool fit = more <= 0 || fits(reservation, (uint64_t)more);
    reservation_settle(reservation, more > 0 ? (uint64_t)more : 0);
    if (more < 0) {
        reservation_release(device_of(pool), (uint64_t)-more);
    }
    if (!fit) {
        pool_take(address, &note);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    lock_take(&guard);
    pool->in_use++;
    lock_give(&guard);
    return CUDA_SUCCESS;
}

/* Gives back all of a pool that was destroyed, and its entry here, once nothing of it is in use. */
static void end_if_unused(struct pool *pool) {
    uint64_t held = 0;
    lock_take(&guard);
    unsigned device = device_of(pool);
    if (pool->destroyed && pool->in_use == 0) {
        held = meter_end(&pool->kept);
        pool->used = false;
        pool->destroyed = false;
    }
    lock_give(&guard);
    reservation_release(device, held);
}

void pool_freed(struct entry note) {
    struct pool *pool = &pools[note.owner];
    lock_take(&guard);
    pool->in_use--;
    lock_give(&guard);
    end_if_unused(pool);
}

static bool charge_difference(struct pool *pool) {
    int64_t more = follow(pool);
    if (more > 0) {
        reservation_charge(device_of(pool), (uint64_t)more);
    } else {
        reservation_release(device_of(pool), (uint64_t)-more);
    }
    return more < 0;
}

bool pool_reread(CUmemoryPool handle) {
    struct pool *pool = known(handle);
    return pool != NULL && pool->charged && charge_difference(pool);
}

struct pool *pool_ending(CUmemoryPool handle) {
    struct pool *pool = known(handle);
    unsigned askers;
    if (pool == NULL) {
        return NULL;
    }
    lock_take(&guard);
    ending++;
    lock_give(&guard);
    do {
        lock_take(&guard);
        pool->handle = NULL;
        askers = pool->askers;
        lock_give(&guard);
        if (askers > 0) {
            sched_yield();
        }
    } while (askers > 0);
    table_take(&by_handle, (uint64_t)(uintptr_t)handle, NULL);
    return pool;
}

void pool_ended(struct pool *pool, CUmemoryPool handle, bool destroyed) {
    lock_take(&guard);
    pool->destroyed = destroyed;
    pool->handle = destroyed ? NULL : handle;
    ending--;
    __atomic_store_n(&ended, ended + 1, __ATOMIC_RELEASE);
    lock_give(&guard);
    if (destroyed) {
        end_if_unused(pool);
    } else {
        struct entry note = entry_make(0, (uint32_t)(pool - pools), 0);
        table_put(&by_handle, (uint64_t)(uintptr_t)handle, note, NULL, NULL);
    }
}

static bool reread_where(bool any, unsigned device) {
    bool less = false;
    unsigned count = __atomic_load_n(&pools_end, __ATOMIC_RELAXED);
    for (unsigned i = 0; i < count; i++) {
        struct pool *pool = &pools[i];
        bool holds = __atomic_load_n(&pool->kept.held, __ATOMIC_RELAXED) != 0;
        if (holds && (any || device_of(pool) == device)) {
            less = charge_difference(pool) || less;
        }
    }
    return less;
}

static void pools_reread(unsigned device, bool *less) {
    *less = reread_where(false, device) || *less;
}
ON(memory_short, pools_reread);

void pools_synchronised(void) {
    reread_where(true, 0);
}

static void pools_forked(void) {
    guard = (lock){0};
    memset(pools, 0, sizeof pools);
    pools_end = ending = 0;
    table_forget(&by_handle);
    table_forget(&pointers);
    pools_pointers = 0;
}
ON(forked, pools_forked);
