#include "remote/worker/modules.h"

#include <string.h>

/* What an option's value is for the driver: an address of ours, or what the client said. */
static bool place(struct remote_jit_options *o, uint32_t option, void **value) {
    unsigned log = remote_jit_log(option);

    switch (remote_jit_of(option)) {
    case REMOTE_JIT_LOG:
        *value = o->logs[log];
        return true;
    case REMOTE_JIT_SIZE:
        /* Never more than there is, whatever the client said beside it. */
        *value = (void *)(uintptr_t)(o->logs[log] ? o->room[log] : 0);
        return true;
    case REMOTE_JIT_LISTS:
    case REMOTE_JIT_NONE:
        return false;
    default:
        return true;
    }
}

void remote_in_options(struct remote_decoder *d, unsigned word, struct remote_jit_options *o) {
    uint64_t count = d->words[word];
    bool given = remote_is_given(d, REMOTE_GIVEN_OPTIONS);

    memset(o, 0, sizeof *o);
    if (count > REMOTE_MOST_OPTIONS || given != (count > 0) ||
        given != remote_is_given(d, REMOTE_GIVEN_VALUES)) {
        d->garbled = true;
        return;
    }
    o->options = remote_in(d, REMOTE_GIVEN_OPTIONS, count, sizeof *o->options);
    o->values = remote_in(d, REMOTE_GIVEN_VALUES, count, sizeof *o->values);
    for (unsigned i = 0; i < 2; i++) {
        o->room[i] = d->words[word + 1 + i];
        o->logs[i] = remote_out_maybe(d, REMOTE_GIVEN_LOGS + i, o->room[i], 1);
    }
    if (d->garbled) {
        return;
    }
    o->count = (uint32_t)count;
    for (uint32_t i = 0; i < o->count; i++) {
        if (!place(o, (uint32_t)o->options[i], &o->values[i])) {
            d->garbled = true;
        }
    }
}

void remote_give_options(struct remote_decoder *d, unsigned values, unsigned logs,
                         const struct remote_jit_options *o) {
    uint64_t told[REMOTE_MOST_OPTIONS];

    for (uint32_t i = 0; i < o->count; i++) {
        /* Addresses are ours. */
        told[i] = remote_jit_of((uint32_t)o->options[i]) == REMOTE_JIT_LOG
                      ? 0
                      : (uint64_t)(uintptr_t)o->values[i];
    }
    if (o->count) {
        remote_give(d, values, told, o->count * sizeof *told, true);
    }
    for (unsigned i = 0; i < 2; i++) {
        if (o->logs[i]) {
            remote_give_text(d, logs + i, o->logs[i], o->room[i], true);
        }
    }
}
