/* A program that needs a local share, told to whoever started the worker: something in a file beside the socket says so.
 * Where the folder is not the worker's the file is there already, and empty. */
#define _GNU_SOURCE
#include "remote/worker/hand.h"
#include "remote/worker/serve.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

/* internal/backend/remote looks for it. */
#define UNSERVED_NAME "needs-local"

static char place[sizeof((struct sockaddr_un *)0)->sun_path + sizeof UNSERVED_NAME];

void remote_unserved_beside(int socket) {
    struct sockaddr_un own;
    socklen_t size = sizeof own;

    memset(&own, 0, sizeof own);
    if (getsockname(socket, (struct sockaddr *)&own, &size) || own.sun_family != AF_UNIX) {
        return;
    }
    const char *slash = memrchr(own.sun_path, '/', sizeof own.sun_path - 1);
    if (own.sun_path[0] == '/' && slash) {
        snprintf(place, sizeof place, "%.*s" UNSERVED_NAME, (int)(slash - own.sun_path) + 1,
                 own.sun_path);
    }
}

enum remote_outcome remote_hand_unserved(struct remote_decoder *decoder) {
    if (!remote_words(decoder, 0) || !remote_taken(decoder, true)) {
        return REMOTE_GARBLED;
    }
    int file =
        place[0] ? open(place, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0644) : -1;
    if (file >= 0) {
        ssize_t written = write(file, UNSERVED_NAME "\n", sizeof UNSERVED_NAME);
        (void)written;
        close(file);
    }
    decoder->head.given = 0;
    remote_answer(decoder, 0);
    return remote_finish(decoder);
}
