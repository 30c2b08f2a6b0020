/* Where the worker is found, and what is left beside it. */
#define _GNU_SOURCE
#include "libc/cancel.h"
#include "remote/client/inside.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char here;

const char *remote_socket_path(char *room, size_t size) {
    Dl_info self;

    if (dladdr(&here, &self) && self.dli_fname) {
        const char *slash = strrchr(self.dli_fname, '/');
        size_t folder = slash ? (size_t)(slash - self.dli_fname) + 1 : 0;
        int length = snprintf(room, size, "%.*sworker.sock", (int)folder, self.dli_fname);
        if (length > 0 && (size_t)length < size && access(room, F_OK) == 0) {
            return room;
        }
    }
    return secure_getenv("DIVVY_REMOTE_SOCKET");
}

/* The file's name has the process's number, as the hello did. */
bool remote_socket_reason(const char *path, char reason[REMOTE_REASON_BYTES]) {
    UNCANCELLED;
    char name[REMOTE_PATH_BYTES];
    const char *slash = path ? strrchr(path, '/') : NULL;
    int saved = errno, file = -1;
    ssize_t size = -1;

    int length = snprintf(name, sizeof name, "%.*sended-%d", slash ? (int)(slash - path) + 1 : 0,
                          path ? path : "", (int)getpid());
    if (path && length > 0 && (size_t)length < sizeof name) {
        file = open(name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    }
    if (file >= 0) {
        size = read(file, reason, REMOTE_REASON_BYTES - 1);
        close(file);
    }
    errno = saved;
    if (size <= 0) {
        return false;
    }
    reason[size] = '\0';
    reason[strcspn(reason, "\n")] = '\0';
    return reason[0] != '\0';
}
