/* Where the worker is found, and what is left beside it. */
#define _GNU_SOURCE
#include "libc/cancel.h"
#include "remote/client/inside.h"

#include <dirent.h>
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

/* Reads the first line of a file beside the socket, of the kind and with the number in its name; false if it has none. */
static bool line_beside(const char *path, const char *kind, unsigned number, char *line,
                        size_t room) {
    UNCANCELLED;
    char name[REMOTE_PATH_BYTES];
    const char *slash = path ? strrchr(path, '/') : NULL;
    int saved = errno, file = -1;
    ssize_t size = -1;

    int length = snprintf(name, sizeof name, "%.*s%s-%u", slash ? (int)(slash - path) + 1 : 0,
                          path ? path : "", kind, number);
    if (path && length > 0 && (size_t)length < sizeof name) {
        file = open(name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    }
    if (file >= 0) {
        size = read(file, line, room - 1);
        close(file);
    }
    errno = saved;
    if (size <= 0) {
        return false;
    }
    line[size] = '\0';
    line[strcspn(line, "\n")] = '\0';
    return line[0] != '\0';
}

/* The file's name has the process's number, as the hello did. */
bool remote_socket_reason(const char *path, char reason[REMOTE_REASON_BYTES]) {
    return line_beside(path, "ended", (unsigned)getpid(), reason, REMOTE_REASON_BYTES);
}

unsigned remote_socket_client(unsigned worker) {
    char room[REMOTE_PATH_BYTES], line[16];
    bool has =
        line_beside(remote_socket_path(room, sizeof room), "worker", worker, line, sizeof line);

    return has ? (unsigned)strtoul(line, NULL, 10) : 0;
}

bool remote_socket_shares(unsigned process) {
    UNCANCELLED;
    static const char kind[] = "worker-";
    char room[REMOTE_PATH_BYTES];
    const char *path = remote_socket_path(room, sizeof room);
    const char *slash = path ? strrchr(path, '/') : NULL;
    int saved = errno;
    bool shares = false;

    if (!slash) {
        return false;
    }
    if (path != room) {
        snprintf(room, sizeof room, "%s", path);
    }
    room[slash - path + 1] = '\0';
    DIR *folder = opendir(room);
    const struct dirent *entry;
    while (folder && !shares && (entry = readdir(folder)) != NULL) {
        shares = strncmp(entry->d_name, kind, sizeof kind - 1) == 0 &&
                 remote_socket_client(
                     (unsigned)strtoul(entry->d_name + sizeof kind - 1, NULL, 10)) == process;
    }
    if (folder) {
        closedir(folder);
    }
    errno = saved;
    return shares;
}
