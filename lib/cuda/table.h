/*
 * A concurrent map from a 64-bit key (a device address, a driver handle) to a small entry.
 *
 * It consists of shards. Each is an open-addressing table under its own lock, so threads seldom
 * wait for each other and a look-up touches two cache lines. Memory comes from mmap, never from
 * malloc, because a program's allocator may itself call CUDA. Keys are never 0.
 */
#ifndef DIVVY_CUDA_TABLE_H
#define DIVVY_CUDA_TABLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cuda/lock.h"

/* What the tables hold; each user defines what the fields mean to it. It is small, because with
 * many entries a look-up costs the cache lines that it touches. */
struct entry {
    uint32_t amount; /* a count, or bytes in grains */
    uint32_t owner;
    uint32_t freeing; /* frees under way */
    uint16_t device;  /* number in the share */
    uint16_t flags;
};

/* The driver aligns device memory to 256 bytes at least, so that an amount rounded up to grains
 * touches no block that the bytes do not. */
#define GRAIN_BYTES 256u
#define GRAINS_MAX_BYTES ((uint64_t)UINT32_MAX * GRAIN_BYTES) /* 1 TiB */

static inline struct entry entry_make(uint32_t amount, uint32_t owner, unsigned device) {
    return (struct entry){.amount = amount, .owner = owner, .device = (uint16_t)device};
}
/* For at most GRAINS_MAX_BYTES. */
static inline struct entry entry_of_bytes(uint64_t bytes, uint32_t owner, unsigned device) {
    return entry_make((uint32_t)((bytes + GRAIN_BYTES - 1) / GRAIN_BYTES), owner, device);
}
static inline uint64_t entry_bytes(struct entry r) {
    return (uint64_t)r.amount * GRAIN_BYTES;
}

struct cell {
    uint64_t key; /* 0: empty */
    struct entry value;
};

struct shard {
    lock lock;
    uint32_t used;
    uint32_t capacity; /* power of two, 0 before the first insertion */
    struct cell *cells;
} __attribute__((aligned(64)));

#define TABLE_SHARDS 64u

typedef struct table {
    struct shard shards[TABLE_SHARDS];
} table;

static inline uint64_t table_hash(uint64_t n) {
    /* Fibonacci hashing: addresses differ in their middle bits, the product's top bits mix them. */
    return n * 0x9e3779b97f4a7c15u;
}

/* For several steps under one lock: the shard of a group of keys, and functions to be called while
 * its lock is held. A key must always be used with the same group. The functions on whole tables
 * below use the key as its own group. */
static inline struct shard *table_shard(struct table *t, uint64_t group) {
    return &t->shards[table_hash(group) >> 58];
}

/* Where the search for a key begins. */
static inline uint32_t shard_home(const struct shard *s, uint64_t key) {
    return (uint32_t)(table_hash(key) >> 26) & (s->capacity - 1);
}

/* The key's cell, or the empty one where it would go; the shard has cells. */
static inline struct cell *shard_probe(const struct shard *s, uint64_t key) {
    uint32_t at = shard_home(s, key);
    while (s->cells[at].key != 0 && s->cells[at].key != key) {
        at = (at + 1) & (s->capacity - 1);
    }
    return &s->cells[at];
}

/* The key's entry, or NULL. Valid until the shard is changed or given back. */
static inline struct entry *shard_find(struct shard *s, uint64_t key) {
    if (s->used == 0) {
        return NULL;
    }
    struct cell *cell = shard_probe(s, key);
    return cell->key == key ? &cell->value : NULL;
}

/* The same, made (zero) if absent; *had tells. NULL if there is no memory. */
struct entry *shard_make(struct shard *s, uint64_t key, bool *had);
/* Removes what one of the two returned. */
void shard_erase(struct shard *s, struct entry *value);

/* Adds or replaces an entry. *had tells whether there was one before, *old what it was; both may be
 * NULL. False if there is no memory; the table is then unchanged. */
bool table_put(table *t, uint64_t key, struct entry value, struct entry *old, bool *had);

/* Removes; false if there is nothing under the key. value may be NULL. */
bool table_take(table *t, uint64_t key, struct entry *value);

/* Copies the entry; false if there is nothing under the key. */
bool table_get(table *t, uint64_t key, struct entry *value);

/* Adds 1 to the amount of the entry. If there is none, makes it from `fresh` with amount 1. False
 * if there is no memory. */
bool table_count_up(table *t, uint64_t key, struct entry fresh);
/* Takes 1 from the amount and removes the entry at 0. False if there is none. */
bool table_count_down(table *t, uint64_t key);

/* Calls visit for every entry, under the lock of its shard. visit may change the entry, but must
 * not call the driver or use this table. Removes the entries for which it returns true. */
void table_sweep(table *t, bool (*visit)(uint64_t key, struct entry *value, void *arg), void *arg);

/* For the child of a fork: forgets everything and frees the locks. The cells are not unmapped,
 * because another thread of the parent may have been changing them. */
void table_forget(table *t);

#endif
