#define _GNU_SOURCE
#include "cuda/attach.h"

#include <pthread.h>

#include "cuda/context.h"
#include "cuda/environment.h"
#include "cuda/lock.h"
#include "cuda/memory/array.h"
#include "cuda/memory/graph.h"
#include "cuda/memory/ipc.h"
#include "cuda/memory/limbo.h"
#include "cuda/memory/linear.h"
#include "cuda/memory/object.h"
#include "cuda/memory/pool.h"
#include "cuda/time/flight.h"
#include "cuda/time/launch.h"
#include "substitute/log.h"
#include "substitute/substitute.h"

static dv_share *share;
static lock opening; /* held over dv_share_open, which waits for nobody */

/* The child of a fork can use the driver only if the parent had not initialised it; what the parent
 * allocated is not the child's. Locks may have been held by threads that do not exist here. */
static void forked(void) {
    opening = (lock){0};
    dv_share_forked(share);
    environment_forked();
    context_forked();
    linear_forked();
    pools_forked();
    graphs_forked();
    limbo_forked();
    arrays_forked();
    objects_forked();
    ipc_forked();
    flights_forked();
}

dv_share *tenant_share(void) {
    return __atomic_load_n(&share, __ATOMIC_ACQUIRE);
}

CUresult tenant_open(void) {
    if (tenant_share() != NULL) {
        return CUDA_SUCCESS;
    }
    dv_reason reason = {""};
    dv_share *opened = NULL;
    lock_take(&opening);
    if (share == NULL && dv_share_open(dv_substitute_directory(), &opened, &reason) == DV_OK) {
        pthread_atfork(NULL, NULL, forked);
        __atomic_store_n(&share, opened, __ATOMIC_RELEASE);
        launch_opened(opened);
    }
    lock_give(&opening);
    if (reason.text[0] != '\0') {
        dv_log("cuda: refusing everything: %s", reason.text);
    }
    return tenant_share() != NULL ? CUDA_SUCCESS : CUDA_ERROR_SYSTEM_NOT_READY;
}
