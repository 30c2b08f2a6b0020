/* bench_link: how long a round trip between two processes takes, how long a put, and how long until a side that sleeps
 * hears that the other was killed. */
#define _GNU_SOURCE
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

#include "remote/test/sides.h"
#include "test/check.h"

#define ROUNDS 100000
#define DEATHS 100

static unsigned char taken[REMOTE_RECORD_BYTES];
static bool sleeps, apart;

/* A frame of 64 bytes, of call 1 if it is to be answered. */
struct small {
    struct remote_head head;
    uint64_t words[4];
};

static int compare(const void *a, const void *b) {
    int64_t left = *(const int64_t *)a, right = *(const int64_t *)b;

    return left < right ? -1 : left > right;
}

/* Without letting others in, a side sleeps at once; `apart`: each side stays on one core. */
static void set_up(struct remote_link *link, size_t core) {
    cpu_set_t one;

    if (sleeps && link->kind == REMOTE_LINK_RINGS) {
        link->yields = 0;
    }
    CPU_ZERO(&one);
    CPU_SET(core, &one);
    if (apart && sched_setaffinity(0, sizeof one, &one) != 0) {
        perror("bench_link: a core for each side");
    }
}

static int answer(struct remote_link *link) {
    struct small small;
    size_t size;

    set_up(link, 1);
    while (remote_link_take(link, taken, &size, -1) == REMOTE_TAKEN) {
        memcpy(&small, taken, sizeof small);
        if (small.head.call) {
            CHECK(remote_link_put(link, &small, sizeof small, NULL, 0));
            remote_link_flush(link);
        }
    }
    return 0;
}

static void ask(struct remote_link *link) {
    const struct small small = {.head = {.size = sizeof small, .call = 1}};
    size_t size;

    CHECK(remote_link_put(link, &small, sizeof small, NULL, 0));
    remote_link_flush(link);
    CHECK_EQUAL(remote_link_take(link, taken, &size, -1), REMOTE_TAKEN);
}

static double microseconds(const int64_t *sorted, int count, int thousandths) {
    return (double)sorted[(int64_t)count * thousandths / 1000] / 1e3;
}

/* Nanoseconds for each of many frames that nobody answers, with the waits for room. */
static int bench_put(struct remote_link *link, bool flush) {
    const struct small small = {.head = {.size = sizeof small}};
    int64_t begun = remote_now();

    for (int i = 0; i < 10 * ROUNDS; i++) {
        CHECK(remote_link_put(link, &small, sizeof small, NULL, 0));
        if (flush) {
            remote_link_flush(link);
        }
    }
    int64_t span = remote_now() - begun;
    ask(link);
    return (int)(span / (10 * ROUNDS));
}

static void bench(const char *name, enum remote_link_kind kind) {
    static int64_t spans[ROUNDS];
    cpu_set_t before;
    pid_t process;

    CHECK(sched_getaffinity(0, sizeof before, &before) == 0);
    struct remote_link *link = sides_start(kind, answer, &process);
    set_up(link, 0);
    for (int i = 0; i < ROUNDS; i++) {
        int64_t begun = remote_now();
        ask(link);
        spans[i] = remote_now() - begun;
    }
    qsort(spans, ROUNDS, sizeof spans[0], compare);
    printf("%-20s round trip: p50 %5.2f us, p99 %6.2f us, p99.9 %7.2f us", name,
           microseconds(spans, ROUNDS, 500), microseconds(spans, ROUNDS, 990),
           microseconds(spans, ROUNDS, 999));
    int put = bench_put(link, false), flushed = bench_put(link, true);
    printf("; put of 64 bytes: %3d ns, flushed each: %3d ns\n", put, flushed);
    remote_link_free(link);
    CHECK_EQUAL(sides_wait(process), 0);
    CHECK(sched_setaffinity(0, sizeof before, &before) == 0);
}

/* Kills itself; when, its memory says. */
static int die(struct remote_link *link) {
    size_t size;
    int64_t now;

    usleep(20000); /* meanwhile the other side falls asleep */
    now = remote_now();
    memcpy(remote_link_area(link, &size), &now, sizeof now);
    return raise(SIGKILL);
}

static void bench_death(void) {
    int64_t spans[DEATHS], when;
    size_t size;
    pid_t process;

    for (int i = 0; i < DEATHS; i++) {
        struct remote_link *link = sides_start(REMOTE_LINK_RINGS, die, &process);
        CHECK_EQUAL(remote_link_take(link, taken, &size, -1), REMOTE_ENDED);
        memcpy(&when, remote_link_area(link, &size), sizeof when);
        spans[i] = remote_now() - when;
        remote_link_free(link);
        sides_wait(process);
    }
    qsort(spans, DEATHS, sizeof spans[0], compare);
    printf("%-22s heard: p50 %.2f us, longest %.2f us\n", "death of a worker",
           microseconds(spans, DEATHS, 500), (double)spans[DEATHS - 1] / 1e3);
}

int main(void) {
    bench("rings", REMOTE_LINK_RINGS);
    apart = true;
    bench("rings, a core each", REMOTE_LINK_RINGS);
    sleeps = true;
    bench("the same, asleep", REMOTE_LINK_RINGS);
    apart = false;
    bench("rings, asleep", REMOTE_LINK_RINGS);
    bench("stream", REMOTE_LINK_STREAM);
    bench_death();
    return 0;
}
