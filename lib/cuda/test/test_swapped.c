/* The list of memory that can leave the GPU against a plain one, and under threads. */
#include "cuda/memory/swapped.h"

#include <pthread.h>
#include <string.h>

#include "cuda/fork.h"
#include "test/check.h"

#define PLACES 3000
#define STEPS 60000
#define THREADS 4
#define STEP_BYTES ((uint64_t)2 << 20)
#define DEVICES 2

static struct swapped model[PLACES]; /* address 0: nothing there */

static uint32_t random_below(uint64_t *state, uint32_t bound) {
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)((*state >> 33) % bound);
}

static uint64_t place(uint32_t i) {
    return 0x7f0000000000u + i * STEP_BYTES;
}

static void check_same(const struct swapped *a, const struct swapped *b) {
    CHECK_EQUAL(a->address, b->address);
    CHECK_EQUAL(a->bytes, b->bytes);
    CHECK_EQUAL(a->turn, b->turn);
    CHECK_EQUAL(a->there, b->there);
    CHECK_EQUAL(a->device, b->device);
    CHECK_EQUAL(a->owner, b->owner);
    CHECK_EQUAL(a->converted, b->converted);
    CHECK_EQUAL(a->synchronous, b->synchronous);
    CHECK_EQUAL(a->ending, b->ending);
}

static void check_place(uint32_t i, uint64_t offset) {
    struct swapped found;
    bool inside = model[i].address != 0 && offset < model[i].bytes;
    CHECK_EQUAL(swapped_find(place(i) + offset, &found), inside);
    if (inside) {
        check_same(&found, &model[i]);
    }
}

static bool is_ordered(const struct swapped *a, const struct swapped *b) {
    return a->turn != b->turn ? a->turn < b->turn : a->address < b->address;
}

static void check_lists(void) {
    for (unsigned device = 0; device < DEVICES; device++) {
        struct swapped_list old, new;
        uint64_t bytes = 0, there = 0;
        size_t count = 0;
        CHECK(swapped_list(&old, device, SWAPPED_OLDEST_FIRST));
        CHECK(swapped_list(&new, device, SWAPPED_NEWEST_FIRST));
        for (uint32_t i = 0; i < PLACES; i++) {
            bool is = model[i].address != 0 && model[i].device == device;
            count += is;
            bytes += is ? model[i].bytes : 0;
            there += is ? model[i].there : 0;
        }
        CHECK_EQUAL(old.count, count);
        CHECK_EQUAL(new.count, count);
        CHECK_EQUAL(swapped_bytes(device), bytes);
        CHECK_EQUAL(swapped_there(device), there);
        for (size_t i = 0; i < count; i++) {
            CHECK(i == 0 || is_ordered(&old.at[i - 1], &old.at[i]));
            check_same(&old.at[i], &new.at[count - 1 - i]);
            check_same(&old.at[i], &model[(old.at[i].address - place(0)) / STEP_BYTES]);
        }
        swapped_list_end(&old);
        swapped_list_end(&new);
    }
}

static void add(uint64_t *state, uint32_t i) {
    model[i] = (struct swapped){.address = place(i),
                                .bytes = 1 + random_below(state, (uint32_t)STEP_BYTES),
                                .device = random_below(state, DEVICES),
                                .owner = 1 + random_below(state, 5),
                                .converted = random_below(state, 2) != 0};
    CHECK(swapped_add(&model[i]));
}

static void use_all(uint64_t turn) {
    swapped_use_all(turn);
    for (uint32_t i = 0; i < PLACES; i++) {
        if (model[i].address != 0 && turn >= model[i].turn) {
            model[i].turn = turn;
            model[i].there = model[i].bytes;
        }
    }
}

static void one_step(uint64_t *state, uint32_t i) {
    struct swapped out, *m = &model[i];
    uint64_t turn = random_below(state, 20), there = random_below(state, (uint32_t)STEP_BYTES);
    switch (random_below(state, 7)) {
    case 0:
    case 1:
        add(state, i);
        break;
    case 2:
        CHECK_EQUAL(swapped_take(place(i), &out), m->address != 0);
        if (m->address != 0) {
            check_same(&out, m);
        }
        m->address = 0;
        break;
    case 3:
        CHECK_EQUAL(swapped_use(place(i) + (m->bytes - 1), turn), m->address != 0);
        if (turn >= m->turn) {
            m->turn = turn;
            m->there = m->bytes;
        }
        break;
    case 4:
        CHECK_EQUAL(swapped_ending(place(i)), m->address != 0 && m->converted && !m->ending);
        m->ending = m->ending || m->converted;
        break;
    case 5:
        swapped_synchronous(place(i), turn % 2);
        m->synchronous = turn % 2;
        break;
    default:
        swapped_moved(place(i), there);
        m->there = there < m->bytes ? there : m->bytes;
    }
}

static void random_steps(void) {
    uint64_t state = 7;
    for (uint32_t i = 0; i < PLACES; i++) {
        model[i].bytes = 1;
    }
    for (unsigned step = 0; step < STEPS; step++) {
        uint32_t i = random_below(&state, PLACES);
        one_step(&state, i);
        if (step % 100 == 99) {
            use_all(random_below(&state, 20));
        }
        check_place(i, random_below(&state, (uint32_t)STEP_BYTES));
        if (step % 5000 == 0) {
            check_lists();
        }
    }
    check_lists();
}

/* Addresses in their order, which is the worst for a tree that nobody balances. */
static void rising(void) {
    uint64_t state = 1;
    for (uint32_t i = 0; i < PLACES; i++) {
        add(&state, i);
    }
    check_lists();
    for (uint32_t i = 0; i < PLACES; i++) {
        check_place(i, model[i].bytes - 1);
        check_place(i, model[i].bytes);
    }
}

static void context_ends(void) {
    swapped_context_ended(3);
    for (uint32_t i = 0; i < PLACES; i++) {
        model[i].address = model[i].owner == 3 ? 0 : model[i].address;
    }
    check_lists();
}

/* Each thread has places of its own and looks at everybody's. */
static void *work(void *arg) {
    uint32_t mine = *(const uint32_t *)arg;
    uint64_t state = mine + 1;
    for (unsigned step = 0; step < STEPS / 4; step++) {
        uint32_t i = random_below(&state, PLACES / THREADS) * THREADS + mine;
        struct swapped found;
        one_step(&state, i);
        check_place(i, model[i].bytes - 1);
        i = random_below(&state, PLACES);
        CHECK(!swapped_find(place(i), &found) || found.address == place(i));
        if (step % 4096 == 0) {
            struct swapped_list list;
            CHECK(swapped_list(&list, 0, SWAPPED_OLDEST_FIRST));
            swapped_list_end(&list);
        }
    }
    return NULL;
}

static void threads(void) {
    pthread_t thread[THREADS];
    uint32_t number[THREADS];
    for (uint32_t i = 0; i < THREADS; i++) {
        number[i] = i;
        CHECK(pthread_create(&thread[i], NULL, work, &number[i]) == 0);
    }
    for (uint32_t i = 0; i < THREADS; i++) {
        CHECK(pthread_join(thread[i], NULL) == 0);
    }
    check_lists();
}

static void child_has_nothing(void) {
    struct swapped found;
    CHECK(swapped_any());
    TELL(forked, ());
    CHECK(!swapped_any());
    CHECK(!swapped_find(place(1), &found));
    CHECK(!swapped_take(place(1), NULL));
    memset(model, 0, sizeof model);
    check_lists();
}

int main(void) {
    CHECK(!swapped_any());
    random_steps();
    rising();
    context_ends();
    threads();
    child_has_nothing();
    return 0;
}
