/* The ranges that the client has of the worker, by address, and the reservation of their addresses.
 *
 * Addresses are reserved in blocks of 2 MiB, in which drivers take them from the kernel: small allocations share a block,
 * and one of a page would not be alone on it. A block is reserved as long as a range touches it; which blocks these are
 * follows from the ranges, so that nothing else has to be kept. */
#include "remote/client/ranges.h"
#include "remote/client/reserve.h"

#include <pthread.h>
#include <stdlib.h>

#define BLOCK (UINT64_C(2) << 20)
/* No kernel has user addresses beyond. */
#define END (UINT64_C(1) << 57)

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
/* Ranges whose addresses are reserved; memory of the program, which is where it says; and what of the first the program has
 * at another address, by that one. */
static struct range_node *reserved, *own, *elsewhere;
static uint64_t serial;

static bool is_own(const struct remote_range *range) {
    return range->host && (uintptr_t)range->host == range->start;
}

static struct range_node **tree_of(const struct remote_range *range) {
    return is_own(range) ? &own : &reserved;
}

static uint64_t end_of(const struct range_node *node) {
    return node->range.start + node->range.size;
}

/* The blocks of a range that no other range of the tree touches. */
static void blocks_alone(const struct remote_range *range, uint64_t *from, uint64_t *to) {
    const struct range_node *before = range_before(reserved, range->start - 1);
    const struct range_node *after = range_after(reserved, range->start);

    *from = range->start / BLOCK * BLOCK;
    *to = (range->start + range->size + BLOCK - 1) / BLOCK * BLOCK;
    if (before && end_of(before) > *from) {
        *from += BLOCK;
    }
    if (after && after->range.start < *to) {
        *to -= BLOCK;
    }
}

static void drop(struct range_node *node) {
    struct remote_range range = node->range;
    uint64_t from, to;

    range_take(tree_of(&range), range.start);
    if (node->other) {
        free(range_take(&elsewhere, node->other->range.start));
    }
    free(node->facts);
    free(node);
    if (is_own(&range)) {
        return;
    }
    blocks_alone(&range, &from, &to);
    if (from < to) {
        remote_unreserve(from, to - from);
    }
}

/* Whether no range is in the way. What the worker gives it has: another range at its addresses has ended, perhaps without a
 * call of the program's, as the memory of a graph does. */
static bool make_room(const struct remote_range *range) {
    struct range_node **tree = tree_of(range);

    for (;;) {
        struct range_node *last = range_before(*tree, range->start + range->size - 1);
        if (!last || end_of(last) <= range->start) {
            return true;
        }
        if (is_own(range)) {
            return false;
        }
        drop(last);
    }
}

static bool put(struct range_node *node) {
    uint64_t from, to;

    if (!make_room(&node->range)) {
        return false;
    }
    if (!is_own(&node->range)) {
        blocks_alone(&node->range, &from, &to);
        if (from < to && !remote_reserve(from, to - from)) {
            return false;
        }
    }
    range_insert(tree_of(&node->range), node);
    return true;
}

/* Weights need not be secret: no order of addresses that a driver gives follows this one. */
static uint32_t draw(uint64_t of) {
    of = (of ^ of >> 33) * UINT64_C(0xff51afd7ed558ccd);
    return (uint32_t)((of ^ of >> 33) * UINT64_C(0xc4ceb9fe1a85ec53) >> 32);
}

static struct range_node *new_node(const struct remote_range *range) {
    struct range_node *node = calloc(1, sizeof *node);

    if (node) {
        node->range = *range;
    }
    return node;
}

/* By the address that the program has. What was there before has ended. */
static void put_other(struct range_node *node, struct range_node *other) {
    struct range_node *last;
    uint64_t start = (uintptr_t)node->range.host;

    other->range.start = start;
    other->weight = node->weight;
    while ((last = range_before(elsewhere, start + node->range.size - 1)) && end_of(last) > start) {
        last->other->other = NULL;
        free(range_take(&elsewhere, last->range.start));
    }
    other->other = node;
    node->other = other;
    range_insert(&elsewhere, other);
}

bool remote_range_add(const struct remote_range *range) {
    bool two = range->host && !is_own(range);

    if (range->start < BLOCK || range->start >= END || range->size == 0 || range->size >= END) {
        return false;
    }
    struct range_node *node = new_node(range), *other = two ? new_node(range) : NULL;
    pthread_mutex_lock(&lock);
    bool there = node && (other || !two);
    if (there) {
        node->serial = ++serial;
        node->weight = draw(node->serial);
        there = put(node);
    }
    if (there && two) {
        put_other(node, other);
    }
    pthread_mutex_unlock(&lock);
    if (!there) {
        free(node);
        free(other);
    }
    return there;
}

static struct range_node *at_in(struct range_node *tree, uint64_t address) {
    struct range_node *node = range_before(tree, address);

    return node && address < end_of(node) && !node->leaving ? node : NULL;
}

static struct range_node *at(uint64_t address) {
    struct range_node *node = at_in(reserved, address);

    return node ? node : at_in(own, address);
}

bool remote_range_find(CUdeviceptr address, struct remote_range *range) {
    pthread_mutex_lock(&lock);
    const struct range_node *node = at(address);
    if (node) {
        *range = node->range;
    }
    pthread_mutex_unlock(&lock);
    return node != NULL;
}

/* The same also by the address that the program has of host memory, which becomes the worker's. */
static struct range_node *at_either(CUdeviceptr *address) {
    struct range_node *node = at(*address), *alias = node ? NULL : at_in(elsewhere, *address);

    if (alias) {
        *address = alias->other->range.start + (*address - alias->range.start);
        node = alias->other;
    }
    return node;
}

bool range_look(CUdeviceptr *address, struct remote_range *range, uint64_t *of,
                struct remote_pointer_facts *facts, bool *told) {
    pthread_mutex_lock(&lock);
    const struct range_node *node = at_either(address);
    *told = node && node->facts;
    if (node) {
        *range = node->range;
        *of = node->serial;
    }
    if (*told) {
        *facts = *node->facts;
    }
    pthread_mutex_unlock(&lock);
    return node != NULL;
}

void range_keep(CUdeviceptr address, uint64_t of, const struct remote_pointer_facts *facts) {
    struct remote_pointer_facts *copy = malloc(sizeof *copy);

    if (!copy) {
        return;
    }
    *copy = *facts;
    pthread_mutex_lock(&lock);
    struct range_node *node = at(address);
    if (node && node->serial == of && !node->facts) {
        node->facts = copy;
        copy = NULL;
    }
    pthread_mutex_unlock(&lock);
    free(copy);
}

bool remote_range_foreign(CUdeviceptr address) {
    uint64_t from = address / BLOCK * BLOCK;

    if (address == 0 || address >= END) {
        return false;
    }
    pthread_mutex_lock(&lock);
    const struct range_node *last = range_before(reserved, from + BLOCK - 1);
    bool ours = last && end_of(last) > from;
    pthread_mutex_unlock(&lock);
    return ours || remote_is_free(address);
}

bool remote_range_remove(CUdeviceptr start, struct remote_range *range) {
    pthread_mutex_lock(&lock);
    struct range_node *node = at(start);
    bool there = node && node->range.start == start;
    if (there) {
        *range = node->range;
        drop(node);
    }
    pthread_mutex_unlock(&lock);
    return there;
}

/* Calls for each range that a context has of devices. What is called may end the node. */
static void each(uint64_t context, void (*call)(struct range_node *node)) {
    uint64_t from = 0;
    struct range_node *node;

    while ((node = range_after(reserved, from))) {
        from = node->range.start;
        if (node->range.context == context && !node->range.host) {
            call(node);
        }
    }
}

static void leave(struct range_node *node) {
    node->leaving = true;
}

static void stay(struct range_node *node) {
    node->leaving = false;
}

static void end(struct range_node *node) {
    if (node->leaving) {
        drop(node);
    }
}

static void one_or_all(uint64_t context, CUdeviceptr start, void (*call)(struct range_node *node)) {
    pthread_mutex_lock(&lock);
    struct range_node *node = start ? range_before(reserved, start) : NULL;
    if (node && node->range.start == start) {
        call(node);
    } else if (!start && context) {
        each(context, call);
    }
    pthread_mutex_unlock(&lock);
}

void remote_range_leave(uint64_t context, CUdeviceptr start) {
    one_or_all(context, start, leave);
}

void remote_range_left(uint64_t context, CUdeviceptr start, bool ended) {
    one_or_all(context, start, ended ? end : stay);
}
