/* Numbers and handles, of all kinds in one table. Each entry is found by its number and by its handle, in places that a
 * key of this process scatters. */
#include "libc/kernel.h"
#include "remote/worker/state.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#define MOST_ENTRIES (1u << 20)
#define FIRST_ENTRIES 64u
#define FIRST_OWN (UINT64_C(1) << 62)

struct entry {
    uint64_t number;
    uint64_t handle;
    uint32_t kind; /* REMOTE_KIND_NONE: free */
    uint32_t
        older; /* the one before it with the same handle, or the next that is free; 0 for none */
};

struct remote_table {
    pthread_mutex_t lock;
    uint64_t key;
    uint64_t next_own;
    uint32_t room; /* a power of two; entry 0 is never used */
    uint32_t used; /* entries that were ever used */
    uint32_t free; /* the first that is free again */
    uint32_t count;
    struct entry *entries;
    uint32_t *by_number; /* 2 * room places, 0 where there is none */
    uint32_t *by_handle; /* the same: the newest entry with the handle */
};

static uint32_t home(const struct remote_table *table, uint32_t kind, uint64_t value) {
    uint64_t mixed = (value ^ table->key) * UINT64_C(0x9e3779b97f4a7c15) + kind;

    mixed = (mixed ^ mixed >> 32) * UINT64_C(0xd6e8feb86659fd93);
    return (uint32_t)(mixed >> 32) & (2 * table->room - 1);
}

static uint64_t value_of(const struct remote_table *table, const uint32_t *places, uint32_t entry) {
    return places == table->by_number ? table->entries[entry].number : table->entries[entry].handle;
}

/* The place of what has this value, or the free one where it would be. */
static uint32_t place_of(const struct remote_table *table, const uint32_t *places, uint32_t kind,
                         uint64_t value) {
    uint32_t at = home(table, kind, value);

    while (places[at] && (table->entries[places[at]].kind != kind ||
                          value_of(table, places, places[at]) != value)) {
        at = (at + 1) & (2 * table->room - 1);
    }
    return at;
}

/* Empties a place, and moves up what was displaced by it. */
static void vacate(const struct remote_table *table, uint32_t *places, uint32_t at) {
    uint32_t mask = 2 * table->room - 1;
    uint32_t hole = at;

    for (uint32_t next = (at + 1) & mask; places[next]; next = (next + 1) & mask) {
        const struct entry *e = &table->entries[places[next]];
        uint32_t wish = home(table, e->kind, value_of(table, places, places[next]));

        if (((next - wish) & mask) >= ((next - hole) & mask)) {
            places[hole] = places[next];
            hole = next;
        }
    }
    places[hole] = 0;
}

/* Puts what is in the old places into the table's own. */
static void place_again(const struct remote_table *table, uint32_t *places, const uint32_t *old,
                        uint32_t old_count) {
    for (uint32_t i = 0; i < old_count; i++) {
        if (old[i]) {
            const struct entry *e = &table->entries[old[i]];

            places[place_of(table, places, e->kind, value_of(table, places, old[i]))] = old[i];
        }
    }
}

static bool resize(struct remote_table *table, uint32_t room) {
    uint32_t *by_number = calloc(2 * (size_t)room, sizeof *by_number);
    uint32_t *by_handle = calloc(2 * (size_t)room, sizeof *by_handle);
    struct entry *entries = realloc(table->entries, room * sizeof *entries);
    uint32_t *old_numbers = table->by_number, *old_handles = table->by_handle;
    uint32_t old_count = 2 * table->room;

    if (entries) {
        table->entries = entries;
    }
    if (!entries || !by_number || !by_handle) {
        free(by_number);
        free(by_handle);
        return false;
    }
    table->by_number = by_number;
    table->by_handle = by_handle;
    table->room = room;
    place_again(table, by_number, old_numbers, old_count);
    place_again(table, by_handle, old_handles, old_count);
    free(old_numbers);
    free(old_handles);
    return true;
}

struct remote_table *remote_table_new(void) {
    struct remote_table *table = calloc(1, sizeof *table);

    if (!table) {
        return NULL;
    }
    table->used = 1;
    table->next_own = FIRST_OWN;
    /* Without random bytes the table is as right, but a client could choose numbers that make it slow for itself. */
    if (kernel_getrandom(&table->key, sizeof table->key, 0) != sizeof table->key) {
        table->key = (uint64_t)(uintptr_t)table;
    }
    pthread_mutex_init(&table->lock, NULL);
    if (!resize(table, FIRST_ENTRIES)) {
        remote_table_free(table);
        return NULL;
    }
    return table;
}

void remote_table_free(struct remote_table *table) {
    if (table) {
        pthread_mutex_destroy(&table->lock);
        free(table->entries);
        free(table->by_number);
        free(table->by_handle);
        free(table);
    }
}

/* An entry for a number and a handle, the newest of that handle. 0 if there is no room. */
static uint32_t add(struct remote_table *table, uint32_t kind, uint64_t number, uint64_t handle) {
    uint32_t entry = table->free;

    if (table->count >= MOST_ENTRIES) {
        return 0;
    }
    if (entry) {
        table->free = table->entries[entry].older;
    } else {
        if (table->used == table->room && !resize(table, 2 * table->room)) {
            return 0;
        }
        entry = table->used++;
    }
    uint32_t *newest = &table->by_handle[place_of(table, table->by_handle, kind, handle)];
    table->entries[entry] =
        (struct entry){.number = number, .handle = handle, .kind = kind, .older = *newest};
    *newest = entry;
    table->by_number[place_of(table, table->by_number, kind, number)] = entry;
    table->count++;
    return entry;
}

/* Takes an entry out of the chain of those with its handle. */
static void unchain(const struct remote_table *table, uint32_t entry) {
    const struct entry *e = &table->entries[entry];
    uint32_t at = place_of(table, table->by_handle, e->kind, e->handle);
    uint32_t *link = &table->by_handle[at];

    if (*link == entry && !e->older) {
        vacate(table, table->by_handle, at);
        return;
    }
    while (*link != entry) {
        link = &table->entries[*link].older;
    }
    *link = e->older;
}

bool remote_worker_resolve(struct remote_worker *worker, enum remote_kind kind, uint64_t number,
                           uint64_t *handle) {
    struct remote_table *table = worker->table;

    pthread_mutex_lock(&table->lock);
    uint32_t entry = table->by_number[place_of(table, table->by_number, kind, number)];
    if (entry) {
        *handle = table->entries[entry].handle;
    }
    pthread_mutex_unlock(&table->lock);
    return entry != 0;
}

static bool can_be_chosen(const struct remote_table *table, enum remote_kind kind,
                          uint64_t number) {
    return number > remote_kinds[kind].fixed && number < FIRST_OWN &&
           !table->by_number[place_of(table, table->by_number, kind, number)];
}

enum remote_room remote_worker_room(struct remote_worker *worker, enum remote_kind kind,
                                    uint64_t number) {
    struct remote_table *table = worker->table;

    pthread_mutex_lock(&table->lock);
    enum remote_room room = !can_be_chosen(table, kind, number) ? REMOTE_NO_NUMBER
                            : table->count >= MOST_ENTRIES      ? REMOTE_FULL
                                                                : REMOTE_ROOM;
    pthread_mutex_unlock(&table->lock);
    return room;
}

bool remote_worker_bind(struct remote_worker *worker, enum remote_kind kind, uint64_t number,
                        uint64_t handle) {
    struct remote_table *table = worker->table;

    pthread_mutex_lock(&table->lock);
    bool bound = can_be_chosen(table, kind, number) && add(table, kind, number, handle);
    pthread_mutex_unlock(&table->lock);
    return bound;
}

bool remote_worker_suspend(struct remote_worker *worker, enum remote_kind kind, uint64_t number,
                           uint64_t *handle) {
    if (number <= remote_kinds[kind].fixed || number >= FIRST_OWN ||
        !remote_worker_resolve(worker, kind, number, handle)) {
        return false;
    }
    remote_worker_unbind(worker, kind, number);
    return true;
}

uint64_t remote_worker_number(struct remote_worker *worker, enum remote_kind kind,
                              uint64_t handle) {
    struct remote_table *table = worker->table;
    uint64_t number =
        kind == REMOTE_KIND_CUstream ? remote_streams_number(worker->streams, handle) : 0;

    if (number) {
        return number;
    }
    pthread_mutex_lock(&table->lock);
    uint32_t entry = table->by_handle[place_of(table, table->by_handle, kind, handle)];
    if (!entry) {
        entry = add(table, kind, remote_kinds[kind].own ? handle : table->next_own++, handle);
    }
    number = entry ? table->entries[entry].number : 0;
    pthread_mutex_unlock(&table->lock);
    return number;
}

uint64_t remote_worker_known(struct remote_worker *worker, enum remote_kind kind, uint64_t handle) {
    struct remote_table *table = worker->table;

    pthread_mutex_lock(&table->lock);
    uint32_t entry = table->by_handle[place_of(table, table->by_handle, kind, handle)];
    uint64_t number = entry ? table->entries[entry].number : 0;
    pthread_mutex_unlock(&table->lock);
    return number;
}

void remote_worker_unbind(struct remote_worker *worker, enum remote_kind kind, uint64_t number) {
    struct remote_table *table = worker->table;

    pthread_mutex_lock(&table->lock);
    uint32_t at = place_of(table, table->by_number, kind, number);
    uint32_t entry = table->by_number[at];
    if (entry) {
        vacate(table, table->by_number, at);
        unchain(table, entry);
        table->entries[entry] = (struct entry){.older = table->free};
        table->free = entry;
        table->count--;
    }
    pthread_mutex_unlock(&table->lock);
    if (entry && kind == REMOTE_KIND_CUcontext) {
        remote_streams_forget(worker->streams, number);
    }
}
