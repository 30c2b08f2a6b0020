/* Processes race for a share's last bytes. A log kept beside the ledger judges it: at no moment is
 * more held than the limit, and whatever is refused did not fit at some moment of its call. */
#include "share/test/tenant.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define LIMIT (64 * MIB)
#define PROCESSES 8u
#define HELD_MAX 16u

/* Bytes held by all after each change. An amount is in it from before its settling until after its
 * release, so it is never less than what the ledger counts as used. */
struct log {
    pthread_mutex_t lock;
    uint64_t held, changes, room;
    uint64_t real; /* what a driver would have given out; never more than the limit */
    uint64_t after[];
};

struct outcome {
    uint64_t granted, refused, over_bytes, false_refusals;
};

static struct tenant tenant;
static struct log *book;
static uint64_t rounds = 6000;

static void change_held(int64_t bytes) {
    pthread_mutex_lock(&book->lock);
    book->held += (uint64_t)bytes;
    CHECK(book->changes < book->room);
    book->after[book->changes] = book->held;
    __atomic_store_n(&book->changes, book->changes + 1, __ATOMIC_RELEASE);
    pthread_mutex_unlock(&book->lock);
}

/* The most that was held since the log had so many entries. */
static uint64_t most_held(uint64_t since) {
    uint64_t most = 0, end = load64(&book->changes);
    for (uint64_t i = since > 0 ? since - 1 : 0; i < end; i++) {
        most = book->after[i] > most ? book->after[i] : most;
    }
    return most;
}

static uint64_t random_bytes(unsigned *seed) {
    uint64_t scale = 1ull << (9 + (unsigned)rand_r(seed) % 15); /* 512 B to 8 MiB */
    return scale + (uint64_t)rand_r(seed) % scale;
}

static uint64_t rounded(uint64_t bytes) {
    return (bytes + DV_PAGE_UNIT - 1) / DV_PAGE_UNIT * DV_PAGE_UNIT;
}

/* One allocation: what is charged is sometimes less than was reserved, sometimes nothing. */
static uint64_t allocate(dv_share *share, unsigned *seed, struct outcome *outcome) {
    uint64_t wanted = rounded(random_bytes(seed)), since = load64(&book->changes);
    if (dv_reserve(share, 0, wanted) != DV_OK) {
        outcome->refused++;
        outcome->false_refusals += most_held(since) + wanted <= LIMIT;
        return 0;
    }
    unsigned kind = (unsigned)rand_r(seed) % 8;
    uint64_t taken = kind == 0 ? 0 : kind == 1 ? rounded(wanted / 2) : wanted;
    change_held((int64_t)taken);
    uint64_t real = __atomic_add_fetch(&book->real, taken, __ATOMIC_SEQ_CST);
    outcome->over_bytes += real > LIMIT ? real - LIMIT : 0;
    if (kind == 2) {
        usleep(200); /* a driver call that takes its time */
    }
    dv_settle(share, 0, wanted, taken);
    outcome->granted++;
    return taken;
}

static void give_back(dv_share *share, uint64_t bytes) {
    bool announced = bytes / DV_PAGE_UNIT % 2 == 0;
    if (announced) {
        dv_retire(share, 0, bytes);
    }
    __atomic_sub_fetch(&book->real, bytes, __ATOMIC_SEQ_CST);
    if (announced) {
        dv_settle(share, 0, bytes, 0);
    } else {
        dv_release(share, 0, bytes);
    }
    change_held(-(int64_t)bytes);
}

static void run(struct outcome *outcome, unsigned seed) {
    dv_share *share = tenant_open(&tenant);
    uint64_t held[HELD_MAX] = {0};
    for (uint64_t i = 0; i < rounds; i++) {
        unsigned place = (unsigned)rand_r(&seed) % HELD_MAX;
        if (held[place] == 0) {
            held[place] = allocate(share, &seed, outcome);
        } else {
            give_back(share, held[place]);
            held[place] = 0;
        }
        dv_usage_t usage;
        dv_usage(share, 0, &usage);
        if (usage.used + usage.pending > LIMIT) {
            outcome->over_bytes += usage.used + usage.pending - LIMIT;
        }
    }
    for (unsigned place = 0; place < HELD_MAX; place++) {
        give_back(share, held[place]);
    }
}

static void *map_shared(size_t size) {
    void *map = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(map != MAP_FAILED);
    return map;
}

static void set_up(void) {
    tenant_make(&tenant, 1, LIMIT);
    uint64_t room = PROCESSES * (2 * rounds + HELD_MAX);
    book = map_shared(sizeof *book + room * sizeof book->after[0]);
    book->room = room;
    pthread_mutexattr_t attributes;
    pthread_mutexattr_init(&attributes);
    pthread_mutexattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
    pthread_mutex_init(&book->lock, &attributes);
}

int main(int argc, char **argv) {
    rounds = argc > 1 ? strtoull(argv[1], NULL, 10) : rounds;
    set_up();
    struct outcome *outcomes = map_shared(PROCESSES * sizeof *outcomes), sum = {0};
    pid_t children[PROCESSES];
    for (unsigned i = 0; i < PROCESSES; i++) {
        children[i] = fork();
        CHECK(children[i] >= 0);
        if (children[i] == 0) {
            die_with_parent();
            run(&outcomes[i], i + 1);
            _exit(0);
        }
    }
    for (unsigned i = 0; i < PROCESSES; i++) {
        wait_exited(children[i]);
        sum.granted += outcomes[i].granted;
        sum.refused += outcomes[i].refused;
        sum.over_bytes += outcomes[i].over_bytes;
        sum.false_refusals += outcomes[i].false_refusals;
    }
    dv_share *share = tenant_open(&tenant);
    CHECK_EQUAL(used_bytes(share, 0), 0);
    CHECK_EQUAL(pending_bytes(share, 0), 0);
    printf(
        "{\"granted\": %llu, \"refused\": %llu, \"over_bytes\": %llu, \"false_refusals\": %llu}\n",
        (unsigned long long)sum.granted, (unsigned long long)sum.refused,
        (unsigned long long)sum.over_bytes, (unsigned long long)sum.false_refusals);
    CHECK(sum.granted > 0 && sum.refused > 0); /* else nothing raced */
    return sum.over_bytes + sum.false_refusals != 0;
}
