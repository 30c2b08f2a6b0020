#define _GNU_SOURCE
#include "substitute/log.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "libc/cancel.h"

static void write_line(const char *line, size_t length) {
    const char *where = secure_getenv("DIVVY_LOG");
    if (where == NULL || where[0] == '\0') {
        return;
    }
    /* The file is opened for each line. Lines are rare, and a descriptor kept open would be a
     * surprise to programs that close or count theirs. */
    bool standard = strcmp(where, "stderr") == 0;
    int fd = standard ? STDERR_FILENO
                      : open(where, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NOCTTY, 0600);
    if (fd < 0) {
        return;
    }
    ssize_t written;
    do {
        written = write(fd, line, length);
    } while (written < 0 && errno == EINTR);
    if (!standard) {
        close(fd);
    }
}

void dv_log(const char *format, ...) {
    UNCANCELLED;
    int saved = errno;
    char line[512];
    int prefix = snprintf(line, sizeof line, "divvy[%d] ", (int)getpid());
    size_t room = sizeof line - (size_t)prefix - 1; /* one byte for the newline */
    va_list arguments;
    va_start(arguments, format);
    int text = vsnprintf(line + prefix, room, format, arguments);
    va_end(arguments);
    if (text >= 0) {
        size_t length = (size_t)prefix + ((size_t)text < room ? (size_t)text : room - 1);
        line[length++] = '\n';
        write_line(line, length);
    }
    errno = saved;
}
