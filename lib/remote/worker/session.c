/* What the parts of a worker ask it for. */
#include "remote/worker/hand.h"
#include "remote/worker/state.h"

struct remote_link *remote_worker_link(struct remote_worker *worker) {
    return worker->link;
}

const struct remote_cuda_driver *remote_worker_cuda(struct remote_worker *worker) {
    return &worker->cuda;
}

const struct remote_nvml_driver *remote_worker_nvml(struct remote_worker *worker) {
    return &worker->nvml;
}

void remote_worker_enter(struct remote_worker *worker, struct remote_current *current,
                         uint64_t number) {
    uint64_t handle = 0;

    if (number) {
        remote_worker_resolve(worker, REMOTE_KIND_CUcontext, number, &handle);
    }
    uint64_t ends = __atomic_load_n(&worker->context_ends, __ATOMIC_ACQUIRE);
    if ((current->known && current->handle == handle && current->ends == ends) ||
        !worker->cuda.cuCtxSetCurrent) {
        return;
    }
    current->ends = ends;
    current->known = worker->cuda.cuCtxSetCurrent((CUcontext)handle) == CUDA_SUCCESS || !handle;
    current->handle = handle;
}

enum remote_outcome remote_hand_beat(struct remote_decoder *decoder) {
    if (!remote_words(decoder, 0) || !remote_taken(decoder, true)) {
        return REMOTE_GARBLED;
    }
    decoder->head.given = 0;
    remote_answer(decoder, 0);
    return remote_finish(decoder);
}
