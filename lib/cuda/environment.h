/*
 * Environment variables that are shown to the driver with our values while it reads them.
 *
 * The program and its children keep their own. `environ` is pointed at a longer copy of the array,
 * which then stays: no array is ever freed or made shorter, so a thread that calls getenv(3) or
 * setenv(3) meanwhile reads nothing that is gone. In the copy each entry keeps its place.
 */
#ifndef DIVVY_CUDA_ENVIRONMENT_H
#define DIVVY_CUDA_ENVIRONMENT_H

#include <stdbool.h>

#define ENVIRONMENT_ENTRY 2048u /* bytes of "NAME=value" with its NUL */
#define ENVIRONMENT_ENTRIES 6u

/* "NAME=value" shows a variable, "NAME" alone hides it. The texts stay where they are for as long
 * as the process lives. */
struct environment {
    unsigned count;
    char *entry[ENVIRONMENT_ENTRIES];
};

/* Shows the entries until the matching environment_leave. Calls nest and may come from several
 * threads; the first one's entries count. False if there is no memory: nothing to leave. */
bool environment_enter(const struct environment *environment);

/* False if the program put something else in the place of an entry since the first
 * environment_enter, so that the driver may have read that. */
bool environment_leave(void);

#endif
