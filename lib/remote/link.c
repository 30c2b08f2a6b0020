#define _GNU_SOURCE /* O_PATH */
#include "remote/link.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include "libc/cancel.h"
#include "remote/link_inside.h"

static struct remote_link *make(int socket, char why[REMOTE_WHY_BYTES]) {
    struct remote_link *link = mmap(NULL, sizeof *link, PROT_READ | PROT_WRITE,
                                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

    if (link == MAP_FAILED) {
        snprintf(why, REMOTE_WHY_BYTES, "no memory for the link: %s", strerror(errno));
        close(socket);
        return NULL;
    }
    link->socket = socket;
    link->out.wake = link->in.wake = -1;
    pthread_mutex_init(&link->keeping, NULL);
    return link;
}

static void close_all(const int *descriptors, size_t count) {
    for (size_t i = 0; i < count; i++) {
        if (descriptors[i] >= 0) {
            close(descriptors[i]);
        }
    }
}

struct remote_link *remote_link_client(int socket, enum remote_link_kind kind, int64_t nanoseconds,
                                       char why[REMOTE_WHY_BYTES]) {
    int descriptors[REMOTE_HELLO_DESCRIPTORS] = {-1, -1, -1};
    struct remote_link *link = make(socket, why);

    if (!link) {
        return NULL;
    }
    if (!remote_hello_client(socket, &kind, remote_deadline(nanoseconds), descriptors, why) ||
        (kind == REMOTE_LINK_RINGS && !remote_rings_join(link, descriptors, why))) {
        close_all(descriptors, REMOTE_HELLO_DESCRIPTORS);
        remote_link_abandon(link);
        return NULL;
    }
    link->kind = kind;
    return link;
}

struct remote_link *remote_link_worker(int socket, int64_t nanoseconds,
                                       char why[REMOTE_WHY_BYTES]) {
    int descriptors[REMOTE_HELLO_DESCRIPTORS] = {-1, -1, -1};
    int64_t deadline = remote_deadline(nanoseconds);
    struct remote_link *link = make(socket, why);

    if (!link) {
        return NULL;
    }
    link->serves = true;
    bool good = remote_hello_worker(socket, &link->kind, deadline, why);
    if (good && link->kind == REMOTE_LINK_RINGS) {
        good = remote_rings_make(link, descriptors, why) &&
               remote_hello_answer(socket, link->kind, deadline, descriptors, why);
    } else if (good) {
        good = remote_hello_answer(socket, link->kind, deadline, NULL, why);
    }
    /* The client has its own now. */
    close_all(descriptors, REMOTE_HELLO_DESCRIPTORS);
    if (!good) {
        remote_link_abandon(link);
        return NULL;
    }
    return link;
}

/* A path that is too long for an address is reached by its descriptor. */
static bool set_address(struct sockaddr_un *address, const char *path, int *descriptor) {
    address->sun_family = AF_UNIX;
    if (strlen(path) < sizeof address->sun_path) {
        memcpy(address->sun_path, path, strlen(path) + 1);
        return true;
    }
    *descriptor = open(path, O_PATH | O_CLOEXEC);
    if (*descriptor < 0) {
        return false;
    }
    snprintf(address->sun_path, sizeof address->sun_path, "/proc/self/fd/%d", *descriptor);
    return true;
}

struct remote_link *remote_link_connect(const char *path, char why[REMOTE_WHY_BYTES]) {
    UNCANCELLED;
    struct sockaddr_un address = {0};
    /* A worker whose queue is full keeps connect waiting as long as it would keep a write. */
    struct timeval most = {.tv_sec = (time_t)(REMOTE_HELLO_NS / 1000000000)};
    int detour = -1, result = -1, saved = errno;
    int connection = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

    if (connection >= 0 && set_address(&address, path, &detour)) {
        setsockopt(connection, SOL_SOCKET, SO_SNDTIMEO, &most, sizeof most);
        do {
            result = connect(connection, (const struct sockaddr *)&address, sizeof address);
        } while (result < 0 && errno == EINTR);
    }
    if (result < 0) {
        snprintf(why, REMOTE_WHY_BYTES, "connect to %.150s: %s", path,
                 errno == EAGAIN ? "nobody accepts" : strerror(errno));
    }
    close_all(&detour, 1);
    if (result < 0) {
        close_all(&connection, 1);
        errno = saved;
        return NULL;
    }
    struct remote_link *link =
        remote_link_client(connection, REMOTE_LINK_RINGS, REMOTE_ANSWER_NS, why);
    errno = saved;
    return link;
}

struct remote_link *remote_link_accept(int socket, char why[REMOTE_WHY_BYTES]) {
    return remote_link_worker(socket, REMOTE_HELLO_NS, why);
}

bool remote_link_put(struct remote_link *link, const void *head, size_t head_size,
                     const struct remote_piece *pieces, size_t count) {
    size_t size = head_size;
    uint32_t said;

    for (size_t i = 0; i < count; i++) {
        if (pieces[i].size > REMOTE_RECORD_BYTES) {
            remote_link_fault(link, "a frame is too long");
            return false;
        }
        size += remote_padded(pieces[i].size);
    }
    memcpy(&said, head, sizeof said);
    if (!remote_frame_size(size) || said != size) {
        remote_link_fault(link, "a frame has not the size that it says");
        return false;
    }
    if (remote_link_ended(link)) {
        return false;
    }
    return link->kind == REMOTE_LINK_RINGS
               ? remote_rings_put(link, head, head_size, pieces, count, size)
               : remote_stream_put(link, head, head_size, pieces, count, size);
}

void remote_link_flush(struct remote_link *link) {
    if (link->kind == REMOTE_LINK_RINGS) {
        remote_rings_flush(link);
    } else {
        remote_stream_flush(link);
    }
}

enum remote_taken remote_link_take(struct remote_link *link, void *to, size_t *size,
                                   int64_t nanoseconds) {
    if (remote_link_state(link) == REMOTE_LINK_ENDED) {
        return REMOTE_ENDED;
    }
    return link->kind == REMOTE_LINK_RINGS ? remote_rings_take(link, to, size, nanoseconds)
                                           : remote_stream_take(link, to, size, nanoseconds);
}

void *remote_link_area(struct remote_link *link, size_t *size) {
    *size = link->shared ? sizeof link->shared->area : 0;
    return link->shared ? link->shared->area : NULL;
}

void remote_link_abandon(struct remote_link *link) {
    int saved = errno;

    for (size_t i = 0; i < link->kept; i++) {
        close(link->keep[i].descriptor);
    }
    close_all((const int[]){link->out.wake, link->in.wake, link->socket}, 3);
    if (link->shared) {
        munmap(link->shared, sizeof *link->shared);
    }
    munmap(link, sizeof *link);
    errno = saved;
}

void remote_link_free(struct remote_link *link) {
    remote_link_end(link);
    pthread_mutex_destroy(&link->keeping);
    remote_link_abandon(link);
}
