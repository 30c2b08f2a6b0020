/* The client's table of ranges: against a plain list, with addresses that are reserved in this process; when somebody has
 * them; and from several threads. */
#define _GNU_SOURCE
#include "remote/client/ranges.h"

#include "test/check.h"

#include <errno.h>
#include <pthread.h>
#include <string.h>
#include <sys/mman.h>

#define BLOCK (UINT64_C(2) << 20)
#define BLOCKS 64u

static uint64_t base; /* of addresses that nobody has */

/* A kernel before 4.17 does not know the flag, and takes the address as a wish. The linker has the client's calls come
 * here. */
static bool old_kernel;
void *__real_mmap(void *at, size_t size, int protection, int flags, int file, off_t from);
void *__wrap_mmap(void *at, size_t size, int protection, int flags, int file, off_t from);

void *__wrap_mmap(void *at, size_t size, int protection, int flags, int file, off_t from) {
    return __real_mmap(at, size, protection, old_kernel ? flags & ~MAP_FIXED_NOREPLACE : flags,
                       file, from);
}

static bool is_reserved(uint64_t address) {
    unsigned char resident;
    int saved = errno;
    bool there = mincore((void *)(uintptr_t)(address / 4096 * 4096), 1, &resident) == 0;

    errno = saved;
    return there;
}

static void find_base(void) {
    size_t size = (BLOCKS + 2) * BLOCK;
    void *at = mmap(NULL, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

    CHECK(at != MAP_FAILED && munmap(at, size) == 0);
    base = ((uintptr_t)at + BLOCK - 1) / BLOCK * BLOCK;
}

static bool add(uint64_t start, uint64_t size, uint64_t context) {
    const struct remote_range range = {.start = start, .size = size, .context = context};

    return remote_range_add(&range);
}

static void test_taken(void) {
    struct remote_range range;
    char *there = (char *)(uintptr_t)(base + BLOCK);

    CHECK(mmap(there, 4096, PROT_READ | PROT_WRITE,
               MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0) == there);
    *there = 7;
    /* What the program has there stays, also where it has only a part, or the rest of a block. */
    CHECK(!add(base + BLOCK, 4096, 1));
    CHECK(!add(base, 3 * BLOCK, 1));
    CHECK(!add(base + BLOCK + 65536, 512, 1));
    CHECK(!remote_range_find(base + BLOCK, &range));
    CHECK(*there == 7 && !is_reserved(base) && !is_reserved(base + 2 * BLOCK));
    CHECK(add(base, BLOCK, 1) && add(base + 2 * BLOCK, 1, 1));
    CHECK(munmap(there, 4096) == 0);
    CHECK(add(base + BLOCK, BLOCK, 1));
    for (unsigned i = 0; i < 3; i++) {
        CHECK(is_reserved(base + i * BLOCK) && remote_range_remove(base + i * BLOCK, &range));
    }
    CHECK(!is_reserved(base) && !is_reserved(base + BLOCK) && !is_reserved(base + 2 * BLOCK));
    /* What no kernel has. */
    CHECK(!add(0, 4096, 1) && !add(UINT64_MAX - 4096, 4096, 1) && !add(base, 0, 1));
    CHECK(!add(base, UINT64_MAX - base + 1, 1) && !add(4096, 4096, 1));
}

static size_t mapped(void) {
    FILE *maps = fopen("/proc/self/maps", "re");
    size_t lines = 0;
    int c;

    CHECK(maps);
    while ((c = getc(maps)) != EOF) {
        lines += c == '\n';
    }
    fclose(maps);
    return lines;
}

static void test_old_kernel(void) {
    struct remote_range range;
    char *there = (char *)(uintptr_t)(base + BLOCK);

    CHECK(mmap(there, 4096, PROT_READ | PROT_WRITE,
               MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0) == there);
    old_kernel = true;
    size_t before = mapped();
    CHECK(!add(base, 3 * BLOCK, 1));
    CHECK_EQUAL(mapped(), before);
    CHECK(add(base + 2 * BLOCK, 5, 1) && is_reserved(base + 2 * BLOCK));
    CHECK(remote_range_remove(base + 2 * BLOCK, &range) && !is_reserved(base + 2 * BLOCK));
    old_kernel = false;
    CHECK(munmap(there, 4096) == 0);
}

/* Ranges that share a block, and the program's own memory, for which nothing is reserved. */
static void test_shared_blocks(void) {
    struct remote_range range;
    static char own[3 * 4096];

    CHECK(add(base + 512, 512, 1) && add(base + 1024, 512, 1));
    CHECK(add(base + BLOCK - 512, 1024, 1));
    CHECK(is_reserved(base) && is_reserved(base + BLOCK) && !is_reserved(base + 2 * BLOCK));
    CHECK(remote_range_foreign(base + 5000) && !remote_range_foreign((uintptr_t)own));
    CHECK(remote_range_remove(base + 512, &range) && range.size == 512);
    CHECK(!remote_range_remove(base + 512, &range) && !remote_range_remove(base + 1025, &range));
    CHECK(remote_range_remove(base + BLOCK - 512, &range));
    CHECK(is_reserved(base) && !is_reserved(base + BLOCK));
    CHECK(remote_range_find(base + 1535, &range) && range.start == base + 1024);
    CHECK(!remote_range_find(base + 1536, &range) && !remote_range_find(base + 1023, &range));
    CHECK(remote_range_remove(base + 1024, &range) && !is_reserved(base));
    const struct remote_range host = {
        .start = (uintptr_t)own + 100, .size = 4096, .context = 1, .host = own + 100};
    CHECK(remote_range_add(&host) && !remote_range_add(&host));
    own[101] = 1;
    CHECK(remote_range_find((uintptr_t)own + 4195, &range) && range.host == own + 100);
    CHECK(remote_range_remove((uintptr_t)own + 100, &range) && own[101] == 1);
}

/* Host memory that the worker has at another address. */
static void test_elsewhere(void) {
    static char own[2 * 4096];
    const struct remote_range host = {
        .start = base, .size = 4096, .context = 1, .host = own + 8, .flags = 1};
    struct remote_pointer_facts facts;
    struct remote_range range;
    uint64_t serial;
    bool told;

    for (unsigned i = 0; i < 2; i++) {
        CUdeviceptr at = (uintptr_t)own + 8 + 4095;
        CHECK(remote_range_add(&host) && is_reserved(base));
        CHECK(range_look(&at, &range, &serial, &facts, &told) && at == base + 4095);
        CHECK(range.host == own + 8 && !told);
        CHECK(range_look(&at, &range, &serial, &facts, &told) && at == base + 4095);
        CHECK(!remote_range_find((uintptr_t)own + 8, &range));
        at = (uintptr_t)own + 7;
        CHECK(!range_look(&at, &range, &serial, &facts, &told));
        at = (uintptr_t)own + 8 + 4096;
        CHECK(!range_look(&at, &range, &serial, &facts, &told));
        CHECK(remote_range_remove(base, &range) && !is_reserved(base));
        at = (uintptr_t)own + 8;
        CHECK(!range_look(&at, &range, &serial, &facts, &told));
    }
    /* The same memory of the program with another address in the worker. */
    const struct remote_range again = {
        .start = base + BLOCK, .size = 4096, .context = 1, .host = own + 8, .flags = 1};
    CUdeviceptr at = (uintptr_t)own + 8;
    CHECK(remote_range_add(&host) && remote_range_add(&again));
    CHECK(range_look(&at, &range, &serial, &facts, &told) && at == base + BLOCK);
    CHECK(remote_range_remove(base, &range) && remote_range_remove(base + BLOCK, &range));
    at = (uintptr_t)own + 8;
    CHECK(!range_look(&at, &range, &serial, &facts, &told));
}

/* A context ends while others get its addresses. */
static void test_leaving(void) {
    struct remote_range range;

    CHECK(add(base, 512, 5) && add(base + 512, 512, 6) && add(base + BLOCK, 512, 5));
    remote_range_leave(5, 0);
    CHECK(!remote_range_find(base, &range) && remote_range_find(base + 512, &range));
    remote_range_left(5, 0, false);
    CHECK(remote_range_find(base, &range) && remote_range_find(base + BLOCK, &range));
    remote_range_leave(5, 0);
    CHECK(add(base + 100, 300, 7) && is_reserved(base + BLOCK));
    remote_range_left(5, 0, true);
    CHECK(remote_range_find(base + 100, &range) && range.context == 7);
    CHECK(!remote_range_find(base, &range) && !is_reserved(base + BLOCK));
    /* One alone, which the worker did not end, and then did. */
    remote_range_leave(0, base + 512);
    CHECK(!remote_range_find(base + 512, &range));
    remote_range_left(0, base + 512, false);
    CHECK(remote_range_find(base + 512, &range));
    remote_range_leave(0, base + 512);
    remote_range_left(0, base + 512, true);
    CHECK(!remote_range_find(base + 512, &range) && is_reserved(base));
    CHECK(remote_range_remove(base + 100, &range) && !is_reserved(base));
}

/* Ranges that have ended without the client's doing, at addresses that the worker gives again. */
static void test_given_again(void) {
    struct remote_range range;

    CHECK(add(base, 512, 1) && add(base + 512, 512, 2) && add(base + 1024, 3 * BLOCK, 3));
    CHECK(add(base + 600, 1000, 4));
    CHECK(remote_range_find(base, &range) && range.context == 1);
    CHECK(!remote_range_find(base + 599, &range) && !remote_range_find(base + 1600, &range));
    CHECK(remote_range_find(base + 1599, &range) && range.context == 4 && range.size == 1000);
    CHECK(is_reserved(base) && !is_reserved(base + BLOCK) && !is_reserved(base + 3 * BLOCK));
    CHECK(remote_range_remove(base, &range) && remote_range_remove(base + 600, &range));
    CHECK(!is_reserved(base));
}

static uint64_t state = 1;

static uint64_t draw(uint64_t below) {
    state = state * UINT64_C(6364136223846793005) + 1442695040888963407;
    return (state >> 33) % below;
}

#define GRAINS (BLOCKS * 16u)
#define GRAIN (BLOCK / 16)

/* The same as a plain list: who has each sixteenth of a block, in the order of their ranges. */
static void test_against_list(void) {
    static uint32_t owner[GRAINS];
    struct remote_range range;
    uint32_t next = 0;

    for (unsigned step = 0; step < 60000; step++) {
        unsigned first = (unsigned)draw(GRAINS);
        uint64_t start = base + first * GRAIN;
        bool there = owner[first] != 0;
        bool begins = there && (first == 0 || owner[first - 1] != owner[first]);
        if (draw(2)) {
            unsigned count = 1 + (unsigned)draw(draw(8) ? 4 : 60);
            count = first + count > GRAINS ? GRAINS - first : count;
            CHECK(add(start, count * GRAIN, 1));
            next++;
            for (unsigned i = first; i < first + count; i++) {
                uint32_t was = owner[i];
                for (unsigned k = 0; was && k < GRAINS; k++) {
                    owner[k] = owner[k] == was ? 0 : owner[k];
                }
                owner[i] = next;
            }
        } else {
            uint32_t was = owner[first];
            CHECK_EQUAL(remote_range_remove(start, &range), begins);
            for (unsigned i = first; begins && i < GRAINS && owner[i] == was; i++) {
                owner[i] = 0;
            }
        }
        unsigned place = (unsigned)draw(GRAINS), block = place / 16 * 16, used = 0;
        CHECK_EQUAL(remote_range_find(base + place * GRAIN + draw(GRAIN), &range),
                    owner[place] != 0);
        for (unsigned i = 0; i < 16; i++) {
            used += owner[block + i] != 0;
        }
        CHECK_EQUAL(is_reserved(base + place * GRAIN), used != 0);
    }
    for (unsigned i = 0; i < GRAINS; i++) {
        remote_range_remove(base + i * GRAIN, &range);
    }
    for (unsigned i = 0; i < BLOCKS; i++) {
        CHECK(!is_reserved(base + i * BLOCK));
    }
}

/* Threads that are given addresses which others have just freed, as a driver does it: the last one first. */
#define THREADS 4
#define PLACES 48u

static pthread_mutex_t giving = PTHREAD_MUTEX_INITIALIZER;
static uint64_t places[PLACES];
static unsigned place_count;

static pthread_barrier_t began, found;

static void *use(void *argument) {
    uint64_t held[8] = {0}, seed = *(uint64_t *)argument;

    /* The thread has its stack and its room for allocations before addresses are chosen that nobody has. */
    void *volatile room = malloc(100); /* a compiler leaves out what nobody looks at */
    free(room);
    pthread_barrier_wait(&began);
    pthread_barrier_wait(&found);
    for (unsigned i = 0; i < 20000; i++) {
        struct remote_range range;
        seed = seed * UINT64_C(6364136223846793005) + 1442695040888963407;
        uint64_t *at = &held[seed >> 40 & 7];
        if (*at) {
            CHECK(remote_range_find(*at + 5, &range) && range.start == *at);
            CHECK(remote_range_remove(*at, &range));
            pthread_mutex_lock(&giving);
            places[place_count++] = *at;
            pthread_mutex_unlock(&giving);
            *at = 0;
            continue;
        }
        pthread_mutex_lock(&giving);
        *at = places[--place_count];
        pthread_mutex_unlock(&giving);
        CHECK(add(*at, 700, 1 + (seed >> 50 & 3)));
    }
    for (unsigned i = 0; i < 8; i++) {
        struct remote_range range;
        CHECK(!held[i] || remote_range_remove(held[i], &range));
    }
    return NULL;
}

static void test_threads(void) {
    pthread_t threads[THREADS];
    uint64_t seeds[THREADS];

    CHECK(pthread_barrier_init(&began, NULL, THREADS + 1) == 0);
    CHECK(pthread_barrier_init(&found, NULL, THREADS + 1) == 0);
    for (unsigned i = 0; i < THREADS; i++) {
        seeds[i] = i + 1;
        CHECK(pthread_create(&threads[i], NULL, use, &seeds[i]) == 0);
    }
    pthread_barrier_wait(&began);
    find_base();
    for (unsigned i = 0; i < PLACES; i++) {
        places[i] = base + i * BLOCK / 4;
    }
    place_count = PLACES;
    pthread_barrier_wait(&found);
    for (unsigned i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
    }
}

/* So many ranges in a row neither take long nor run out of stack. */
static void test_many(void) {
    struct remote_range range;
    const unsigned count = 200000;

    for (unsigned i = 0; i < count; i++) {
        CHECK(add(base + i * 512u, 512, 1));
    }
    for (unsigned i = 0; i < count; i++) {
        CHECK(remote_range_find(base + i * 512u + 511, &range) && range.start == base + i * 512u);
    }
    remote_range_leave(1, 0);
    remote_range_left(1, 0, true);
    CHECK(!remote_range_find(base, &range) && !is_reserved(base));
}

int main(void) {
    find_base();
    test_taken();
    test_old_kernel();
    test_shared_blocks();
    test_elsewhere();
    test_leaving();
    test_given_again();
    test_against_list();
    test_many();
    test_threads();
    return 0;
}
