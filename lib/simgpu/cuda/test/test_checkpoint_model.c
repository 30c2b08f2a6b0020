/* Checkpoints against a model: random requests to several processes that do not all fit, kills in every state, and every byte
 * looked at again and again. */
#define _GNU_SOURCE
#include "simgpu/cuda/test/controlled.h"

#include <stdlib.h>
#include <string.h>

#define SLOTS 6
#define BIRTHS 60 /* processes in all */
#define STEPS 1500
#define SUSPENSIONS 300 /* at least so many come back, or as many as the argument says */

/* A process as the model has it. */
static struct slot {
    struct controlled c;
    bool there;
    CUprocessState state;
    char waits_for; /* what it was told while it was locked, or 0 */
} slots[SLOTS];

static struct controlled fresh[BIRTHS];
static int born;
static uint64_t each; /* bytes of one process on GPU 0 */
static unsigned suspensions, lost, kills[4];

static void describe(sim_machine *machine) {
    machine->cuda_version = 12080;
    /* Room for four of the six. */
    machine->gpus[0].memory_bytes = GPU_RESERVED + 232 * MIB;
    machine->gpus[0].context_bytes = 4 * MIB;
}

/* xorshift64*: the same at each run. */
static uint64_t seed = 88172645463325252u;
static uint32_t draw(uint32_t below) {
    seed ^= seed >> 12;
    seed ^= seed << 25;
    seed ^= seed >> 27;
    return (uint32_t)((seed * UINT64_C(2685821657736338717)) >> 33) % below;
}

static uint64_t room(void) {
    return sg_driver.machine->gpus[0].memory_bytes - GPU_RESERVED;
}

static bool on_gpu(const struct slot *s) {
    return s->there && s->state != CU_PROCESS_STATE_CHECKPOINTED &&
           s->state != CU_PROCESS_STATE_FAILED;
}

static uint64_t expected(void) {
    uint64_t bytes = 0;

    for (int i = 0; i < SLOTS; i++) {
        bytes += on_gpu(&slots[i]) ? each : 0;
    }
    return bytes;
}

/* What each request answers and leads to. */
static CUresult model_lock(struct slot *s) {
    if (s->state != CU_PROCESS_STATE_RUNNING) {
        return CUDA_ERROR_ILLEGAL_STATE;
    }
    s->state = CU_PROCESS_STATE_LOCKED;
    return CUDA_SUCCESS;
}

static CUresult model_checkpoint(struct slot *s) {
    if (s->state != CU_PROCESS_STATE_LOCKED) {
        return CUDA_ERROR_ILLEGAL_STATE;
    }
    s->state = CU_PROCESS_STATE_CHECKPOINTED;
    return CUDA_SUCCESS;
}

static CUresult model_restore(struct slot *s) {
    if (s->state == CU_PROCESS_STATE_FAILED) {
        return CUDA_ERROR_OPERATING_SYSTEM;
    }
    if (s->state != CU_PROCESS_STATE_CHECKPOINTED) {
        return CUDA_ERROR_ILLEGAL_STATE;
    }
    if (expected() + each > room()) {
        s->state = CU_PROCESS_STATE_FAILED;
        lost++;
        return CUDA_ERROR_OPERATING_SYSTEM;
    }
    s->state = CU_PROCESS_STATE_LOCKED;
    suspensions++;
    return CUDA_SUCCESS;
}

static CUresult model_unlock(struct slot *s) {
    if (s->state != CU_PROCESS_STATE_LOCKED) {
        return CUDA_ERROR_ILLEGAL_STATE;
    }
    s->state = CU_PROCESS_STATE_RUNNING;
    return CUDA_SUCCESS;
}

static void check_state(const struct slot *s) {
    CUprocessState state;

    OK(cuCheckpointProcessGetState(s->c.pid, &state));
    CHECK_EQUAL(state, s->state);
    CHECK_EQUAL(gpu_used(), expected());
}

static void bear(struct slot *s) {
    if (born == BIRTHS || expected() + each > room()) {
        return;
    }
    *s = (struct slot){.c = fresh[born++], .there = true};
    controlled_tell(&s->c, TELL_BEGIN);
    if (each == 0) {
        each = gpu_used();
    }
}

static void end(struct slot *s) {
    kills[s->state]++;
    controlled_kill(&s->c);
    s->there = false;
    CHECK_EQUAL(gpu_used(), expected());
}

/* Has a process look through its memory, or fill it anew. One that is locked does so when it is unlocked. */
static void use(struct slot *s, char word) {
    if (s->waits_for) {
        return;
    }
    controlled_say(&s->c, word);
    if (s->state == CU_PROCESS_STATE_RUNNING) {
        controlled_hear(&s->c, word);
    } else {
        s->waits_for = word;
    }
}

static void hear_late(struct slot *s) {
    if (s->waits_for && s->state == CU_PROCESS_STATE_RUNNING) {
        controlled_hear(&s->c, s->waits_for);
        s->waits_for = 0;
    } else if (s->waits_for) {
        CHECK(controlled_silent(&s->c));
    }
}

/* A request that would lose the process is drawn as seldom as a kill. */
static bool loses(const struct slot *s) {
    return s->state == CU_PROCESS_STATE_CHECKPOINTED && expected() + each > room();
}

static void request(struct slot *s, uint32_t which) {
    int pid = s->c.pid;

    switch (which) {
    case 0:
        CHECK_EQUAL(cuCheckpointProcessLock(pid, NULL), model_lock(s));
        break;
    case 1:
        CHECK_EQUAL(cuCheckpointProcessCheckpoint(pid, NULL), model_checkpoint(s));
        break;
    case 2:
        if (!loses(s) || draw(10) == 0) {
            CHECK_EQUAL(cuCheckpointProcessRestore(pid, NULL), model_restore(s));
        }
        break;
    case 3:
        CHECK_EQUAL(cuCheckpointProcessUnlock(pid, NULL), model_unlock(s));
        break;
    default: /* the next one that is legal */
        if (!loses(s)) {
            request(s, s->state == CU_PROCESS_STATE_LOCKED    ? 1 + 2 * draw(2)
                       : s->state == CU_PROCESS_STATE_RUNNING ? 0
                                                              : 2);
        }
    }
}

static void step(void) {
    struct slot *s = &slots[draw(SLOTS)];
    uint32_t what = draw(16);

    if (!s->there) {
        bear(s);
        return;
    }
    if (what < 10) {
        request(s, what);
    } else if (what < 13) {
        use(s, TELL_LOOK);
    } else if (what < 15) {
        use(s, TELL_FILL);
    } else if (draw(24) == 0 || s->state == CU_PROCESS_STATE_FAILED) {
        end(s);
        return;
    }
    hear_late(s);
    check_state(s);
}

int main(int count, char **words) {
    unsigned least = count > 1 ? (unsigned)atoi(words[1]) : SUSPENSIONS;
    sim_machine machine;

    setting_describe(&machine);
    describe(&machine);
    setting_make(&machine);
    for (int i = 0; i < BIRTHS; i++) {
        fresh[i] = controlled_fork(controlled_live);
    }
    OK(cuInit(0));
    for (int i = 0; i < STEPS || suspensions < least; i++) {
        step();
    }
    for (int i = 0; i < SLOTS; i++) {
        if (slots[i].there) {
            end(&slots[i]);
        }
    }
    CHECK_EQUAL(gpu_used(), 0);
    printf(
        "%u suspensions, %d processes, killed %u running, %u locked, %u checkpointed, %u failed\n",
        suspensions, born, kills[0], kills[1], kills[2], kills[3]);
    CHECK(kills[0] && kills[1] && kills[2] && kills[3] && lost);
    return 0;
}
