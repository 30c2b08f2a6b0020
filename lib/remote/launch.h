/* What both sides know of a launch's record: its words, and which attributes are served. */
#ifndef DIVVY_REMOTE_LAUNCH_H
#define DIVVY_REMOTE_LAUNCH_H

#include <stdbool.h>
#include <stdint.h>

/* Words: function, stream, then two values of 32 bits in each: grid and block, shared memory, bytes of parameters. */
#define REMOTE_LAUNCH_WORDS 6u
/* Of cuLaunchKernelEx one more: how many attributes. */
#define REMOTE_LAUNCH_ATTRIBUTES 6u
#define REMOTE_MOST_ATTRIBUTES 64u

/* Which bit of the head's `given` says what the record has. */
#define REMOTE_GIVEN_ATTRIBUTES 0u
#define REMOTE_GIVEN_PARAMS 9u /* packed by the kernel's layout */
#define REMOTE_GIVEN_EXTRA 10u /* packed by the program */

/* Attributes that are values, or events: what the documentation of CUDA 13 names, but for 13, which has the driver tell a
 * handle for use on the GPU alone. */
static inline bool remote_attribute_served(uint32_t id) {
    return id <= 16 && id != 13 && id != 15;
}

#endif
