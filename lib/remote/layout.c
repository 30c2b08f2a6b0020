#include "remote/layout.h"

#include <stdlib.h>
#include <string.h>

struct remote_layout *remote_layout_new(const struct remote_param *params, uint64_t count) {
    uint32_t end = 0;

    if (count > REMOTE_PARAM_BYTES) {
        return NULL;
    }
    for (uint64_t i = 0; i < count; i++) {
        if (params[i].at < end || params[i].at > REMOTE_PARAM_BYTES || params[i].size == 0 ||
            params[i].size > REMOTE_PARAM_BYTES - params[i].at) {
            return NULL;
        }
        end = (uint32_t)params[i].at + params[i].size;
    }
    struct remote_layout *layout = malloc(sizeof *layout + count * sizeof *params);
    if (layout) {
        layout->count = (uint32_t)count;
        layout->bytes = end;
        if (count) {
            memcpy(layout->params, params, count * sizeof *params);
        }
    }
    return layout;
}

/* What was removed leaves its key, so that readers find what was put behind it; another number may take the place. */
struct slot {
    uint64_t key; /* 0 for none */
    struct remote_code *code;
};

struct remote_codes {
    struct remote_codes *smaller; /* in which a reader may still look */
    size_t mask;
    size_t used; /* slots with a key */
    struct slot slots[];
};

#define LEAST_SLOTS 256u

/* One word, so that a reader sees all of it or nothing. Numbers stay below what kinds take. */
static uint64_t key_of(enum remote_kind kind, uint64_t number) {
    return number ^ (uint64_t)kind << 48;
}

static size_t place(const struct remote_codes *codes, uint64_t key) {
    return (size_t)(key * UINT64_C(0x9e3779b97f4a7c15) >> 24) & codes->mask;
}

/* The slot with this key, or else the first that is free for it. Some have no key, always. */
static struct slot *slot_of(struct remote_codes *codes, uint64_t key) {
    struct slot *left = NULL;

    for (size_t i = place(codes, key);; i = (i + 1) & codes->mask) {
        struct slot *slot = &codes->slots[i];
        uint64_t there = __atomic_load_n(&slot->key, __ATOMIC_ACQUIRE);

        if (there == key) {
            return slot;
        }
        if (there == 0) {
            return left ? left : slot;
        }
        if (!left && !__atomic_load_n(&slot->code, __ATOMIC_RELAXED)) {
            left = slot;
        }
    }
}

struct remote_code *remote_code_find(struct remote_codes *const *codes, enum remote_kind kind,
                                     uint64_t number) {
    struct remote_codes *now = __atomic_load_n(codes, __ATOMIC_ACQUIRE);
    uint64_t key = key_of(kind, number);

    if (!now || key == 0) {
        return NULL;
    }
    struct remote_code *code = __atomic_load_n(&slot_of(now, key)->code, __ATOMIC_ACQUIRE);
    return code && code->number == number && code->kind == kind ? code : NULL;
}

static void put(struct remote_codes *codes, struct slot *slot, struct remote_code *code) {
    codes->used += slot->key == 0;
    __atomic_store_n(&slot->code, code, __ATOMIC_RELEASE);
    __atomic_store_n(&slot->key, key_of(code->kind, code->number), __ATOMIC_RELEASE);
}

/* An empty table of so many slots. One that is no longer used is taken again where it has the size: a reader that is still in
 * it finds nothing, which it believes under the lock alone. */
static struct remote_codes *empty(struct remote_codes *codes, size_t size) {
    struct remote_codes *old = codes ? codes->smaller : NULL;

    if (!old || old->mask != size - 1) {
        old = calloc(1, sizeof *old + size * sizeof *old->slots);
        if (!old) {
            return NULL;
        }
        old->mask = size - 1;
        old->smaller = codes;
        return old;
    }
    codes->smaller = old->smaller;
    old->smaller = codes;
    old->used = 0;
    for (size_t i = 0; i < size; i++) {
        __atomic_store_n(&old->slots[i].key, 0, __ATOMIC_RELEASE);
        __atomic_store_n(&old->slots[i].code, NULL, __ATOMIC_RELEASE);
    }
    return old;
}

/* A table for what is in this one now, at most a quarter full. */
static struct remote_codes *grown(struct remote_codes *codes) {
    size_t live = 0, size = LEAST_SLOTS;

    for (size_t i = 0; codes && i <= codes->mask; i++) {
        live += codes->slots[i].code != NULL;
    }
    while (size < 4 * live) {
        size *= 2;
    }
    struct remote_codes *larger = empty(codes, size);
    if (!larger) {
        return NULL;
    }
    for (size_t i = 0; codes && i <= codes->mask; i++) {
        struct remote_code *code = codes->slots[i].code;

        if (code) {
            put(larger, slot_of(larger, key_of(code->kind, code->number)), code);
        }
    }
    return larger;
}

struct remote_code *remote_code_add(struct remote_codes **codes, enum remote_kind kind,
                                    uint64_t number) {
    struct remote_code *code = remote_code_find(codes, kind, number);
    uint64_t key = key_of(kind, number);

    if (code || key == 0) {
        return code;
    }
    if (!*codes || (*codes)->used >= (*codes)->mask / 2) {
        struct remote_codes *larger = grown(*codes);

        if (!larger) {
            return NULL;
        }
        __atomic_store_n(codes, larger, __ATOMIC_RELEASE);
    }
    struct slot *slot = slot_of(*codes, key);
    /* A number that looks like another kind's is none of ours. */
    code = slot->code ? NULL : calloc(1, sizeof *code);
    if (code) {
        code->number = number;
        code->kind = kind;
        put(*codes, slot, code);
    }
    return code;
}

static void leave(struct remote_code *code) {
    if (code->before) {
        code->before->next = code->next;
    } else if (code->owner) {
        code->owner->first = code->next;
    }
    if (code->next) {
        code->next->before = code->before;
    }
    code->owner = code->next = code->before = NULL;
}

void remote_code_own(struct remote_code *code, struct remote_code *owner) {
    leave(code);
    code->owner = owner;
    if (owner) {
        code->next = owner->first;
        if (code->next) {
            code->next->before = code;
        }
        owner->first = code;
    }
}

/* Frees what belongs to nobody. */
static void drop(struct remote_codes *codes, struct remote_code *code) {
    __atomic_store_n(&slot_of(codes, key_of(code->kind, code->number))->code, NULL,
                     __ATOMIC_RELEASE);
    free(code->layout);
    free(code->name);
    free(code);
}

void remote_code_remove(struct remote_codes **codes, struct remote_code *code) {
    struct remote_code *function = code->first;

    code->first = NULL;
    while (function) {
        struct remote_code *next = function->next;

        drop(*codes, function);
        function = next;
    }
    leave(code);
    drop(*codes, code);
}
