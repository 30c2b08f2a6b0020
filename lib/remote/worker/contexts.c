/* cuCtxCreate_v4. Words: the context's number, how many parameters it is said to have, flags, device. */
#include "remote/worker/hand.h"

enum remote_outcome remote_hand_cuCtxCreate_v4(struct remote_decoder *d) {
    if (!remote_words(d, 4)) {
        return REMOTE_GARBLED;
    }
    int count = (int)d->words[1];
    CUctxCreateParams params = {
        .execAffinityParams =
            remote_in(d, 2, (uint64_t)(count > 0 ? count : 0), sizeof *params.execAffinityParams),
        .numExecAffinityParams = count,
    };
    CUcontext made = NULL;
    if (!remote_taken(d, d->cuda->cuCtxCreate_v4 != NULL)) {
        return remote_not_called(d);
    }
    CUresult result = d->cuda->cuCtxCreate_v4(remote_is_given(d, 0) ? &made : NULL,
                                              remote_is_given(d, 1) ? &params : NULL,
                                              (unsigned)d->words[2], (CUdevice)d->words[3]);
    remote_answer(d, (int32_t)result);
    remote_give_made(d, 0, 0, REMOTE_KIND_CUcontext, (uint64_t)made);
    return remote_finish(d);
}
