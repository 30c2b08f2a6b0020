/* The linker of code. The driver writes to what it was given for as long as it links, so that memory is kept with it. */
#include "remote/image.h"
#include "remote/worker/hand.h"
#include "remote/worker/modules.h"

#include <stdlib.h>
#include <string.h>

/* Options of one call, in memory of their own. */
struct kept {
    struct kept *next;
    struct remote_jit_options o;
    CUjit_option options[REMOTE_MOST_OPTIONS];
    void *values[REMOTE_MOST_OPTIONS];
    char logs[];
};

static struct linker {
    uint64_t number; /* 0 for none */
    uint64_t handle;
    unsigned kept_count;
    struct kept *kept; /* the first was given to cuLinkCreate */
    struct kept *last;
    unsigned char *made; /* a copy, until all of it was fetched */
    size_t made_size;
} linkers[REMOTE_MOST_LINKERS];

#define MOST_KEPT 64u

static struct kept *keep(const struct remote_jit_options *o) {
    uint64_t room[2] = {o->logs[0] ? o->room[0] : 0, o->logs[1] ? o->room[1] : 0};
    struct kept *kept = malloc(sizeof *kept + room[0] + room[1] + 1);

    if (!kept) {
        return NULL;
    }
    kept->next = NULL;
    kept->o = *o;
    kept->o.options = kept->options;
    kept->o.values = kept->values;
    for (unsigned i = 0; i < 2; i++) {
        kept->o.logs[i] = o->logs[i] ? kept->logs + (i ? room[0] : 0) : NULL;
        if (room[i]) {
            memcpy(kept->o.logs[i], o->logs[i], room[i]);
        }
    }
    for (uint32_t i = 0; i < o->count; i++) {
        uint32_t option = (uint32_t)o->options[i];

        kept->options[i] = o->options[i];
        kept->values[i] = remote_jit_of(option) == REMOTE_JIT_LOG
                              ? kept->o.logs[remote_jit_log(option)]
                              : o->values[i];
    }
    return kept;
}

static void end(struct linker *linker) {
    while (linker->kept) {
        struct kept *next = linker->kept->next;
        free(linker->kept);
        linker->kept = next;
    }
    free(linker->made);
    *linker = (struct linker){0};
}

/* Whether the number still names what it did: the driver may still write. */
static bool is_live(struct remote_decoder *d, const struct linker *linker) {
    uint64_t handle;

    return remote_worker_resolve(d->worker, REMOTE_KIND_CUlinkState, linker->number, &handle) &&
           handle == linker->handle;
}

/* A place for another linker, after those that have ended. */
static struct linker *begin(struct remote_decoder *d) {
    struct linker *empty = NULL;

    for (size_t i = 0; i < REMOTE_MOST_LINKERS; i++) {
        if (linkers[i].number && !is_live(d, &linkers[i])) {
            end(&linkers[i]);
        }
        empty = !empty && !linkers[i].number ? &linkers[i] : empty;
    }
    return empty;
}

static struct linker *find(struct remote_decoder *d, uint64_t number) {
    for (size_t i = 0; number && i < REMOTE_MOST_LINKERS; i++) {
        if (linkers[i].number == number) {
            return is_live(d, &linkers[i]) ? &linkers[i] : NULL;
        }
    }
    return NULL;
}

static enum remote_outcome refuse(struct remote_decoder *d, CUresult result) {
    d->head.given = 0;
    remote_answer(d, (int32_t)result);
    return remote_finish(d);
}

enum remote_outcome remote_hand_cuLinkCreate_v2(struct remote_decoder *d) {
    struct remote_jit_options o;
    CUlinkState state = 0;

    if (!remote_words(d, 1 + REMOTE_OPTION_WORDS)) {
        return REMOTE_GARBLED;
    }
    remote_in_options(d, 1, &o);
    if (!remote_taken(d, d->cuda->cuLinkCreate_v2 != NULL)) {
        return remote_not_called(d);
    }
    struct linker *linker = begin(d);
    struct kept *kept = linker ? keep(&o) : NULL;
    if (!kept) {
        return refuse(d, CUDA_ERROR_OUT_OF_MEMORY);
    }
    CUresult result = d->cuda->cuLinkCreate_v2(o.count, kept->options, kept->values,
                                               remote_is_given(d, 3) ? &state : NULL);
    remote_answer(d, (int32_t)result);
    remote_give_made(d, 3, 0, REMOTE_KIND_CUlinkState, (uint64_t)state);
    remote_give_options(d, REMOTE_GIVEN_VALUES, REMOTE_GIVEN_LOGS, &kept->o);
    if (result == CUDA_SUCCESS && state) {
        *linker = (struct linker){d->words[0], (uint64_t)state, 1, kept, kept, NULL, 0};
    } else {
        free(kept);
    }
    return remote_finish(d);
}

/* Code with zeros behind it, where the driver may look for the end of text. */
static void *copy_of(const void *bytes, size_t size) {
    unsigned char *copy = bytes ? malloc(size + 16) : NULL;

    if (copy) {
        memcpy(copy, bytes, size);
        memset(copy + size, 0, 16);
    }
    return copy;
}

static CUresult add(struct remote_decoder *d, struct linker *linker, CUlinkState state, void *code,
                    const char *name, const struct remote_jit_options *o, struct kept **kept) {
    *kept = linker->kept_count < MOST_KEPT || o->count == 0 ? keep(o) : NULL;
    if (!*kept || !code) {
        free(*kept);
        *kept = NULL;
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    return d->cuda->cuLinkAddData_v2(state, (CUjitInputType)d->words[1], code, d->words[3], name,
                                     o->count, (*kept)->options, (*kept)->values);
}

/* Keeps options for as long as their linker, if there are any. */
static void hang(struct linker *linker, struct kept *kept) {
    if (kept && kept->o.count) {
        linker->last->next = kept;
        linker->last = kept;
        linker->kept_count++;
    } else {
        free(kept);
    }
}

enum remote_outcome remote_hand_cuLinkAddData_v2(struct remote_decoder *d) {
    struct remote_jit_options o;
    struct kept *kept;

    if (!remote_words(d, 5 + REMOTE_OPTION_WORDS)) {
        return REMOTE_GARBLED;
    }
    CUlinkState state = (CUlinkState)remote_handle(d, 0, REMOTE_KIND_CUlinkState);
    const void *code = remote_worker_bulk(d->worker, d->words[2], d->words[3]);
    d->garbled |= !code || !remote_is_given(d, 2) || d->words[1] > UINT32_MAX;
    const char *name = remote_in_text(d, 4, 4);
    remote_in_options(d, 5, &o);
    if (!remote_taken(d, d->cuda->cuLinkAddData_v2 != NULL)) {
        return remote_not_called(d);
    }
    struct linker *linker = find(d, d->words[0]);
    if (!linker) {
        return refuse(d, CUDA_ERROR_INVALID_HANDLE);
    }
    void *copy = copy_of(code, d->words[3]);
    remote_answer(d, (int32_t)add(d, linker, state, copy, name, &o, &kept));
    if (kept) {
        remote_give_options(d, REMOTE_GIVEN_VALUES, REMOTE_GIVEN_LOGS, &kept->o);
    }
    remote_give_options(d, REMOTE_GIVEN_STATE_VALUES, REMOTE_GIVEN_STATE_LOGS, &linker->kept->o);
    hang(linker, kept);
    free(copy);
    return remote_finish(d);
}

enum remote_outcome remote_hand_cuLinkComplete(struct remote_decoder *d) {
    void *image = NULL;
    size_t size = 0;

    if (!remote_words(d, 1)) {
        return REMOTE_GARBLED;
    }
    CUlinkState state = (CUlinkState)remote_handle(d, 0, REMOTE_KIND_CUlinkState);
    if (!remote_taken(d, d->cuda->cuLinkComplete != NULL)) {
        return remote_not_called(d);
    }
    struct linker *linker = find(d, d->words[0]);
    if (!linker) {
        return refuse(d, CUDA_ERROR_INVALID_HANDLE);
    }
    CUresult result = d->cuda->cuLinkComplete(state, &image, &size);
    free(linker->made);
    linker->made = NULL;
    linker->made_size = 0;
    if (result == CUDA_SUCCESS &&
        (!image || size > REMOTE_MOST_MADE || !(linker->made = copy_of(image, size)))) {
        result = CUDA_ERROR_OUT_OF_MEMORY;
    }
    linker->made_size = linker->made ? size : 0;
    if (linker->made) {
        remote_worker_code_keep(d->worker, linker->made,
                                remote_image_size_within(linker->made, size));
    }
    remote_answer(d, (int32_t)result);
    remote_give_count(d, 2, size, false);
    remote_give_options(d, REMOTE_GIVEN_STATE_VALUES, REMOTE_GIVEN_STATE_LOGS, &linker->kept->o);
    return remote_finish(d);
}

/* Words: linker, where the part begins, how long it is. */
enum remote_outcome remote_hand_lent(struct remote_decoder *d) {
    if (!remote_words(d, 3)) {
        return REMOTE_GARBLED;
    }
    remote_handle(d, 0, REMOTE_KIND_CUlinkState);
    if (!remote_taken(d, true)) {
        return remote_not_called(d);
    }
    uint64_t at = d->words[1], some = d->words[2];
    struct linker *linker = find(d, d->words[0]);
    if (!linker || !linker->made || some > REMOTE_LENT_BYTES || at > linker->made_size ||
        some > linker->made_size - at) {
        return refuse(d, CUDA_ERROR_INVALID_VALUE);
    }
    remote_answer(d, CUDA_SUCCESS);
    remote_give(d, 0, linker->made + at, some, false);
    if (at + some == linker->made_size) {
        free(linker->made);
        linker->made = NULL;
        linker->made_size = 0;
    }
    return remote_finish(d);
}
