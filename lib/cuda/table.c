#define _GNU_SOURCE
#include "cuda/table.h"

#include <stddef.h>
#include <string.h>
#include <sys/mman.h>

#define FIRST_CAPACITY 128u /* cells; three quarters of a page */

static bool grow(struct shard *s) {
    uint32_t capacity = s->capacity ? s->capacity * 2 : FIRST_CAPACITY;
    if (capacity == 0) {
        return false;
    }
    struct cell *cells = mmap(NULL, capacity * sizeof *cells, PROT_READ | PROT_WRITE,
                              MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (cells == MAP_FAILED) {
        return false;
    }
    struct shard bigger = {.used = s->used, .capacity = capacity, .cells = cells};
    for (uint32_t i = 0; i < s->capacity; i++) {
        if (s->cells[i].key != 0) {
            *shard_probe(&bigger, s->cells[i].key) = s->cells[i];
        }
    }
    if (s->cells != NULL) {
        munmap(s->cells, s->capacity * sizeof *cells);
    }
    s->capacity = capacity;
    s->cells = cells;
    return true;
}

struct entry *shard_make(struct shard *s, uint64_t key, bool *had) {
    struct cell *cell = s->used > 0 ? shard_probe(s, key) : NULL;
    *had = cell != NULL && cell->key == key;
    if (*had) {
        return &cell->value;
    }
    if (cell == NULL || s->used >= s->capacity / 4 * 3) {
        if (s->used >= s->capacity / 4 * 3 && !grow(s)) {
            return NULL;
        }
        cell = shard_probe(s, key);
    }
    *cell = (struct cell){.key = key};
    s->used++;
    return &cell->value;
}

/* Removes without a tombstone: later cells of the same run move up as far as their keys allow. */
void shard_erase(struct shard *s, struct entry *value) {
    uint32_t mask = s->capacity - 1;
    struct cell *cell = (struct cell *)((char *)value - offsetof(struct cell, value));
    uint32_t hole = (uint32_t)(cell - s->cells);
    for (uint32_t at = (hole + 1) & mask; s->cells[at].key != 0; at = (at + 1) & mask) {
        uint32_t distance_home = (at - shard_home(s, s->cells[at].key)) & mask;
        if (distance_home >= ((at - hole) & mask)) {
            s->cells[hole] = s->cells[at];
            hole = at;
        }
    }
    s->cells[hole].key = 0;
    s->used--;
}

bool table_put(table *t, uint64_t key, struct entry value, struct entry *old, bool *had) {
    struct shard *s = table_shard(t, key);
    bool present;
    lock_take(&s->lock);
    struct entry *entry = shard_make(s, key, &present);
    if (entry != NULL) {
        if (old != NULL) {
            *old = *entry;
        }
        *entry = value;
    }
    lock_give(&s->lock);
    if (had != NULL) {
        *had = present;
    }
    return entry != NULL;
}

bool table_take(table *t, uint64_t key, struct entry *value) {
    struct shard *s = table_shard(t, key);
    lock_take(&s->lock);
    struct entry *entry = shard_find(s, key);
    if (entry != NULL) {
        if (value != NULL) {
            *value = *entry;
        }
        shard_erase(s, entry);
    }
    lock_give(&s->lock);
    return entry != NULL;
}

bool table_get(table *t, uint64_t key, struct entry *value) {
    struct shard *s = table_shard(t, key);
    lock_take(&s->lock);
    const struct entry *entry = shard_find(s, key);
    if (entry != NULL) {
        *value = *entry;
    }
    lock_give(&s->lock);
    return entry != NULL;
}

bool table_count_up(table *t, uint64_t key, struct entry fresh) {
    struct shard *s = table_shard(t, key);
    bool had;
    lock_take(&s->lock);
    struct entry *entry = shard_make(s, key, &had);
    if (entry != NULL) {
        uint32_t before = had ? entry->amount : 0;
        *entry = had ? *entry : fresh;
        entry->amount = before + 1;
    }
    lock_give(&s->lock);
    return entry != NULL;
}

bool table_count_down(table *t, uint64_t key) {
    struct shard *s = table_shard(t, key);
    lock_take(&s->lock);
    struct entry *entry = shard_find(s, key);
    if (entry != NULL && --entry->amount == 0) {
        shard_erase(s, entry);
    }
    lock_give(&s->lock);
    return entry != NULL;
}

void table_sweep(table *t, bool (*visit)(uint64_t key, struct entry *value, void *arg), void *arg) {
    for (struct shard *s = t->shards; s < t->shards + TABLE_SHARDS; s++) {
        lock_take(&s->lock);
        /* After a removal another entry may have moved here. An entry that moves over the end of
         * the array is visited twice, which is harmless, because visit kept it before. */
        for (uint32_t at = 0; at < s->capacity && s->used > 0;) {
            struct cell *cell = &s->cells[at];
            if (cell->key != 0 && visit(cell->key, &cell->value, arg)) {
                shard_erase(s, &cell->value);
            } else {
                at++;
            }
        }
        lock_give(&s->lock);
    }
}

void table_forget(table *t) {
    memset(t, 0, sizeof *t);
}
