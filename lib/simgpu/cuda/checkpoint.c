/* cuCheckpointProcess*: what a process asks of itself or of another. These calls pass the gate. */
#define _GNU_SOURCE
#include "simgpu/cuda/checkpoint.h"

#include <dirent.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct target {
    uint32_t client, generation;
};

/* Documented are three answers to what is no process to work on. One that the caller does not see, that is another user's, or
 * that does not use CUDA is an invalid value. */
static CUresult find(int pid, struct target *target) {
    struct sg_instance *in = &sg_driver.instance;

    SG_TRY(sg_ready());
    /* An older driver lacks the functions; see has_checkpoints for the rest. */
    SG_REQUIRE(in->state->clients[in->id].checkpoint.thread, CUDA_ERROR_NOT_SUPPORTED);
    SG_REQUIRE(pid > 0, CUDA_ERROR_INVALID_VALUE);
    if (pid == getpid()) {
        *target = (struct target){in->id, in->state->clients[in->id].generation};
        return CUDA_SUCCESS;
    }
    SG_REQUIRE(kill(pid, 0) == 0, CUDA_ERROR_INVALID_VALUE);
    return sg_checkpoint_find(in, pid, &target->client, &target->generation)
               ? CUDA_ERROR_INVALID_VALUE
               : CUDA_SUCCESS;
}

static CUresult ask(int pid, const struct sg_request *request) {
    struct target target;
    uint32_t result;

    SG_TRY(find(pid, &target));
    return sg_checkpoint_ask(&sg_driver.instance, target.client, target.generation, request,
                             &result)
               ? CUDA_ERROR_INVALID_VALUE
               : (CUresult)result;
}

static bool is_zero(const void *bytes, size_t n) {
    const unsigned char *at = bytes;

    while (n && *at == 0) {
        at++;
        n--;
    }
    return n == 0;
}

CUresult cuCheckpointProcessLock(int pid, CUcheckpointLockArgs *args) {
    struct sg_request request = {.wish = SG_WISH_LOCK};

    SG_TRY(sg_ready());
    if (args) {
        SG_REQUIRE(!args->reserved0 && is_zero(args->reserved1, sizeof args->reserved1),
                   CUDA_ERROR_INVALID_VALUE);
        request.timeout_ms = args->timeoutMs;
    }
    return ask(pid, &request);
}

CUresult cuCheckpointProcessCheckpoint(int pid, CUcheckpointCheckpointArgs *args) {
    SG_TRY(sg_ready());
    SG_REQUIRE(!args || is_zero(args, sizeof *args), CUDA_ERROR_INVALID_VALUE);
    return ask(pid, &(struct sg_request){.wish = SG_WISH_CHECKPOINT});
}

static uint32_t gpu_of(const CUuuid *uuid) {
    uint32_t gpu = 0;

    while (gpu < sg_driver.machine->gpu_count &&
           memcmp(sg_driver.machine->gpus[gpu].uuid, uuid, sizeof *uuid) != 0) {
        gpu++;
    }
    return gpu;
}

/* Whether each GPU has the place of one other, or its own. */
static bool is_one_each(const uint32_t places[SG_GPUS_MAX]) {
    uint32_t taken = 0;

    for (uint32_t i = 0; i < sg_driver.machine->gpu_count; i++) {
        taken |= 1u << (places[i] ? places[i] - 1 : i);
    }
    return taken == (1u << sg_driver.machine->gpu_count) - 1;
}

static bool are_alike(uint32_t a, uint32_t b) {
    const sim_gpu *one = &sg_driver.machine->gpus[a], *other = &sg_driver.machine->gpus[b];

    return strcmp(one->name, other->name) == 0 && one->memory_bytes == other->memory_bytes;
}

static CUresult read_pairs(const CUcheckpointRestoreArgs *args, struct sg_request *request) {
    SG_REQUIRE(is_zero(args->reserved, sizeof args->reserved) && args->reserved1 == 0,
               CUDA_ERROR_INVALID_VALUE);
    SG_REQUIRE(args->gpuPairsCount == 0 || args->gpuPairs, CUDA_ERROR_INVALID_VALUE);
    for (unsigned i = 0; i < args->gpuPairsCount; i++) {
        uint32_t from = gpu_of(&args->gpuPairs[i].oldUuid), to = gpu_of(&args->gpuPairs[i].newUuid);
        SG_REQUIRE(from < sg_driver.machine->gpu_count && to < sg_driver.machine->gpu_count &&
                       !request->places[from],
                   CUDA_ERROR_INVALID_VALUE);
        SG_REQUIRE(are_alike(from, to), CUDA_ERROR_NOT_SUPPORTED);
        request->places[from] = to + 1;
    }
    return is_one_each(request->places) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuCheckpointProcessRestore(int pid, CUcheckpointRestoreArgs *args) {
    struct sg_request request = {.wish = SG_WISH_RESTORE};

    SG_TRY(sg_ready());
    if (args && sg_driver.machine->cuda_version < 13000) {
        SG_REQUIRE(is_zero(args, sizeof *args), CUDA_ERROR_INVALID_VALUE);
    } else if (args) {
        SG_TRY(read_pairs(args, &request));
    }
    return ask(pid, &request);
}

CUresult cuCheckpointProcessUnlock(int pid, CUcheckpointUnlockArgs *args) {
    SG_TRY(sg_ready());
    SG_REQUIRE(!args || is_zero(args, sizeof *args), CUDA_ERROR_INVALID_VALUE);
    return ask(pid, &(struct sg_request){.wish = SG_WISH_UNLOCK});
}

static CUresult look(int pid, uint32_t *state, int32_t *thread) {
    struct target target;

    SG_TRY(find(pid, &target));
    return sg_checkpoint_look(&sg_driver.instance, target.client, target.generation, state, thread)
               ? CUDA_ERROR_INVALID_VALUE
               : CUDA_SUCCESS;
}

CUresult cuCheckpointProcessGetState(int pid, CUprocessState *state) {
    uint32_t now;
    int32_t thread;

    SG_TRY(sg_ready());
    SG_REQUIRE(state, CUDA_ERROR_INVALID_VALUE);
    SG_TRY(look(pid, &now, &thread));
    *state = (CUprocessState)now;
    return CUDA_SUCCESS;
}

/* The number of a thread in its own pid namespace, or 0 for a folder that is none's. */
static int32_t own_number(int pid, const char *task) {
    char path[64 + 256], line[256];
    const char *last = NULL;

    snprintf(path, sizeof path, "/proc/%d/task/%s/status", pid, task);
    FILE *file = fopen(path, "re");
    while (file && !last && fgets(line, sizeof line, file)) {
        last = strncmp(line, "NSpid:", 6) == 0 ? strrchr(line, '\t') : NULL;
    }
    if (file) {
        fclose(file);
    }
    return last ? atoi(last) : 0;
}

/* The caller's number of a thread of the process; 0 when it is not seen. */
static int32_t number_here(int pid, int32_t thread) {
    const struct dirent *entry;
    char path[64];
    int32_t found = 0;

    snprintf(path, sizeof path, "/proc/%d/task", pid);
    DIR *tasks = opendir(path);
    while (tasks && !found && (entry = readdir(tasks)) != NULL) {
        if (own_number(pid, entry->d_name) == thread) {
            found = atoi(entry->d_name);
        }
    }
    if (tasks) {
        closedir(tasks);
    }
    return found;
}

CUresult cuCheckpointProcessGetRestoreThreadId(int pid, int *tid) {
    uint32_t state;
    int32_t thread;

    SG_TRY(sg_ready());
    SG_REQUIRE(tid, CUDA_ERROR_INVALID_VALUE);
    SG_TRY(look(pid, &state, &thread));
    *tid = pid == getpid() ? thread : number_here(pid, thread);
    return *tid ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
