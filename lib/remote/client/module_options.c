#include "remote/client/module.h"

#include <string.h>

CUresult remote_options_read(struct remote_options *o, unsigned count, const CUjit_option *options,
                             void **values) {
    o->count = count;
    o->values = values;
    o->logs[0] = o->logs[1] = NULL;
    o->room[0] = o->room[1] = 0;
    if (count && (!options || !values || count > REMOTE_MOST_OPTIONS)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    for (unsigned i = 0; i < count; i++) {
        uint64_t value = (uint64_t)values[i];

        o->options[i] = (uint32_t)options[i];
        o->sent[i] = value;
        switch (remote_jit_of(o->options[i])) {
        case REMOTE_JIT_LOG:
            o->logs[remote_jit_log(o->options[i])] = values[i];
            o->sent[i] = 0;
            break;
        case REMOTE_JIT_SIZE:
            /* An unsigned int; an answer does not carry more. */
            value &= UINT32_MAX;
            o->room[remote_jit_log(o->options[i])] =
                value < REMOTE_LOG_BYTES ? value : REMOTE_LOG_BYTES;
            break;
        case REMOTE_JIT_LISTS:
            return CUDA_ERROR_NOT_SUPPORTED;
        case REMOTE_JIT_NONE:
            return CUDA_ERROR_INVALID_VALUE;
        default:
            break;
        }
    }
    return CUDA_SUCCESS;
}

void remote_options_put(struct remote_call *call, unsigned word, const struct remote_options *o) {
    call->words[word] = o->count;
    call->words[word + 1] = o->logs[0] ? o->room[0] : 0;
    call->words[word + 2] = o->logs[1] ? o->room[1] : 0;
    remote_array(call, REMOTE_GIVEN_OPTIONS, o->count ? o->options : NULL, o->count,
                 sizeof *o->options);
    remote_array(call, REMOTE_GIVEN_VALUES, o->count ? o->sent : NULL, o->count, sizeof *o->sent);
    for (unsigned i = 0; i < 2; i++) {
        remote_room(call, REMOTE_GIVEN_LOGS + i, o->logs[i], o->room[i], 1);
    }
}

void remote_options_want(struct remote_call *call, const struct remote_options *o) {
    remote_room(call, REMOTE_GIVEN_STATE_VALUES, o->count ? o->values : NULL, o->count,
                sizeof *o->sent);
    for (unsigned i = 0; i < 2; i++) {
        remote_room(call, REMOTE_GIVEN_STATE_LOGS + i, o->logs[i], o->room[i], 1);
    }
}

void remote_options_get(const struct remote_call *call, struct remote_reply *reply, unsigned values,
                        unsigned logs, const struct remote_options *o) {
    uint64_t told[REMOTE_MOST_OPTIONS];

    memcpy(told, o->sent, o->count * sizeof *told);
    remote_get(call, reply, values, told, o->count * sizeof *told, true);
    for (unsigned i = 0; i < o->count; i++) {
        enum remote_jit kind = remote_jit_of(o->options[i]);

        if ((kind == REMOTE_JIT_TOLD || kind == REMOTE_JIT_SIZE) && told[i] != o->sent[i]) {
            memcpy(&o->values[i], &told[i], sizeof told[i]);
        }
    }
    for (unsigned i = 0; i < 2; i++) {
        remote_get_some(call, reply, logs + i, o->logs[i], o->room[i], true);
    }
}
