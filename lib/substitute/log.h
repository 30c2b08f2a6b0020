/* What our libraries say about themselves: nothing, unless the environment variable DIVVY_LOG asks.
 *
 * DIVVY_LOG=stderr writes to standard error, any other value is a file to append to. Programs that
 * gained privileges by setuid are never asked. Each line is one write, so lines of several
 * processes in one file do not mix. No function here allocates or changes errno. */
#ifndef DIVVY_SUBSTITUTE_LOG_H
#define DIVVY_SUBSTITUTE_LOG_H

#include <stdbool.h>

/* Writes "divvy[pid] ", the text (cut at about 500 bytes) and a newline, if asked to. */
__attribute__((visibility("hidden"), format(printf, 1, 2))) void dv_log(const char *format, ...);

#endif
