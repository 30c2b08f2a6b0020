/*
 * Which GPUs of the share a program wants to see, from its CUDA_VISIBLE_DEVICES.
 *
 * The value is read as the driver documents it, but the indices count the GPUs of the share and not
 * those of the machine. It is a list of indices, of UUIDs ("GPU-" and enough digits to be unique)
 * or of MIG instances. The first entry that names nothing ends the list. An entry that stands twice
 * makes the whole list empty. No value can name a GPU outside the share.
 *
 * Of a share on MIG instances an index counts the instances, and the UUID of a GPU names the first
 * of the share's on it. Pure functions.
 */
#ifndef DIVVY_CUDA_VISIBLE_H
#define DIVVY_CUDA_VISIBLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define VISIBLE_MAX 16u
#define VISIBLE_TEXT 64u /* fits "MIG-GPU-" + UUID + "/" + instance + "/" + instance */

/* What the share has. */
struct granted {
    unsigned count;
    const uint8_t (*uuids)[16];
    const uint8_t (*parents)[16]; /* of MIG instances the GPUs on which they lie; NULL for GPUs */
};

/* One device to show. */
struct choice {
    char text[VISIBLE_TEXT]; /* as the driver wants it in CUDA_VISIBLE_DEVICES */
    uint8_t uuid[16];        /* of the GPU or, with `instance`, of the MIG instance */
    bool instance;           /* uuid is a MIG instance's; only the driver knows its GPU */
};

struct choices {
    unsigned count;
    struct choice at[VISIBLE_MAX];
};

/* What value leaves of the share, in the order to show. NULL: the variable is not set. */
void visible_choose(const struct granted *granted, const char *value, struct choices *choices);

/* Writes the driver's value for the choices, always NUL-terminated; false if it was cut. */
bool visible_write(const struct choices *choices, char *out, size_t size);

#endif
