/* What our libraries write about themselves: nothing, unless the environment variable DIVVY_LOG is
 * set.
 *
 * DIVVY_LOG=stderr writes to standard error, any other value is a file to append to. It is ignored
 * in programs that gained privileges by setuid. Each line is one write, so lines of several
 * processes in one file do not mix. No function here allocates or changes errno. */
#ifndef DIVVY_SUBSTITUTE_LOG_H
#define DIVVY_SUBSTITUTE_LOG_H

#include <stdbool.h>

/* Writes "divvy[pid] ", the text (cut at about 500 bytes) and a newline, if asked to. */
__attribute__((visibility("hidden"), format(printf, 1, 2))) void dv_log(const char *format, ...);

#endif
