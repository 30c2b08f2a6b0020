/*
 * A concurrent map from a 64-bit key (a device address, a driver handle) to a small record.
 *
 * Split into shards by the key's hash, each an open-addressing table under its own lock, so that
 * threads seldom meet and a lookup touches two cache lines. Memory comes from mmap, never from
 * malloc: a program's allocator may itself call CUDA. Keys are never 0.
 */
#ifndef DIVVY_CUDA_TABLE_H
#define DIVVY_CUDA_TABLE_H

#include <stdbool.h>
#include <stdint.h>

#include "cuda/lock.h"

/* What the tables hold; each user says what the fields mean to it. */
typedef struct record {
    uint64_t bytes;
    uint32_t owner;
    uint16_t device;
    uint16_t flags;
} record;

struct cell {
    uint64_t key; /* 0: empty */
    record value;
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

/* Adds or replaces. Whatever stood under the key is written to *old, whose absence shows in *had;
 * both may be NULL. False if there is no memory: the table is as before. */
bool table_put(table *t, uint64_t key, record value, record *old, bool *had);

/* Removes; false if there is nothing under the key. value may be NULL. */
bool table_take(table *t, uint64_t key, record *value);

/* Copies the record; false if there is nothing under the key. */
bool table_get(table *t, uint64_t key, record *value);

/* Adds delta to the field bytes of the record, which is made (zero, with `fresh` for its other fields)
 * if absent and removed when the sum is 0. Writes the record after the addition to *after. False, with
 * nothing changed, if there is no memory or if delta would take the sum below 0. */
bool table_count(table *t, uint64_t key, int64_t delta, record fresh, record *after);

/* Calls visit for every record, one shard's lock held: it must not call the driver or this table, but
 * may change the record. Removes those for which it returns true. */
void table_sweep(table *t, bool (*visit)(uint64_t key, record *value, void *arg), void *arg);

/* Forgets everything and frees the locks, for the child of a fork: other threads may have been in
 * the middle of a change, so the cells are left behind, not unmapped. */
void table_forget(table *t);

#endif
