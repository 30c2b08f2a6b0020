/* The table of kernels against a list, and layouts that are none. */
#include "remote/layout.h"

#include "test/check.h"

#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

static struct remote_codes *codes;
static uint64_t state = 1;

static uint64_t next(void) {
    state = state * UINT64_C(6364136223846793005) + 1442695040888963407u;
    return state >> 33;
}

static void check_layouts(void) {
    const struct remote_param good[] = {{0, 8}, {8, 1}, {16, 20}, {32760, 4}};
    const struct remote_param overlap[] = {{0, 8}, {7, 1}};
    const struct remote_param disorder[] = {{8, 8}, {0, 8}};
    const struct remote_param empty[] = {{0, 8}, {8, 0}};
    const struct remote_param late[] = {{32760, 5}};
    const struct remote_param far[] = {{65535, 65535}};

    struct remote_layout *layout = remote_layout_new(good, 4);
    CHECK(layout);
    CHECK_EQUAL(layout->bytes, 32764);
    CHECK_EQUAL(layout->count, 4);
    free(layout);
    layout = remote_layout_new(NULL, 0);
    CHECK(layout && layout->bytes == 0);
    free(layout);
    CHECK(!remote_layout_new(overlap, 2));
    CHECK(!remote_layout_new(disorder, 2));
    CHECK(!remote_layout_new(empty, 2));
    CHECK(!remote_layout_new(late, 1));
    CHECK(!remote_layout_new(far, 1));
    CHECK(!remote_layout_new(good, REMOTE_PARAM_BYTES + 1));
}

/* Which numbers are there, and whose. */
#define NUMBERS 600u
static struct {
    bool there;
    unsigned owner;
} list[NUMBERS];
#define OWNERS 20u

static enum remote_kind kind_of(unsigned i) {
    return i < OWNERS ? REMOTE_KIND_CUmodule
           : i % 2    ? REMOTE_KIND_CUfunction
                      : REMOTE_KIND_CUkernel;
}

/* Numbers of a client and of a worker, and the same number for two kinds. */
static uint64_t number_of(unsigned i) {
    return i < OWNERS ? 0x1000 + i : i % 3 ? 0x1000 + i / 2 : (UINT64_C(1) << 62) + i;
}

static struct remote_code *find(unsigned i) {
    return remote_code_find(&codes, kind_of(i), number_of(i));
}

static void check_all(void) {
    for (unsigned i = 0; i < NUMBERS; i++) {
        struct remote_code *code = find(i);

        CHECK_EQUAL(code != NULL, list[i].there);
        if (code && i >= OWNERS) {
            CHECK(code->owner == (list[i].owner < OWNERS ? find(list[i].owner) : NULL));
        }
    }
}

static void remove_one(unsigned i) {
    remote_code_remove(&codes, find(i));
    list[i].there = false;
    for (unsigned k = OWNERS; i < OWNERS && k < NUMBERS; k++) {
        list[k].there = list[k].there && list[k].owner != i;
    }
}

static void add_one(unsigned i) {
    struct remote_code *code = remote_code_add(&codes, kind_of(i), number_of(i));

    CHECK(code);
    list[i].there = true;
    if (i < OWNERS) {
        return;
    }
    unsigned owner = (unsigned)(next() % (OWNERS + 1));
    if (owner < OWNERS && !list[owner].there) {
        add_one(owner);
    }
    remote_code_own(code, owner < OWNERS ? find(owner) : NULL);
    list[i].owner = owner;
}

/* Memory stays bounded however many numbers have come and gone. A sanitizer keeps freed memory for itself. */
static void check_churn(void) {
    for (uint64_t number = 1; number < 10000000; number++) {
        struct remote_code *code = remote_code_add(&codes, REMOTE_KIND_CUfunction, number << 8);

        CHECK(code);
        remote_code_remove(&codes, code);
    }
#ifndef __SANITIZE_ADDRESS__
    struct rusage usage;

    getrusage(RUSAGE_SELF, &usage);
    CHECK(usage.ru_maxrss < 16 << 10);
#endif
}

int main(void) {
    check_layouts();
    for (unsigned i = 0; i < 200000; i++) {
        unsigned n = (unsigned)(next() % NUMBERS);

        if (list[n].there && next() % 2) {
            remove_one(n);
        } else {
            add_one(n);
        }
        if (i % 1000 == 0) {
            check_all();
        }
    }
    CHECK(!remote_code_find(&codes, REMOTE_KIND_CUmodule, 77));
    check_churn();
    return 0;
}
