/*
 * One environment variable, shown to the driver with our value while it initialises.
 *
 * The variable is not set, so the program and its children keep their own. Instead `environ` points
 * to a copy of the array that has our entry, as long as a thread is inside the driver's cuInit.
 */
#ifndef DIVVY_CUDA_ENVIRONMENT_H
#define DIVVY_CUDA_ENVIRONMENT_H

#include <stdbool.h>

#define ENVIRONMENT_ENTRY 2048u /* bytes of "NAME=value" with its NUL */

/* Shows `entry` ("NAME=value") until the matching environment_leave. Calls nest and may come from
 * several threads; the first one's entry counts. False if there is no memory: nothing to leave. */
bool environment_enter(const char *entry);
void environment_leave(void);

#endif
