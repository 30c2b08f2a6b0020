/* The calls that a worker decodes by hand: each is a function remote_hand_NAME, written like a generated decoder in the
 * file of its subject. hand.c has them all in one table; a name of which no file has the function answers
 * CUDA_ERROR_NOT_SUPPORTED, or NVML's of that meaning. */
#ifndef DIVVY_REMOTE_HAND_H
#define DIVVY_REMOTE_HAND_H

#include "remote/worker/session.h"

#define REMOTE_HAND_hand(name) remote_decode_one remote_hand_##name __attribute__((weak));
#define REMOTE_HAND_local(name)
#define REMOTE_HAND_front(name)
#define REMOTE_HAND_back(name)
#define CUDA_BY_HAND(name, manner, subject) REMOTE_HAND_##manner(name)
#define NVML_BY_HAND(name, manner, subject) REMOTE_HAND_##manner(name)
#include "remote/generated/cuda_by_hand.inc"
#include "remote/generated/nvml_by_hand.inc"
#undef CUDA_BY_HAND
#undef NVML_BY_HAND
#undef REMOTE_HAND_hand

/* Calls of our own, enum remote_own. */
#define REMOTE_OWN_CALLS(each)                                                                     \
    each(SNAPSHOT, snapshot) each(BULK, bulk) each(REGION, region) each(CODE, code)                \
        each(CALLBACK, callback) each(BEAT, beat) each(POINTER, pointer) each(LAYOUT, layout)      \
            each(FORGET, forget) each(LENT, lent) each(PROCESS, process)                           \
                each(CAPTURE_MODE, capture_mode) each(ENVIRONMENT, environment)                    \
                    each(UNSERVED, unserved)
#define REMOTE_HAND_OWN(number, name) remote_decode_one remote_hand_##name __attribute__((weak));
REMOTE_OWN_CALLS(REMOTE_HAND_OWN)
#undef REMOTE_HAND_OWN

#endif
