#include "cuda/memory/variables.h"

#include "cuda/fork.h"

#define SMALL 1u /* flag of a module */

static table modules; /* by handle: bytes, the context's life, device */
static table pools;   /* by a context: bytes of small variables; freeing: blocks charged */

static uint64_t key_of(uint32_t owner) {
    return (uint64_t)owner + 1;
}

/* Of variables that share blocks: counts them if the blocks that are charged have room. */
static bool fits(uint32_t owner, uint64_t bytes) {
    struct shard *s = table_shard(&pools, key_of(owner));
    lock_take(&s->lock);
    struct entry *pool = shard_find(s, key_of(owner));
    bool room =
        pool != NULL && variables_pooled(entry_bytes(*pool) + bytes) <= pool->freeing * BLOCK_BYTES;
    if (room) {
        pool->amount += entry_of_bytes(bytes, 0, 0).amount;
    }
    lock_give(&s->lock);
    return room;
}

/* Counts them after the driver has taken them; returns the bytes of blocks to charge. */
static uint64_t add(uint32_t owner, unsigned device, uint64_t bytes) {
    struct shard *s = table_shard(&pools, key_of(owner));
    uint64_t more = 0;
    bool had;
    lock_take(&s->lock);
    struct entry *pool = shard_make(s, key_of(owner), &had);
    if (pool != NULL) {
        pool->device = (uint16_t)device;
        pool->amount += entry_of_bytes(bytes, 0, 0).amount;
        uint64_t blocks = variables_pooled(entry_bytes(*pool)) / BLOCK_BYTES;
        more = blocks > pool->freeing ? blocks - pool->freeing : 0;
        pool->freeing += (uint32_t)more;
    }
    lock_give(&s->lock);
    return more * BLOCK_BYTES;
}

/* Which blocks are empty is not known until all are. Returns the bytes to give back. */
static uint64_t subtract(uint32_t owner, uint64_t bytes) {
    struct shard *s = table_shard(&pools, key_of(owner));
    uint64_t less = 0;
    lock_take(&s->lock);
    struct entry *pool = shard_find(s, key_of(owner));
    if (pool != NULL) {
        uint32_t amount = entry_of_bytes(bytes, 0, 0).amount;
        pool->amount -= amount < pool->amount ? amount : pool->amount;
        if (pool->amount == 0) {
            less = pool->freeing * BLOCK_BYTES;
            shard_erase(s, pool);
        }
    }
    lock_give(&s->lock);
    return less;
}

CUresult variables_grow(struct growth growths[2], const struct image *image) {
    static const enum growth_kind kinds[] = {GROWTH_HEAP, GROWTH_PRINTS};
    const bool needed[] = {image->allocates, image->prints};
    CUcontext context = NULL;
    struct home home;
    CUresult result = CUDA_SUCCESS;
    growths[0].row = growths[1].row = NULL;
    if (!(needed[0] || needed[1] || image->hidden) ||
        DV_CALL(cuCtxGetCurrent, &context) != CUDA_SUCCESS || context == NULL ||
        context_find(context, &home) != CUDA_SUCCESS) {
        return CUDA_SUCCESS;
    }
    for (int i = 0; i < 2 && result == CUDA_SUCCESS; i++) {
        /* Who raised the limit has code that uses it. */
        if (needed[i] || (image->hidden && growth_raised(context, home, kinds[i]))) {
            result = growth_begin(&growths[i], context, kinds[i], GROWTH_CODE, 0);
        }
    }
    if (result != CUDA_SUCCESS) {
        growths[1].row = NULL;
        variables_grown(growths, result);
    }
    return result;
}

void variables_grown(struct growth growths[2], CUresult result) {
    growth_end(&growths[0], result == CUDA_SUCCESS);
    growth_end(&growths[1], result == CUDA_SUCCESS);
}

CUresult variables_open(struct variables *variables, const struct image *image) {
    *variables = (struct variables){.bytes = image->variables};
    CUresult result = variables_grow(variables->growths, image);
    if (result != CUDA_SUCCESS || variables->bytes == 0) {
        return result;
    }
    /* Without a context the driver says what is wrong. */
    if (context_current(&variables->reservation.home) != CUDA_SUCCESS) {
        variables->bytes = 0;
        return result;
    }
    variables->counted = variables_small(variables->bytes) &&
                         fits(variables->reservation.home.owner, variables->bytes);
    if (!variables->counted) {
        result = reservation_open_kept(&variables->reservation, variables_worst(variables->bytes));
    }
    if (result != CUDA_SUCCESS) {
        variables_grown(variables->growths, result);
    }
    return result;
}

static void keep(const struct variables *variables, const void *module) {
    struct home home = variables->reservation.home;
    struct entry entry = entry_of_bytes(variables->bytes, home.owner, home.device), old;
    bool had = false;
    entry.flags = variables_small(variables->bytes) ? SMALL : 0;
    if (table_put(&modules, (uint64_t)(uintptr_t)module, entry, &old, &had) && had) {
        variables_ended(module, &old, CUDA_SUCCESS); /* unseen */
    }
}

void variables_settle(struct variables *variables, CUresult result, const void *module) {
    struct home home = variables->reservation.home;
    bool small = variables_small(variables->bytes);
    variables_grown(variables->growths, result);
    if (variables->bytes == 0) {
        return;
    }
    if (result != CUDA_SUCCESS) {
        if (variables->counted) {
            reservation_release(home.device, subtract(home.owner, variables->bytes));
        } else {
            reservation_fail(&variables->reservation, result);
        }
        return;
    }
    if (!variables->counted) {
        reservation_settle(&variables->reservation,
                           small ? add(home.owner, home.device, variables->bytes)
                                 : variables_worst(variables->bytes));
    }
    keep(variables, module);
}

bool variables_take(const void *module, struct entry *entry) {
    return module != NULL && table_take(&modules, (uint64_t)(uintptr_t)module, entry);
}

void variables_ended(const void *module, const struct entry *entry, CUresult result) {
    if (result != CUDA_SUCCESS) {
        table_put(&modules, (uint64_t)(uintptr_t)module, *entry, NULL, NULL);
    } else if (entry->flags & SMALL) {
        reservation_release(entry->device, subtract(entry->owner, entry_bytes(*entry)));
    } else {
        reservation_release(entry->device, variables_worst(entry_bytes(*entry)));
    }
}

struct gone {
    uint32_t owner;
    uint64_t bytes;
};

static bool goes(uint64_t key, struct entry *module, void *arg) {
    struct gone *gone = arg;
    (void)key;
    if (module->owner != gone->owner) {
        return false;
    }
    gone->bytes += module->flags & SMALL ? 0 : variables_worst(entry_bytes(*module));
    return true;
}

static void variables_emptied(struct home home) {
    struct gone gone = {.owner = home.owner};
    struct entry pool;
    if (home.owner == 0) {
        return;
    }
    table_sweep(&modules, goes, &gone);
    if (table_take(&pools, key_of(home.owner), &pool)) {
        gone.bytes += pool.freeing * BLOCK_BYTES;
    }
    reservation_release(home.device, gone.bytes);
}
ON(context_emptied, variables_emptied);

static void variables_forked(void) {
    table_forget(&modules);
    table_forget(&pools);
}
ON(forked, variables_forked);
