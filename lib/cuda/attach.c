#include "cuda/attach.h"

#include "cuda/fork.h"
#include "cuda/lock.h"
#include "substitute/log.h"
#include "substitute/substitute.h"

static dv_share *share;
static lock opening; /* held during dv_share_open, which does not wait */

dv_share *attached_share(void) {
    return __atomic_load_n(&share, __ATOMIC_ACQUIRE);
}

CUresult attach_share(void) {
    if (attached_share() != NULL) {
        return CUDA_SUCCESS;
    }
    dv_reason reason = {""};
    dv_share *opened = NULL;
    lock_take(&opening);
    if (share == NULL && dv_share_open(dv_substitute_directory(), &opened, &reason) == DV_OK) {
        fork_watch();
        TELL(attached, (opened)); /* first: who sees the share sees what they noted of it */
        __atomic_store_n(&share, opened, __ATOMIC_RELEASE);
    }
    lock_give(&opening);
    if (reason.text[0] != '\0') {
        dv_log("cuda: refusing everything: %s", reason.text);
    }
    return attached_share() != NULL ? CUDA_SUCCESS : CUDA_ERROR_SYSTEM_NOT_READY;
}

static void share_forked(void) {
    opening = (lock){0};
    dv_share_forked(share);
}
ON(forked, share_forked);
