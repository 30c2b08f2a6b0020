/*
 * Which GPUs of the share a program wants to see, from its CUDA_VISIBLE_DEVICES.
 *
 * The value is read as the driver documents it, with the share in the place of the machine: a list
 * of indices into the share, of UUIDs ("GPU-" and enough digits to be the only one) or of MIG
 * instances; the first entry that names nothing ends the list; one named twice voids it. No value
 * can name a GPU outside the share. Pure functions.
 */
#ifndef DIVVY_CUDA_VISIBLE_H
#define DIVVY_CUDA_VISIBLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define VISIBLE_MAX 16u
#define VISIBLE_TEXT 64u /* "MIG-GPU-" + UUID + "/" + instance + "/" + instance, and to spare */

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

/* What value (NULL: the variable is not set) leaves of the share's GPUs, in the order to show. */
void visible_choose(const uint8_t (*uuids)[16], unsigned count, const char *value,
                    struct choices *choices);

/* Writes the driver's value for the choices, always NUL-terminated; false if it was cut. */
bool visible_write(const struct choices *choices, char *out, size_t size);

#endif
