/* Several processes ask for checkpoints of the same ones at once, and are killed in the middle of it. Whatever they did, who was
 * not lost goes on as before. */
#define _GNU_SOURCE
#include "simgpu/cuda/test/controlled.h"

#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <unistd.h>

#define TARGETS 3
#define ASKERS 120 /* in all, four at a time */
#define AT_ONCE 4

static struct controlled targets[TARGETS];

/* What askers have done so far, in memory that all share. */
static struct tally {
    uint32_t requests, done;
} *tally;

static void describe(sim_machine *machine) {
    machine->cuda_version = 12080;
}

static uint32_t next(uint32_t *seed) {
    *seed = *seed * 1664525u + 1013904223u;
    return *seed >> 16;
}

static CUresult request(int pid, uint32_t which) {
    CUcheckpointLockArgs args = {.timeoutMs = 1 + which % 3};

    switch (which % 4) {
    case 0:
        return cuCheckpointProcessLock(pid, &args);
    case 1:
        return cuCheckpointProcessCheckpoint(pid, NULL);
    case 2:
        return cuCheckpointProcessRestore(pid, NULL);
    default:
        return cuCheckpointProcessUnlock(pid, NULL);
    }
}

/* All fit at once, so no request may lose a process. */
static void harass(int channel) {
    uint32_t seed;

    prctl(PR_SET_PDEATHSIG, SIGKILL);
    CHECK_EQUAL(read(channel, &seed, sizeof seed), (ssize_t)sizeof seed);
    OK(cuInit(0));
    for (;;) {
        CUresult result = request(targets[next(&seed) % TARGETS].pid, next(&seed));
        CHECK(result == CUDA_SUCCESS || result == CUDA_ERROR_ILLEGAL_STATE ||
              result == CUDA_ERROR_NOT_READY);
        __atomic_add_fetch(&tally->requests, 1, __ATOMIC_RELAXED);
        __atomic_add_fetch(&tally->done, result == CUDA_SUCCESS, __ATOMIC_RELAXED);
    }
}

/* From whatever state back to running; none of them failed. */
static void bring_back(int pid) {
    CUprocessState state;

    /* Whatever it answers: it comes after the request that a dead asker left. */
    cuCheckpointProcessUnlock(pid, NULL);
    OK(cuCheckpointProcessGetState(pid, &state));
    CHECK(state != CU_PROCESS_STATE_FAILED);
    if (state == CU_PROCESS_STATE_CHECKPOINTED) {
        OK(cuCheckpointProcessRestore(pid, NULL));
    }
    if (state != CU_PROCESS_STATE_RUNNING) {
        OK(cuCheckpointProcessUnlock(pid, NULL));
    }
}

static void check_targets(unsigned round) {
    for (int i = 0; i < TARGETS; i++) {
        controlled_say(&targets[i], TELL_LOOK);
    }
    for (int i = 0; i < TARGETS; i++) {
        bring_back(targets[i].pid);
        controlled_hear(&targets[i], TELL_LOOK);
        if (round % 4 == 0) {
            controlled_tell(&targets[i], TELL_FILL);
        }
    }
}

int main(void) {
    static struct controlled askers[ASKERS];
    sim_machine machine;

    setting_describe(&machine);
    describe(&machine);
    setting_make(&machine);
    tally = mmap(NULL, sizeof *tally, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(tally != MAP_FAILED);
    for (int i = 0; i < TARGETS; i++) {
        targets[i] = controlled_fork(controlled_live);
    }
    for (int i = 0; i < ASKERS; i++) {
        askers[i] = controlled_fork(harass);
    }
    OK(cuInit(0));
    for (int i = 0; i < TARGETS; i++) {
        controlled_tell(&targets[i], TELL_BEGIN);
    }
    for (uint32_t at = 0; at < ASKERS; at += AT_ONCE) {
        uint32_t before = __atomic_load_n(&tally->requests, __ATOMIC_RELAXED);
        for (uint32_t i = at; i < at + AT_ONCE; i++) {
            CHECK_EQUAL(write(askers[i].channel, &i, sizeof i), (ssize_t)sizeof i);
        }
        /* Each round is killed after another number of requests, wherever they are then. */
        EVENTUALLY(__atomic_load_n(&tally->requests, __ATOMIC_RELAXED) > before + at % 13);
        for (uint32_t i = at; i < at + AT_ONCE; i++) {
            controlled_kill(&askers[i]);
        }
        check_targets(at / AT_ONCE);
    }
    printf("%u requests, %u done\n", tally->requests, tally->done);
    CHECK(tally->done > ASKERS / AT_ONCE);
    for (int i = 0; i < TARGETS; i++) {
        controlled_kill(&targets[i]);
    }
    return 0;
}
