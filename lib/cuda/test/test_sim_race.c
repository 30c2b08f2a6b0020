/* Processes that fight for the last bytes: the tenant never holds more than its limit, and nothing
 * that would have fitted is refused. */
#define _GNU_SOURCE
#include "cuda/test/sim.h"

#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#define PROCESSES 8
#define ROUNDS 4000
#define LIVE 8

static struct setting s;

static uint32_t random_below(uint64_t *state, uint32_t bound) {
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)((*state >> 33) % bound);
}

/* Takes and gives what fits and does not fit, by all ways in turn. */
static void churn(uint64_t seed) {
    CUdeviceptr live[LIVE] = {0};
    for (int round = 0; round < ROUNDS; round++) {
        CUdeviceptr *p = &live[random_below(&seed, LIVE)];
        size_t bytes = 1 + random_below(&seed, 5u << 20);
        CUresult result = CUDA_SUCCESS;
        if (*p != 0) {
            result = CUDA(&s, cuMemFree_v2)(*p);
            *p = 0;
        } else if (round % 16 == 0) {
            result = CUDA(&s, cuMemAllocAsync)(p, bytes, NULL);
        } else {
            result = CUDA(&s, cuMemAlloc_v2)(p, bytes);
        }
        CHECK(result == CUDA_SUCCESS || result == CUDA_ERROR_OUT_OF_MEMORY);
    }
}

/* Holds half of what is left for it at most; all together never ask for more than the limit, so
 * that every refusal is false. */
static void stay_within(uint64_t seed, uint64_t most) {
    CUdeviceptr live[LIVE] = {0};
    size_t sizes[LIVE] = {0};
    uint64_t held = 0;
    for (int round = 0; round < ROUNDS; round++) {
        unsigned i = random_below(&seed, LIVE);
        size_t bytes = (1 + random_below(&seed, 4)) * (2 * MIB);
        if (live[i] != 0) {
            CHECK_EQUAL(CUDA(&s, cuMemFree_v2)(live[i]), CUDA_SUCCESS);
            live[i] = 0;
            held -= sizes[i];
        } else if (held + bytes <= most) {
            CHECK_EQUAL(CUDA(&s, cuMemAlloc_v2)(&live[i], bytes), CUDA_SUCCESS);
            sizes[i] = bytes;
            held += bytes;
        }
    }
}

#define MOST_OF_ONE (12 * MIB)
#define LIMIT (PROCESSES * (SIM_CONTEXT + MOST_OF_ONE))

/* All have their context before the first allocates: only then is there room for it. */
static void run_all(bool within) {
    pid_t pids[PROCESSES];
    int ready[2], go[2];
    char said;
    CHECK(pipe(ready) == 0 && pipe(go) == 0);
    for (unsigned i = 0; i < PROCESSES; i++) {
        pids[i] = fork();
        CHECK(pids[i] >= 0);
        if (pids[i] == 0) {
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            setting_open(&s);
            setting_context(&s);
            close(go[1]);
            CHECK_EQUAL(write(ready[1], "r", 1), 1);
            CHECK_EQUAL(read(go[0], &said, 1), 0);
            if (within) {
                stay_within(i + 1, MOST_OF_ONE);
            } else {
                churn(i + 1);
            }
            _exit(0);
        }
    }
    close(ready[1]);
    close(go[0]);
    for (unsigned i = 0; i < PROCESSES; i++) {
        CHECK_EQUAL(read(ready[0], &said, 1), 1);
    }
    close(ready[0]);
    close(go[1]);
    for (unsigned i = 0; i < PROCESSES; i++) {
        wait_exited(pids[i]);
    }
    dv_reap(s.share);
    CHECK_EQUAL(used_bytes(s.share, 0), 0);
    CHECK_EQUAL(sim_used(&s, 0), 0);
    CHECK(sim_peak(&s, 0) <= LIMIT);
}

int main(void) {
    sim_make_closed(&s, 1, LIMIT);
    CHECK_EQUAL(dv_share_open(s.tenant.directory, &s.share, NULL), DV_OK);
    run_all(true);
    run_all(false);
    return 0;
}
