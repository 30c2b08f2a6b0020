/* Checkpoints of processes: by themselves, and by others. */
#define _GNU_SOURCE
#include "simgpu/cuda/test/controlled.h"

#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#define PROCESSES 14

static struct controlled fresh[PROCESSES];
static int begun;

static void describe(sim_machine *machine) {
    machine->cuda_version = 12080;
    machine->gpus[0].code_bytes = 1 << 20;
}

static CUprocessState state_of(int pid) {
    CUprocessState state;

    OK(cuCheckpointProcessGetState(pid, &state));
    return state;
}

/* Contexts of others on GPU 0. */
static unsigned contexts(void) {
    struct sg_instance *in = &sg_driver.instance;
    unsigned n = 0;

    sg_state_lock(in);
    for (uint32_t i = 0; (i = sg_next_client(in, i)) < SG_CLIENTS_MAX; i++) {
        n += i == in->id ? 0 : in->state->clients[i].contexts[0];
    }
    sg_state_unlock(in);
    return n;
}

static uint64_t host_bytes(void) {
    return sg_driver.instance.state->pages.host_chunks * BLOCK;
}

/* ---- by itself ---- */

static void check_itself(void) {
    CUdeviceptr others[8];
    struct memory m;
    int self = getpid(), thread = 0;

    memory_allocate(&m);
    memory_fill(&m, 7);
    uint64_t before = gpu_used();
    CHECK_EQUAL(before, cuda_true_all());
    OK(cuCheckpointProcessGetRestoreThreadId(self, &thread));
    CHECK(thread != self && thread > 0);
    CHECK_EQUAL(syscall(SYS_tgkill, self, thread, 0), 0);
    CHECK_EQUAL(state_of(self), CU_PROCESS_STATE_RUNNING);
    FAILS(cuCheckpointProcessCheckpoint(self, NULL), CUDA_ERROR_ILLEGAL_STATE);
    FAILS(cuCheckpointProcessRestore(self, NULL), CUDA_ERROR_ILLEGAL_STATE);
    FAILS(cuCheckpointProcessUnlock(self, NULL), CUDA_ERROR_ILLEGAL_STATE);
    OK(cuCheckpointProcessLock(self, NULL));
    CHECK_EQUAL(state_of(self), CU_PROCESS_STATE_LOCKED);
    CHECK_EQUAL(gpu_used(), before);
    FAILS(cuCheckpointProcessLock(self, NULL), CUDA_ERROR_ILLEGAL_STATE);
    FAILS(cuCheckpointProcessRestore(self, NULL), CUDA_ERROR_ILLEGAL_STATE);
    OK(cuCheckpointProcessCheckpoint(self, NULL));
    CHECK_EQUAL(state_of(self), CU_PROCESS_STATE_CHECKPOINTED);
    CHECK_EQUAL(gpu_used(), 0);
    FAILS(cuCheckpointProcessLock(self, NULL), CUDA_ERROR_ILLEGAL_STATE);
    FAILS(cuCheckpointProcessCheckpoint(self, NULL), CUDA_ERROR_ILLEGAL_STATE);
    FAILS(cuCheckpointProcessUnlock(self, NULL), CUDA_ERROR_ILLEGAL_STATE);
    /* Somebody else has the blocks meanwhile. */
    pid_t other = setting_process("other", 0, 11, 0);
    OK(cuCheckpointProcessRestore(self, NULL));
    CHECK_EQUAL(state_of(self), CU_PROCESS_STATE_LOCKED);
    CHECK_EQUAL(gpu_used(), before + 11 * BLOCK);
    OK(cuCheckpointProcessUnlock(self, NULL));
    CHECK_EQUAL(memory_wrong(&m, 7), 0);
    for (size_t i = 0; i < 8; i++) {
        OK(cuMemAlloc_v2(&others[i], BLOCK + 1));
        OK(cuMemsetD8_v2(others[i], 99, BLOCK + 1));
    }
    CHECK_EQUAL(memory_wrong(&m, 7), 0);
    memory_fill(&m, 50);
    for (size_t i = 0; i < 8; i++) {
        CHECK_EQUAL(bytes_wrong(others[i], BLOCK + 1, 99), 0);
        OK(cuMemFree_v2(others[i]));
    }
    memory_free(&m);
    CHECK_EQUAL(gpu_used(), 4 * MIB + 11 * BLOCK);
    OK(cuDevicePrimaryCtxRelease_v2(0));
    CHECK_EQUAL(gpu_used(), 11 * BLOCK);
    setting_kill(other);
    CHECK_EQUAL(gpu_used(), 0);
}

/* ---- by others ---- */

static struct controlled start(void) {
    struct controlled c;

    CHECK(begun < PROCESSES);
    c = fresh[begun++];
    controlled_tell(&c, TELL_BEGIN);
    return c;
}

static void check_other(const struct controlled *c) {
    uint64_t before = gpu_used();

    CHECK(before > 0);
    CHECK_EQUAL(state_of(c->pid), CU_PROCESS_STATE_RUNNING);
    OK(cuCheckpointProcessLock(c->pid, NULL));
    controlled_say(c, TELL_LOOK);
    EVENTUALLY(controlled_waits(c));
    CHECK(controlled_silent(c));
    OK(cuCheckpointProcessCheckpoint(c->pid, NULL));
    CHECK_EQUAL(state_of(c->pid), CU_PROCESS_STATE_CHECKPOINTED);
    CHECK_EQUAL(gpu_used(), 0);
    CHECK_EQUAL(contexts(), 0); /* with no bytes either, NVML lists nobody */
    CHECK_EQUAL(host_bytes(), before);
    CHECK(controlled_silent(c));
    OK(cuCheckpointProcessRestore(c->pid, NULL));
    CHECK_EQUAL(gpu_used(), before);
    CHECK_EQUAL(contexts(), 1);
    CHECK_EQUAL(host_bytes(), 0);
    CHECK(controlled_waits(c));
    CHECK(controlled_silent(c));
    OK(cuCheckpointProcessUnlock(c->pid, NULL));
    controlled_hear(c, TELL_LOOK);
    CHECK_EQUAL(state_of(c->pid), CU_PROCESS_STATE_RUNNING);
    CHECK_EQUAL(gpu_used(), before);
}

/* A call that does not end keeps the process from being locked, and goes on. */
static void check_timeout(void) {
    CUcheckpointLockArgs args = {.timeoutMs = 20};
    struct controlled c = start();

    controlled_say(&c, TELL_STUCK);
    EVENTUALLY(cuCheckpointProcessLock(c.pid, &args) == CUDA_ERROR_NOT_READY ||
               cuCheckpointProcessUnlock(c.pid, NULL) != CUDA_SUCCESS);
    CHECK_EQUAL(state_of(c.pid), CU_PROCESS_STATE_RUNNING);
    FAILS(cuCheckpointProcessLock(c.pid, &args), CUDA_ERROR_NOT_READY);
    FAILS(cuCheckpointProcessCheckpoint(c.pid, NULL), CUDA_ERROR_ILLEGAL_STATE);
    CHECK(controlled_silent(&c));
    args.reserved0 = 1;
    FAILS(cuCheckpointProcessLock(c.pid, &args), CUDA_ERROR_INVALID_VALUE);
    controlled_kill(&c);
}

/* Work that was given is done before the memory leaves. */
static void check_work(const struct controlled *c) {
    controlled_tell(c, TELL_WORK);
    OK(cuCheckpointProcessLock(c->pid, NULL));
    OK(cuCheckpointProcessCheckpoint(c->pid, NULL));
    OK(cuCheckpointProcessRestore(c->pid, NULL));
    OK(cuCheckpointProcessUnlock(c->pid, NULL));
    controlled_tell(c, TELL_LOOK);
}

/* What the driver refuses is harmful: the process is never the same. */
static void check_refused(char what) {
    struct controlled c = start();

    controlled_tell(&c, what);
    OK(cuCheckpointProcessLock(c.pid, NULL));
    FAILS(cuCheckpointProcessCheckpoint(c.pid, NULL), CUDA_ERROR_NOT_SUPPORTED);
    CHECK_EQUAL(state_of(c.pid), CU_PROCESS_STATE_FAILED);
    FAILS(cuCheckpointProcessUnlock(c.pid, NULL), CUDA_ERROR_ILLEGAL_STATE);
    FAILS(cuCheckpointProcessLock(c.pid, NULL), CUDA_ERROR_ILLEGAL_STATE);
    FAILS(cuCheckpointProcessCheckpoint(c.pid, NULL), CUDA_ERROR_ILLEGAL_STATE);
    FAILS(cuCheckpointProcessRestore(c.pid, NULL), CUDA_ERROR_OPERATING_SYSTEM);
    controlled_kill(&c);
    CHECK_EQUAL(gpu_used(), 0);
}

static void check_no_room(void) {
    struct controlled c = start();
    uint32_t room = (uint32_t)((GPU_BYTES - GPU_RESERVED) / BLOCK);

    OK(cuCheckpointProcessLock(c.pid, NULL));
    OK(cuCheckpointProcessCheckpoint(c.pid, NULL));
    pid_t other = setting_process("other", 0, room, 0);
    FAILS(cuCheckpointProcessRestore(c.pid, NULL), CUDA_ERROR_OPERATING_SYSTEM);
    setting_kill(other);
    CHECK_EQUAL(gpu_used(), 0);
    FAILS(cuCheckpointProcessRestore(c.pid, NULL), CUDA_ERROR_OPERATING_SYSTEM);
    CHECK_EQUAL(state_of(c.pid), CU_PROCESS_STATE_FAILED);
    controlled_kill(&c);
}

/* One that host memory has no room for loses nothing, and is lost. */
static void check_no_host_memory(void) {
    struct sg_instance *in = &sg_driver.instance;
    struct controlled a = start();
    uint64_t each = gpu_used();
    struct controlled b = start();

    in->state->pages.costs.host_bytes = each + each / 2;
    OK(cuCheckpointProcessLock(a.pid, NULL));
    OK(cuCheckpointProcessCheckpoint(a.pid, NULL));
    OK(cuCheckpointProcessLock(b.pid, NULL));
    FAILS(cuCheckpointProcessCheckpoint(b.pid, NULL), CUDA_ERROR_OPERATING_SYSTEM);
    CHECK_EQUAL(state_of(b.pid), CU_PROCESS_STATE_FAILED);
    CHECK_EQUAL(gpu_used(), each);
    controlled_kill(&b);
    CHECK_EQUAL(gpu_used(), 0);
    OK(cuCheckpointProcessRestore(a.pid, NULL));
    OK(cuCheckpointProcessCheckpoint(a.pid, NULL));
    CHECK_EQUAL(host_bytes(), each);
    controlled_kill(&a);
    CHECK_EQUAL(gpu_used(), 0);
    CHECK_EQUAL(host_bytes(), 0);
    in->state->pages.costs.host_bytes = 0;
}

/* Nobody, and who does not use CUDA. */
static void check_strangers(void) {
    CUprocessState state;
    int thread;
    struct controlled c = start();

    controlled_kill(&c);
    FAILS(cuCheckpointProcessLock(c.pid, NULL), CUDA_ERROR_INVALID_VALUE);
    FAILS(cuCheckpointProcessGetState(c.pid, &state), CUDA_ERROR_INVALID_VALUE);
    FAILS(cuCheckpointProcessGetRestoreThreadId(c.pid, &thread), CUDA_ERROR_INVALID_VALUE);
    FAILS(cuCheckpointProcessUnlock(getppid(), NULL), CUDA_ERROR_INVALID_VALUE);
    FAILS(cuCheckpointProcessUnlock(0, NULL), CUDA_ERROR_INVALID_VALUE);
    FAILS(cuCheckpointProcessUnlock(-1, NULL), CUDA_ERROR_INVALID_VALUE);
    FAILS(cuCheckpointProcessGetState(getpid(), NULL), CUDA_ERROR_INVALID_VALUE);
    FAILS(cuCheckpointProcessGetRestoreThreadId(getpid(), NULL), CUDA_ERROR_INVALID_VALUE);
}

/* Locks and saves the process that it is told, and dies. */
static struct controlled second;

static void lock_and_die(int channel) {
    int pid;

    prctl(PR_SET_PDEATHSIG, SIGKILL);
    CHECK_EQUAL(read(channel, &pid, sizeof pid), (ssize_t)sizeof pid);
    OK(cuInit(0));
    OK(cuCheckpointProcessLock(pid, NULL));
    OK(cuCheckpointProcessCheckpoint(pid, NULL));
    CHECK_EQUAL(write(channel, "d", 1), 1);
    raise(SIGKILL);
    _exit(1);
}

/* Another one goes on. */
static void check_orphan(const struct controlled *c) {
    uint64_t before = gpu_used();

    CHECK_EQUAL(write(second.channel, &c->pid, sizeof c->pid), (ssize_t)sizeof c->pid);
    controlled_hear(&second, 'd');
    controlled_kill(&second);
    CHECK_EQUAL(state_of(c->pid), CU_PROCESS_STATE_CHECKPOINTED);
    CHECK_EQUAL(gpu_used(), 0);
    OK(cuCheckpointProcessRestore(c->pid, NULL));
    OK(cuCheckpointProcessUnlock(c->pid, NULL));
    controlled_tell(c, TELL_LOOK);
    CHECK_EQUAL(gpu_used(), before);
}

/* Killed in any state it leaves nothing. */
static void check_killed(void) {
    for (int steps = 0; steps < 4; steps++) {
        struct controlled c = start();
        if (steps > 0) {
            OK(cuCheckpointProcessLock(c.pid, NULL));
        }
        if (steps > 1) {
            OK(cuCheckpointProcessCheckpoint(c.pid, NULL));
        }
        if (steps > 2) {
            OK(cuCheckpointProcessRestore(c.pid, NULL));
        }
        controlled_kill(&c);
        CHECK_EQUAL(gpu_used(), 0);
    }
}

int main(void) {
    sim_machine machine;
    CUcontext ctx;

    setting_describe(&machine);
    describe(&machine);
    setting_make(&machine);
    for (int i = 0; i < PROCESSES; i++) {
        fresh[i] = controlled_fork(controlled_live);
    }
    second = controlled_fork(lock_and_die);
    struct controlled c = start();
    OK(cuInit(0));
    check_other(&c);
    check_work(&c);
    check_timeout();
    check_orphan(&c);
    controlled_kill(&c);
    check_refused(TELL_MANAGED);
    check_refused(TELL_SHARE);
    check_no_room();
    check_no_host_memory();
    check_strangers();
    check_killed();
    OK(cuDevicePrimaryCtxRetain(&ctx, 0));
    OK(cuCtxSetCurrent(ctx));
    check_itself();
    return 0;
}
