#define _GNU_SOURCE
#include "cuda/table.h"

#include <string.h>
#include <sys/mman.h>

#define FIRST_CAPACITY 128u /* cells; three quarters of a page */

/* Fibonacci hashing: device addresses differ in their middle bits, the product's top bits mix them. */
static uint64_t hash(uint64_t key) {
    return key * 0x9e3779b97f4a7c15u;
}

static struct shard *shard_of(table *t, uint64_t h) {
    return &t->shards[h >> 58];
}

static uint32_t home(const struct shard *s, uint64_t key) {
    return (uint32_t)(hash(key) >> 26) & (s->capacity - 1);
}

/* The key's cell, or the empty one where it would go. */
static struct cell *probe(const struct shard *s, uint64_t key) {
    uint32_t at = home(s, key);
    while (s->cells[at].key != 0 && s->cells[at].key != key) {
        at = (at + 1) & (s->capacity - 1);
    }
    return &s->cells[at];
}

static struct cell *find(const struct shard *s, uint64_t key) {
    if (s->used == 0) {
        return NULL;
    }
    struct cell *cell = probe(s, key);
    return cell->key == key ? cell : NULL;
}

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
            *probe(&bigger, s->cells[i].key) = s->cells[i];
        }
    }
    if (s->cells != NULL) {
        munmap(s->cells, s->capacity * sizeof *cells);
    }
    s->capacity = capacity;
    s->cells = cells;
    return true;
}

/* The key's cell, made empty-valued if absent; NULL if there is no memory. */
static struct cell *claim(struct shard *s, uint64_t key, bool *had) {
    struct cell *cell = find(s, key);
    *had = cell != NULL;
    if (cell != NULL) {
        return cell;
    }
    if (s->used >= s->capacity / 4 * 3 && !grow(s)) {
        return NULL;
    }
    cell = probe(s, key);
    *cell = (struct cell){.key = key};
    s->used++;
    return cell;
}

/* Removes without a tombstone: later cells of the same run move up if their home allows it. */
static void erase(struct shard *s, struct cell *cell) {
    uint32_t mask = s->capacity - 1;
    uint32_t hole = (uint32_t)(cell - s->cells);
    for (uint32_t at = (hole + 1) & mask; s->cells[at].key != 0; at = (at + 1) & mask) {
        uint32_t distance_home = (at - home(s, s->cells[at].key)) & mask;
        if (distance_home >= ((at - hole) & mask)) {
            s->cells[hole] = s->cells[at];
            hole = at;
        }
    }
    s->cells[hole].key = 0;
    s->used--;
}

bool table_put(table *t, uint64_t key, record value, record *old, bool *had) {
    struct shard *s = shard_of(t, hash(key));
    bool present;
    lock_take(&s->lock);
    struct cell *cell = claim(s, key, &present);
    if (cell != NULL) {
        if (old != NULL) {
            *old = cell->value;
        }
        cell->value = value;
    }
    lock_give(&s->lock);
    if (had != NULL) {
        *had = present;
    }
    return cell != NULL;
}

bool table_take(table *t, uint64_t key, record *value) {
    struct shard *s = shard_of(t, hash(key));
    lock_take(&s->lock);
    struct cell *cell = find(s, key);
    if (cell != NULL) {
        if (value != NULL) {
            *value = cell->value;
        }
        erase(s, cell);
    }
    lock_give(&s->lock);
    return cell != NULL;
}

bool table_get(table *t, uint64_t key, record *value) {
    struct shard *s = shard_of(t, hash(key));
    lock_take(&s->lock);
    const struct cell *cell = find(s, key);
    if (cell != NULL) {
        *value = cell->value;
    }
    lock_give(&s->lock);
    return cell != NULL;
}

bool table_count(table *t, uint64_t key, int64_t delta, record fresh, record *after) {
    struct shard *s = shard_of(t, hash(key));
    bool had, done = false;
    lock_take(&s->lock);
    struct cell *cell = delta > 0 ? claim(s, key, &had) : find(s, key);
    if (cell != NULL && (delta > 0 || cell->value.bytes >= (uint64_t)-delta)) {
        if (delta > 0 && !had) {
            cell->value = fresh;
            cell->value.bytes = 0;
        }
        cell->value.bytes += (uint64_t)delta;
        *after = cell->value;
        if (cell->value.bytes == 0) {
            erase(s, cell);
        }
        done = true;
    }
    lock_give(&s->lock);
    return done;
}

void table_sweep(table *t, bool (*visit)(uint64_t key, record *value, void *arg), void *arg) {
    for (struct shard *s = t->shards; s < t->shards + TABLE_SHARDS; s++) {
        lock_take(&s->lock);
        /* After a removal another record may have moved here. One that moves from the front to the
         * back over the wrap is visited again, which a visit that kept it once does no harm to. */
        for (uint32_t at = 0; at < s->capacity && s->used > 0;) {
            struct cell *cell = &s->cells[at];
            if (cell->key != 0 && visit(cell->key, &cell->value, arg)) {
                erase(s, cell);
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
