/* Checkpoints of processes: what the others ask of one, and what it answers. Part of state.h.
 *
 * A process has its own memory's contents, so it saves and restores them itself, in a thread that waits for requests in its
 * slot. One request is under way at a time. Who asked may die: the request goes on, and the next one finds its outcome. */
#ifndef SIMGPU_MACHINE_CHECKPOINT_H
#define SIMGPU_MACHINE_CHECKPOINT_H

#include <stdint.h>

#include "simgpu/machine/limits.h"

struct sg_instance;

/* The numbers are those of CUprocessState. */
enum sg_process_state {
    SG_PROCESS_RUNNING,
    SG_PROCESS_LOCKED,
    SG_PROCESS_CHECKPOINTED,
    SG_PROCESS_FAILED,
};

enum sg_wish { SG_WISH_LOCK, SG_WISH_CHECKPOINT, SG_WISH_RESTORE, SG_WISH_UNLOCK };

struct sg_request {
    uint32_t wish;       /* enum sg_wish */
    uint32_t timeout_ms; /* SG_WISH_LOCK; 0 is none */
    uint32_t places
        [SG_GPUS_MAX]; /* SG_WISH_RESTORE: for each GPU the number + 1 of the one that takes its place, or 0 */
};

struct sg_checkpoint {
    uint32_t state; /* enum sg_process_state; written by the process itself, under the state lock */
    int32_t
        thread; /* that serves requests, by its number in the process's own pid namespace; 0 where none does */
    uint32_t asker; /* client slot + 1 of who has not had its answer yet; 0 is nobody */
    uint32_t asker_generation;
    uint32_t asked,
        answered; /* numbers of the last request and of the last answer; those who wait sleep on them */
    uint32_t result; /* the answer, a CUresult */
    uint32_t blocks; /* of its memory that are in host memory; the lock of pages */
    struct sg_request request;
};

/* Which client slot the process has that the caller knows by that pid, and its generation. -ESRCH when there is none that
 * serves requests. */
int sg_checkpoint_find(struct sg_instance *in, int32_t pid, uint32_t *client, uint32_t *generation);
/* Asks a process and waits for its answer. -ESRCH when it has ended. */
int sg_checkpoint_ask(struct sg_instance *in, uint32_t client, uint32_t generation,
                      const struct sg_request *request, uint32_t *result);
/* Its state and its thread. -ESRCH when it has ended. */
int sg_checkpoint_look(struct sg_instance *in, uint32_t client, uint32_t generation,
                       uint32_t *state, int32_t *thread);

/* In the process itself: waits for the next request, and answers it. */
void sg_checkpoint_await(struct sg_instance *in, struct sg_request *request);
void sg_checkpoint_answer(struct sg_instance *in, uint32_t result);
void sg_checkpoint_enter(struct sg_instance *in, enum sg_process_state state);

#endif
