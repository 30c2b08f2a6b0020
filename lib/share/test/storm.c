/* Processes that charge, export and give back at full speed are killed at any moment, while the
 * others go on. Prints the result as JSON; an argument is the number of kills. */
#include "share/test/tenant.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define LIMIT (64 * MIB)
#define PROCESSES 4u
#define KEYS 3u
#define BATCH 16u
#define HANG_MS 300000u

static struct tenant tenant;
static unsigned seed = 1;

struct counts {
    uint64_t kills, lost_bytes, gained_bytes, hangs;
};

static unsigned choose(unsigned *state, unsigned below) {
    return (unsigned)rand_r(state) % below;
}

static void name_key(uint8_t key[DV_PAGE_EXPORT_KEY_BYTES], pid_t owner, unsigned number) {
    memset(key, 0, DV_PAGE_EXPORT_KEY_BYTES);
    memcpy(key, &owner, sizeof owner);
    key[sizeof owner] = (uint8_t)number;
}

/* One step of a process; the other keys are those of processes with neighbouring pids. */
static void step(dv_share *share, unsigned *state) {
    uint8_t key[DV_PAGE_EXPORT_KEY_BYTES];
    uint64_t bytes = 512ull << choose(state, 12);
    name_key(key, getpid() + (pid_t)choose(state, 3) - 1, choose(state, KEYS));
    switch (choose(state, 8)) {
    case 0:
        dv_overhead(share, 0, bytes);
        break;
    case 1:
        dv_export_publish(share, 0, key, bytes);
        break;
    case 2:
        dv_export_hold(share, key);
        break;
    case 3:
        dv_export_drop(share, key);
        break;
    case 4:
        dv_retire(share, 0, bytes);
        dv_settle(share, 0, bytes, bytes / 4);
        break;
    case 5:
        dv_release(share, 0, bytes);
        break;
    default:
        if (dv_reserve(share, 0, bytes) == DV_OK) {
            dv_settle(share, 0, bytes, bytes / 2);
        }
        break;
    }
}

static void work(void *arg) {
    unsigned state = *(unsigned *)arg;
    dv_share *shares[2] = {tenant_open(&tenant), tenant_open(&tenant)};
    for (;;) {
        step(shares[choose(&state, 2)], &state);
    }
}

static pid_t start(void) {
    seed++;
    return spawn(work, &seed);
}

static void stop(pid_t child) {
    CHECK(kill(child, SIGKILL) == 0);
    wait_killed(child);
}

/* In a process of its own, because it must come to an end. */
static void add_up(void *arg) {
    uint64_t *left = arg;
    dv_share *share = tenant_open(&tenant);
    dv_reap(share);
    check_sums(share);
    left[0] = used_bytes(share, 0) + pending_bytes(share, 0);
    left[1] = 1;
}

static void judge(uint64_t *left, struct counts *counts) {
    left[0] = left[1] = 0;
    pid_t child = spawn(add_up, left);
    uint64_t end = os_now_ns() + HANG_MS * 1000000ull;
    int status;
    while (waitpid(child, &status, WNOHANG) == 0) {
        if (os_now_ns() > end) {
            counts->hangs++;
            stop(child);
            return;
        }
        usleep(50);
    }
    counts->lost_bytes += left[0];
    counts->gained_bytes += left[1] == 0; /* the sums did not agree */
}

int main(int argc, char **argv) {
    uint64_t wanted = argc > 1 ? strtoull(argv[1], NULL, 10) : 800;
    struct counts counts = {.kills = 0};
    uint64_t *left = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(left != MAP_FAILED);
    tenant_make(&tenant, 1, LIMIT);
    while (counts.kills < wanted) {
        pid_t children[PROCESSES];
        for (unsigned i = 0; i < PROCESSES; i++) {
            children[i] = start();
        }
        for (unsigned i = 0; i < BATCH; i++) {
            unsigned victim = choose(&seed, PROCESSES);
            usleep(200 + choose(&seed, 2000));
            stop(children[victim]);
            children[victim] = start();
        }
        for (unsigned i = 0; i < PROCESSES; i++) {
            stop(children[i]);
        }
        counts.kills += BATCH + PROCESSES;
        judge(left, &counts);
    }
    printf("{\"kills\": %llu, \"lost_bytes\": %llu, \"gained_bytes\": %llu, \"hangs\": %llu}\n",
           (unsigned long long)counts.kills, (unsigned long long)counts.lost_bytes,
           (unsigned long long)counts.gained_bytes, (unsigned long long)counts.hangs);
    return counts.lost_bytes + counts.gained_bytes + counts.hangs != 0;
}
