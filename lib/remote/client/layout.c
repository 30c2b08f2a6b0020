#include "remote/client/layout.h"

#include "remote/client/pack.h"
#include "remote/generated/cuda_stubs.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

/* Written under the lock; launches read it without. */
static struct remote_codes *codes;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/* A function's number may also be a kernel's, which the worker looks for second too. */
static enum remote_kind kind_of(uint64_t number) {
    return remote_number_known(REMOTE_KIND_CUfunction, number) ? REMOTE_KIND_CUfunction
                                                               : REMOTE_KIND_CUkernel;
}

static const struct remote_layout *kept(enum remote_kind kind, uint64_t number) {
    const struct remote_code *code = remote_code_find(&codes, kind, number);

    return code ? __atomic_load_n(&code->layout, __ATOMIC_ACQUIRE) : NULL;
}

/* Keeps a layout, if no other thread has done so meanwhile. */
static const struct remote_layout *keep(enum remote_kind kind, uint64_t number,
                                        struct remote_layout *layout) {
    pthread_mutex_lock(&lock);
    struct remote_code *code = remote_code_add(&codes, kind, number);
    if (code && !code->layout) {
        __atomic_store_n(&code->layout, layout, __ATOMIC_RELEASE);
        layout = NULL;
    }
    const struct remote_layout *there = code ? code->layout : NULL;
    pthread_mutex_unlock(&lock);
    free(layout);
    return there;
}

/* One record asks for all parameters. */
static struct remote_layout *ask(uint64_t number, CUresult *result) {
    struct remote_layout *layout = NULL;
    struct remote_call call;
    struct remote_reply reply;
    size_t room = REMOTE_PARAM_BYTES * sizeof(struct remote_param);
    struct remote_param *params = malloc(room);

    *result = CUDA_ERROR_OUT_OF_MEMORY;
    if (!params) {
        return NULL;
    }
    remote_begin(&call, (enum remote_number)REMOTE_LAYOUT, 1);
    remote_use(&call, 0, REMOTE_KIND_CUfunction, number);
    remote_given(&call, 1, params);
    if (remote_ask(&call, &reply)) {
        size_t before = reply.at;

        remote_get_some(&call, &reply, 1, params, room, false);
        size_t bytes = reply.at - before;
        uint64_t count = 0;
        if (!reply.garbled && reply.head.result == 0 && bytes >= sizeof count) {
            memcpy(&count, reply.body + before, sizeof count);
            layout =
                count % sizeof *params ? NULL : remote_layout_new(params, count / sizeof *params);
            reply.garbled = !layout;
        }
    }
    free(params);
    *result = (CUresult)remote_end(&call, &reply);
    return layout;
}

const struct remote_layout *remote_layout_of(CUfunction function, CUresult *result) {
    uint64_t number = (uint64_t)function;
    const struct remote_layout *layout = kept(REMOTE_KIND_CUfunction, number);

    *result = CUDA_SUCCESS;
    if (layout) {
        return layout;
    }
    *result = (CUresult)remote_gate((enum remote_number)REMOTE_LAYOUT);
    if (*result != CUDA_SUCCESS) {
        return NULL;
    }
    enum remote_kind kind = kind_of(number);
    layout = kept(kind, number);
    if (layout) {
        return layout;
    }
    struct remote_layout *asked = ask(number, result);
    if (!asked) {
        return NULL;
    }
    layout = keep(kind, number, asked);
    *result = layout ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
    return layout;
}

void remote_code_told(enum remote_kind kind, uint64_t number, enum remote_kind owner_kind,
                      uint64_t owner) {
    pthread_mutex_lock(&lock);
    struct remote_code *of = remote_code_find(&codes, owner_kind, owner);
    if (owner_kind == REMOTE_KIND_CUkernel) {
        of = of ? of->owner : NULL;
    } else if (!of) {
        of = remote_code_add(&codes, owner_kind, owner);
    }
    struct remote_code *code = remote_code_find(&codes, kind, number);
    /* The driver has given the address of an ended function to another one, and the worker its number. */
    if (code && (!of || code->owner != of)) {
        remote_code_remove(&codes, code);
        code = NULL;
    }
    if (!code && of && (code = remote_code_add(&codes, kind, number)) != NULL) {
        remote_code_own(code, of);
    }
    pthread_mutex_unlock(&lock);
}

/* Lists the numbers of one kind that belong to a module. Returns how many; `to` has room for them, or is NULL. */
static size_t list(const struct remote_code *owner, enum remote_kind kind, uint64_t *to) {
    size_t count = 0;

    for (const struct remote_code *code = owner->first; code; code = code->next) {
        if (code->kind == kind) {
            if (to) {
                to[count] = code->number;
            }
            count++;
        }
    }
    return count;
}

#define MOST_NUMBERS (REMOTE_ARRAY_BYTES / sizeof(uint64_t))

/* Tells the worker of numbers that are none any more. */
static void tell_forgotten(enum remote_kind kind, const uint64_t *numbers, size_t count) {
    unsigned parameter = kind == REMOTE_KIND_CUkernel;

    while (count) {
        size_t some = count < MOST_NUMBERS ? count : MOST_NUMBERS;
        struct remote_call call;

        remote_begin(&call, (enum remote_number)REMOTE_FORGET, 2);
        call.words[parameter] = some;
        remote_array(&call, parameter, numbers, some, sizeof *numbers);
        remote_post(&call);
        numbers += some;
        count -= some;
    }
}

void remote_code_ended(enum remote_kind owner_kind, uint64_t owner) {
    static const enum remote_kind kinds[2] = {REMOTE_KIND_CUfunction, REMOTE_KIND_CUkernel};
    uint64_t *numbers[2] = {NULL, NULL};
    size_t counts[2] = {0, 0};

    pthread_mutex_lock(&lock);
    struct remote_code *of = remote_code_find(&codes, owner_kind, owner);
    for (int i = 0; of && i < 2; i++) {
        counts[i] = list(of, kinds[i], NULL);
        numbers[i] = counts[i] ? malloc(counts[i] * sizeof *numbers[i]) : NULL;
        counts[i] = numbers[i] ? list(of, kinds[i], numbers[i]) : 0;
    }
    if (of) {
        remote_code_remove(&codes, of);
    }
    pthread_mutex_unlock(&lock);
    for (int i = 0; i < 2; i++) {
        for (size_t k = 0; k < counts[i]; k++) {
            remote_number_forget(kinds[i], numbers[i][k]);
        }
        tell_forgotten(kinds[i], numbers[i], counts[i]);
        free(numbers[i]);
    }
}

const char *remote_name_kept(enum remote_kind kind, uint64_t number) {
    pthread_mutex_lock(&lock);
    const struct remote_code *code = remote_code_find(&codes, kind, number);
    const char *name = code ? code->name : NULL;
    pthread_mutex_unlock(&lock);
    return name;
}

const char *remote_name_keep(enum remote_kind kind, uint64_t number, const char *name,
                             size_t size) {
    const char *there = NULL;

    pthread_mutex_lock(&lock);
    struct remote_code *code = remote_code_add(&codes, kind, number);
    if (code && !code->name) {
        code->name = strndup(name, size);
    }
    there = code ? code->name : NULL;
    pthread_mutex_unlock(&lock);
    return there;
}
