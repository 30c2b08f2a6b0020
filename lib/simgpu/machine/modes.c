/* What is configured about GPUs, and by whom. */
#include "simgpu/machine/state.h"

#include <sys/stat.h>
#include <unistd.h>

#include "libc/kernel.h"

bool sg_is_owner(const struct sg_instance *in) {
    struct stat file;
    uid_t user = geteuid();

    return user == 0 || (kernel_fstat(in->fd, &file) == 0 && file.st_uid == user);
}

enum sg_compute_mode sg_compute_mode(const struct sg_instance *in, uint32_t gpu) {
    return (enum sg_compute_mode)__atomic_load_n(&in->state->gpus[gpu].compute_mode,
                                                 __ATOMIC_RELAXED);
}

/* The lock keeps the change and the making of a context apart. */
void sg_compute_mode_set(struct sg_instance *in, uint32_t gpu, enum sg_compute_mode mode) {
    sg_state_lock(in);
    __atomic_store_n(&in->state->gpus[gpu].compute_mode, (uint32_t)mode, __ATOMIC_RELAXED);
    sg_state_unlock(in);
}

/* Whether a process has a context that keeps the caller from one. Clients of one MPS server count as it, and may. */
static bool has_context(const struct sg_instance *in, uint32_t gpu) {
    uint32_t own = sg_party(in, in->id);

    for (uint32_t i = 0; (i = sg_next_client(in, i)) < SG_CLIENTS_MAX; i++) {
        if (in->state->clients[i].contexts[gpu] > 0 &&
            (i == in->id ? own == i : sg_party(in, i) != own)) {
            return true;
        }
    }
    return false;
}

/* The programming guide, compute modes: with exclusive-process one context exists across all processes. The manual of
 * MPS: the server's is that one, and its clients' go by it. */
bool sg_admits_context(struct sg_instance *in, uint32_t gpu) {
    switch (sg_compute_mode(in, gpu)) {
    case SG_COMPUTE_PROHIBITED:
        return false;
    case SG_COMPUTE_EXCLUSIVE_PROCESS:
        sg_reap_gpu(in, gpu);
        return !has_context(in, gpu);
    default:
        return true;
    }
}
