/* Restores to other GPUs, which CUDA 13 lets take each other's place. */
#define _GNU_SOURCE
#include "simgpu/cuda/test/controlled.h"

#include <string.h>
#include <unistd.h>

static void describe(sim_machine *machine) {
    machine->cuda_version = 12080;
}

static CUcheckpointGpuPair pair_of(uint32_t from, uint32_t to) {
    CUcheckpointGpuPair pair;

    memcpy(&pair.oldUuid, sg_driver.machine->gpus[from].uuid, sizeof pair.oldUuid);
    memcpy(&pair.newUuid, sg_driver.machine->gpus[to].uuid, sizeof pair.newUuid);
    return pair;
}

/* CUDA 13 lets GPUs take each other's place, one each. */
static void check_pairs(const struct controlled *c) {
    sim_machine *machine = (sim_machine *)sg_driver.instance.state->machine;
    CUcheckpointGpuPair pairs[2] = {pair_of(0, 0), pair_of(1, 1)};
    CUcheckpointRestoreArgs args = {.gpuPairs = pairs, .gpuPairsCount = 2};

    OK(cuCheckpointProcessLock(c->pid, NULL));
    OK(cuCheckpointProcessCheckpoint(c->pid, NULL));
    FAILS(cuCheckpointProcessRestore(c->pid, &args),
          CUDA_ERROR_INVALID_VALUE); /* all of it is reserved */
    machine->cuda_version = 13000;
    pairs[1] = pairs[0];
    FAILS(cuCheckpointProcessRestore(c->pid, &args), CUDA_ERROR_INVALID_VALUE);
    memset(&pairs[1].oldUuid, 7, sizeof pairs[1].oldUuid);
    FAILS(cuCheckpointProcessRestore(c->pid, &args), CUDA_ERROR_INVALID_VALUE);
    pairs[1] = pair_of(1, 0);
    FAILS(cuCheckpointProcessRestore(c->pid, &args),
          CUDA_ERROR_INVALID_VALUE); /* two in one place */
    pairs[1] = pair_of(1, 1);
    machine->gpus[1].name[0] = 'X';
    pairs[0] = pair_of(0, 1);
    FAILS(cuCheckpointProcessRestore(c->pid, &args),
          CUDA_ERROR_NOT_SUPPORTED); /* of another model */
    machine->gpus[1].name[0] = machine->gpus[0].name[0];
    pairs[0] = pair_of(0, 0);
    args.reserved1 = 1;
    FAILS(cuCheckpointProcessRestore(c->pid, &args), CUDA_ERROR_INVALID_VALUE);
    args.reserved1 = 0;
    OK(cuCheckpointProcessRestore(c->pid, &args));
    OK(cuCheckpointProcessUnlock(c->pid, NULL));
    controlled_tell(c, TELL_LOOK);
    machine->cuda_version = 12080;
}

/* To another GPU and back; what it had is there, and its work goes on. */
static void check_moved(const struct controlled *c) {
    sim_machine *machine = (sim_machine *)sg_driver.instance.state->machine;
    CUcheckpointGpuPair pairs[2] = {pair_of(0, 1), pair_of(1, 0)};
    CUcheckpointRestoreArgs args = {.gpuPairs = pairs, .gpuPairsCount = 2};
    uint64_t before = gpu_used();

    machine->cuda_version = 13000;
    for (int i = 0; i < 2; i++) {
        controlled_tell(c, TELL_WORK);
        OK(cuCheckpointProcessLock(c->pid, NULL));
        OK(cuCheckpointProcessCheckpoint(c->pid, NULL));
        OK(cuCheckpointProcessRestore(c->pid, &args));
        OK(cuCheckpointProcessUnlock(c->pid, NULL));
        CHECK_EQUAL(gpu_used(), i == 0 ? 0 : before);
        CHECK_EQUAL(sg_gpu_used(&sg_driver.instance, 1), i == 0 ? before : 0);
        controlled_tell(c, TELL_LOOK);
        controlled_tell(c, TELL_WORK);
        controlled_tell(c, TELL_FILL);
        controlled_tell(c, TELL_LOOK);
    }
    machine->cuda_version = 12080;
}

/* What was recorded on the GPU that the process left keeps its moment, and what follows has later ones. */
static void check_events(void) {
    sim_machine *machine = (sim_machine *)sg_driver.instance.state->machine;
    CUcheckpointGpuPair pairs[2] = {pair_of(0, 1), pair_of(1, 0)};
    CUcheckpointRestoreArgs args = {.gpuPairs = pairs, .gpuPairsCount = 2};
    CUevent events[3];
    float before, after;

    for (int i = 0; i < 3; i++) {
        OK(cuEventCreate(&events[i], 0));
    }
    OK(cuEventRecord(events[0], NULL));
    OK(cuda_busy(NULL, 3000000));
    OK(cuEventRecord(events[1], NULL));
    machine->cuda_version = 13000;
    OK(cuCheckpointProcessLock(getpid(), NULL));
    OK(cuCheckpointProcessCheckpoint(getpid(), NULL));
    OK(cuCheckpointProcessRestore(getpid(), &args));
    OK(cuCheckpointProcessUnlock(getpid(), NULL));
    machine->cuda_version = 12080;
    OK(cuEventSynchronize(events[1]));
    OK(cuda_busy(NULL, 3000000));
    OK(cuEventRecord(events[2], NULL));
    OK(cuStreamSynchronize(NULL));
    OK(cuEventElapsedTime(&before, events[0], events[1]));
    OK(cuEventElapsedTime(&after, events[1], events[2]));
    CHECK(before >= 3 && after >= 3);
    for (int i = 0; i < 3; i++) {
        OK(cuEventDestroy_v2(events[i]));
    }
}

int main(void) {
    sim_machine machine;
    CUcontext ctx;

    setting_describe(&machine);
    describe(&machine);
    setting_make(&machine);
    struct controlled c = controlled_fork(controlled_live);
    OK(cuInit(0));
    controlled_tell(&c, TELL_BEGIN);
    check_pairs(&c);
    check_moved(&c);
    controlled_kill(&c);
    OK(cuDevicePrimaryCtxRetain(&ctx, 0));
    OK(cuCtxSetCurrent(ctx));
    check_events();
    return 0;
}
