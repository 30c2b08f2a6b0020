/* REMOTE_POINTER: what an address is. Word 0: the address. */
#include "remote/facts.h"
#include "remote/worker/hand.h"

static void tell(struct remote_decoder *d, struct remote_pointer_facts *facts,
                 CUdeviceptr address) {
    for (int i = 0; i < REMOTE_POINTER_ATTRIBUTES; i++) {
        enum remote_kind kind = i == CU_POINTER_ATTRIBUTE_CONTEXT ? REMOTE_KIND_CUcontext
                                : i == CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE
                                    ? REMOTE_KIND_CUmemoryPool
                                    : REMOTE_KIND_NONE;
        /* Tokens are for drivers of other devices, and longer than a value. */
        facts->results[i] = i == 0 || i == CU_POINTER_ATTRIBUTE_P2P_TOKENS
                                ? CUDA_ERROR_INVALID_VALUE
                                : (int32_t)d->cuda->cuPointerGetAttribute(
                                      &facts->values[i], (CUpointer_attribute)i, address);
        if (kind != REMOTE_KIND_NONE && facts->results[i] == 0) {
            remote_out_field(d, &facts->values[i], 0, kind);
        }
    }
}

enum remote_outcome remote_hand_pointer(struct remote_decoder *d) {
    if (!remote_words(d, 1)) {
        return REMOTE_GARBLED;
    }
    struct remote_pointer_facts *facts = remote_out(d, 0, 1, sizeof *facts);
    if (!remote_taken(d, d->cuda->cuPointerGetAttribute != NULL)) {
        return remote_not_called(d);
    }
    if (!facts) {
        return REMOTE_GARBLED;
    }
    tell(d, facts, d->words[0]);
    remote_answer(d, CUDA_SUCCESS);
    remote_give(d, 0, facts, sizeof *facts, false);
    return remote_finish(d);
}
