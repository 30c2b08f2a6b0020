/* Where the parameters of a kernel lie, which client and worker keep by the kernel's number. */
#ifndef DIVVY_REMOTE_LAYOUT_H
#define DIVVY_REMOTE_LAYOUT_H

#include "remote/generated/numbers/numbers.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The most bytes of parameters that a kernel has, by the documentation of CUDA 12.1. */
#define REMOTE_PARAM_BYTES 32764u

struct remote_param {
    uint16_t at;
    uint16_t size;
};

struct remote_layout {
    uint32_t count;
    uint32_t bytes; /* of all parameters */
    struct remote_param params[];
};

/* Makes a layout of so many parameters, whose memory is malloc's. NULL if they are not in their order, overlap, are empty or
 * too long, or if there is no memory. */
struct remote_layout *remote_layout_new(const struct remote_param *params, uint64_t count);

/* A function or a kernel, or the module or library that it belongs to. */
struct remote_code {
    uint64_t number;
    enum remote_kind kind;
    struct remote_code
        *owner; /* NULL for a module, and for a function of which nobody said whose it is */
    struct remote_code *first; /* of the functions of this module */
    struct remote_code *next;  /* of the same module */
    struct remote_code *before;
    struct remote_layout *layout; /* NULL until it is asked for */
    char *name;                   /* the same */
    uint64_t handle;              /* of the driver, in a worker */
};

/* A table by kind and number, NULL at first. Readers need no lock; those who write it must not do so at once. A reader without
 * a lock may miss what is there, and then looks again under the lock of those who write. What has been removed is freed:
 * nobody may look for it at that time. */
struct remote_codes;

struct remote_code *remote_code_find(struct remote_codes *const *codes, enum remote_kind kind,
                                     uint64_t number);
/* The same, made if it is not there. NULL without memory. */
struct remote_code *remote_code_add(struct remote_codes **codes, enum remote_kind kind,
                                    uint64_t number);
/* Has it belong to a module, or to none. */
void remote_code_own(struct remote_code *code, struct remote_code *owner);
/* Removes it, and the functions that belong to it, to which nothing belongs. */
void remote_code_remove(struct remote_codes **codes, struct remote_code *code);

#endif
