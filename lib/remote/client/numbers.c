/* The handles that the client knows: numbers with their kinds, in a table with open addressing.
 *
 * Every launch looks two numbers up, so looking up takes no lock. A writer holds the lock; while it moves entries the
 * version is odd, and who has looked meanwhile looks again. A table that was outgrown is kept for those who still look into
 * it: together such tables are smaller than the present one. Entries of forgotten numbers are cleared when half of the
 * table is used, so that the table grows with the handles that exist, not with those that were ever made. A number is
 * never used again. */
#include "remote/client/inside.h"

#include <pthread.h>
#include <stdlib.h>

#define FIRST_NUMBER 0x10000u
#define FIRST_SLOTS 1024u
/* Kinds of slots beside those of handles. */
#define EMPTY 0u
#define FORGOTTEN UINT64_MAX

struct slot {
    uint64_t number, kind;
};

struct table {
    struct table *outgrown;
    uint64_t mask;
    struct slot slots[];
};

static pthread_mutex_t writing = PTHREAD_MUTEX_INITIALIZER;
static struct table *table;
static uint64_t version;
static uint64_t used; /* slots that are not empty */
static uint64_t live; /* of these, with a handle */
static uint64_t last = FIRST_NUMBER;

static uint64_t get(const uint64_t *word) {
    return __atomic_load_n(word, __ATOMIC_ACQUIRE);
}

static void set(uint64_t *word, uint64_t value) {
    __atomic_store_n(word, value, __ATOMIC_RELEASE);
}

static uint64_t place(enum remote_kind kind, uint64_t number) {
    uint64_t mixed = (number ^ (uint64_t)kind << 56) * UINT64_C(0x9e3779b97f4a7c15);

    return mixed >> 32 ^ mixed;
}

/* Whether the handle is there; the slot with it, or the empty one at which the search ended. At most half of the slots are
 * used. */
static bool find(struct table *in, enum remote_kind kind, uint64_t number, struct slot **found) {
    for (uint64_t at = place(kind, number);; at++) {
        struct slot *slot = &in->slots[at & in->mask];
        uint64_t is = get(&slot->kind);
        *found = slot;
        if (is == EMPTY) {
            return false;
        }
        if (is == (uint64_t)kind && get(&slot->number) == number) {
            return true;
        }
    }
}

bool remote_number_known(enum remote_kind kind, uint64_t number) {
    for (;;) {
        uint64_t before = get(&version);
        struct table *now = __atomic_load_n(&table, __ATOMIC_ACQUIRE);
        if (!now) {
            return false;
        }
        struct slot *slot;
        bool known = before % 2 == 0 && find(now, kind, number, &slot);
        if (before % 2 == 0 && get(&version) == before) {
            return known;
        }
    }
}

static struct table *make(uint64_t slots) {
    struct table *made = calloc(1, sizeof *made + slots * sizeof made->slots[0]);

    if (made) {
        made->mask = slots - 1;
    }
    return made;
}

static void copy(const struct table *from, struct table *to) {
    for (uint64_t i = 0; i <= from->mask; i++) {
        struct slot old = from->slots[i];
        if (old.kind != EMPTY && old.kind != FORGOTTEN) {
            struct slot *slot;
            find(to, (enum remote_kind)old.kind, old.number, &slot);
            set(&slot->number, old.number);
            set(&slot->kind, old.kind);
        }
    }
}

/* Clears the present table of what was forgotten, by way of another of its size. */
static bool clean(void) {
    struct table *other = make(table->mask + 1);

    if (!other) {
        return false;
    }
    copy(table, other);
    set(&version, version + 1);
    for (uint64_t i = 0; i <= table->mask; i++) {
        set(&table->slots[i].kind, EMPTY);
    }
    copy(other, table);
    set(&version, version + 1);
    free(other);
    return true;
}

static bool grow(uint64_t slots) {
    struct table *larger = make(slots);

    if (!larger) {
        return false;
    }
    if (table) {
        copy(table, larger);
    }
    larger->outgrown = table;
    __atomic_store_n(&table, larger, __ATOMIC_RELEASE);
    return true;
}

/* Makes room for one more. */
static bool have_room(void) {
    if (table && used < table->mask / 2) {
        return true;
    }
    bool ok = !table                   ? grow(FIRST_SLOTS)
              : live < table->mask / 4 ? clean()
                                       : grow(2 * (table->mask + 1));
    if (ok) {
        used = live;
    }
    return ok;
}

static bool add(enum remote_kind kind, uint64_t number) {
    if (!have_room()) {
        return false;
    }
    struct slot *slot;
    if (!find(table, kind, number, &slot)) {
        set(&slot->number, number);
        set(&slot->kind, (uint64_t)kind);
        used++;
        live++;
    }
    return true;
}

uint64_t remote_number_new(enum remote_kind kind) {
    pthread_mutex_lock(&writing);
    uint64_t number = add(kind, last + 1) ? ++last : 0;
    pthread_mutex_unlock(&writing);
    return number;
}

void remote_number_learn(enum remote_kind kind, uint64_t number) {
    if (remote_number_known(kind, number)) {
        return;
    }
    pthread_mutex_lock(&writing);
    add(kind, number);
    pthread_mutex_unlock(&writing);
}

void remote_number_forget(enum remote_kind kind, uint64_t number) {
    pthread_mutex_lock(&writing);
    struct slot *slot;
    if (table && find(table, kind, number, &slot)) {
        set(&slot->kind, FORGOTTEN);
        live--;
    }
    pthread_mutex_unlock(&writing);
}

/* The numbers are the parent's worker's. What the table was made of stays, because it may have been half changed. */
static void forked(void) {
    writing = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
    table = NULL;
    version = used = live = 0;
}
ON_FORKED(forked);
