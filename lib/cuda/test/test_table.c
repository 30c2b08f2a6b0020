/* The concurrent map against a plain one, and under threads. */
#include "cuda/table.h"

#include <pthread.h>
#include <string.h>

#include "test/check.h"

#define KEYS 5000
#define STEPS 400000
#define THREADS 4

static table map;
static uint32_t model[KEYS]; /* amount + 1, 0: absent */

static uint32_t random_below(uint64_t *state, uint32_t bound) {
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)((*state >> 33) % bound);
}

/* Keys as addresses are: multiples of 512, many in a row. */
static uint64_t key_of(uint32_t i) {
    return 0x7f0000000000u + (uint64_t)i * 512;
}

static void check_key(uint32_t i) {
    struct entry found = {0};
    bool there = table_get(&map, key_of(i), &found);
    CHECK_EQUAL(there, model[i] != 0);
    CHECK_EQUAL(found.amount, model[i] != 0 ? model[i] - 1 : 0);
}

static bool is_even(uint64_t key, struct entry *value, void *count) {
    (void)key;
    *(unsigned *)count += value->amount % 2 == 0;
    return value->amount % 2 == 0;
}

static void sweep_even(void) {
    unsigned removed = 0, expected = 0;
    for (uint32_t i = 0; i < KEYS; i++) {
        if (model[i] != 0 && (model[i] - 1) % 2 == 0) {
            expected++;
            model[i] = 0;
        }
    }
    table_sweep(&map, is_even, &removed);
    CHECK_EQUAL(removed, expected);
    for (uint32_t i = 0; i < KEYS; i++) {
        check_key(i);
    }
}

static void random_steps(void) {
    uint64_t state = 7;
    for (unsigned step = 0; step < STEPS; step++) {
        uint32_t i = random_below(&state, KEYS), value = random_below(&state, 1000);
        struct entry old = {0};
        bool had;
        if (random_below(&state, 2)) {
            CHECK(table_put(&map, key_of(i), entry_make(value, 3, 1), &old, &had));
            CHECK_EQUAL(had, model[i] != 0);
            model[i] = value + 1;
        } else {
            CHECK_EQUAL(table_take(&map, key_of(i), &old), model[i] != 0);
            CHECK_EQUAL(old.amount, model[i] != 0 ? model[i] - 1 : 0);
            model[i] = 0;
        }
        if (step % 50000 == 0) {
            sweep_even();
        }
        check_key(random_below(&state, KEYS));
    }
}

static void counts(void) {
    struct entry found;
    for (int i = 0; i < 3; i++) {
        CHECK(table_count_up(&map, 42, entry_make(0, 9, 2)));
    }
    CHECK(table_get(&map, 42, &found));
    CHECK_EQUAL(found.amount, 3);
    CHECK_EQUAL(found.owner, 9);
    for (int i = 0; i < 3; i++) {
        CHECK(table_count_down(&map, 42));
    }
    CHECK(!table_count_down(&map, 42));
    CHECK(!table_get(&map, 42, &found));
}

/* Each thread its own keys, and all of them one count. */
static void *churn(void *arg) {
    uint64_t state = *(unsigned *)arg, base = 0x100000u * (*(unsigned *)arg + 1u);
    for (unsigned step = 0; step < 50000; step++) {
        uint64_t key = base + random_below(&state, 1000) * 256u;
        struct entry value = {0};
        if (table_take(&map, key, &value)) {
            CHECK_EQUAL(value.amount, (uint32_t)key);
        } else {
            CHECK(table_put(&map, key, entry_make((uint32_t)key, 0, 0), NULL, NULL));
        }
        CHECK(table_count_up(&map, 99, entry_make(0, 0, 0)));
    }
    return NULL;
}

int main(void) {
    pthread_t threads[THREADS];
    unsigned numbers[THREADS];
    struct entry sum;
    random_steps();
    table_forget(&map);
    memset(model, 0, sizeof model);
    check_key(0);
    counts();
    for (unsigned i = 0; i < THREADS; i++) {
        numbers[i] = i;
        CHECK(pthread_create(&threads[i], NULL, churn, &numbers[i]) == 0);
    }
    for (unsigned i = 0; i < THREADS; i++) {
        CHECK(pthread_join(threads[i], NULL) == 0);
    }
    CHECK(table_get(&map, 99, &sum));
    CHECK_EQUAL(sum.amount, THREADS * 50000);
    return 0;
}
