#define _GNU_SOURCE
#include "cuda/mps.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "libc/cancel.h"
#include "libc/kernel.h"
#include "substitute/log.h"

#define PATIENCE_MS 5000 /* a daemon answers within a millisecond */
#define PAUSE_MS 10
#define MIB_BYTES ((uint64_t)1 << 20)

void mps_variables(const dv_share *share, bool visible, struct environment *environment) {
    static char pipe[sizeof "CUDA_MPS_PIPE_DIRECTORY=" + DV_PAGE_PIPE_BYTES];
    static char percentage[64], limit[64];
    static char each[] = "CUDA_MPS_ENABLE_PER_CTX_DEVICE_MULTIPROCESSOR_PARTITIONING";
    const dv_page_device *device = dv_share_device(share, 0);
    uint64_t mib = device->limit / MIB_BYTES;
    snprintf(pipe, sizeof pipe, "CUDA_MPS_PIPE_DIRECTORY=%s", dv_share_mps_pipe(share));
    snprintf(percentage, sizeof percentage, "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=%u",
             device->cores > 0 ? device->cores : 100);
    /* A list that names a GPU which the client does not see is dropped as a whole. The limit is for
     * one process; the share's own holds for all of them together. */
    if (visible) {
        snprintf(limit, sizeof limit, "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT=0=%lluM",
                 (unsigned long long)(mib > 0 ? mib : 1));
    } else {
        strcpy(limit, "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT");
    }
    char *const entries[] = {pipe, percentage, limit, each};
    for (unsigned i = 0; i < sizeof entries / sizeof entries[0]; i++) {
        environment->entry[environment->count++] = entries[i];
    }
}

static int64_t now_ms(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

/* Root's, or of the user who made the share. In a user namespace that lacks both they look alike,
 * and like all other users that it lacks. */
static bool trusted(const dv_share *share, uid_t user) {
    return user == 0 || user == dv_share_owner(share);
}

/* Why clients cannot go to this directory, NULL if they can. */
static const char *wrong_with_directory(const dv_share *share, const char *pipe) {
    struct stat status;
    if (kernel_lstat(pipe, &status) != 0) {
        return strerror(errno);
    }
    if (S_ISLNK(status.st_mode)) {
        return "it is a link";
    }
    if (!S_ISDIR(status.st_mode)) {
        return "it is no directory";
    }
    if (!trusted(share, status.st_uid) || (status.st_mode & 022) != 0) {
        return "another user can write there";
    }
    return NULL;
}

/* The daemon may have as many connections waiting as it has room for, or be busy. */
static bool connect_by(int fd, const struct sockaddr_un *address, int64_t deadline) {
    while (connect(fd, (const struct sockaddr *)address, sizeof *address) != 0) {
        if ((errno != EAGAIN && errno != EINTR) || now_ms() >= deadline) {
            return false;
        }
        poll(NULL, 0, PAUSE_MS);
    }
    return true;
}

/* The daemon speaks first, as soon as it accepts. */
static bool greeted_by(int fd, int64_t deadline) {
    struct pollfd ready = {.fd = fd, .events = POLLIN};
    char greeting[64];
    for (int64_t left; (left = deadline - now_ms()) > 0;) {
        int got = poll(&ready, 1, (int)left);
        if (got > 0) {
            return recv(fd, greeting, sizeof greeting, MSG_DONTWAIT) > 0;
        }
        if (got < 0 && errno != EINTR) {
            break;
        }
    }
    return false;
}

static const char *wrong_with_daemon(const dv_share *share, const char *pipe, int fd,
                                     pid_t *daemon) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    struct ucred peer;
    socklen_t size = sizeof peer;
    int64_t deadline = now_ms() + PATIENCE_MS;
    int length = snprintf(address.sun_path, sizeof address.sun_path, "%s/control", pipe);
    if (length < 0 || (size_t)length >= sizeof address.sun_path) {
        return "its path is too long";
    }
    if (!connect_by(fd, &address, deadline)) {
        return strerror(errno);
    }
    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0 || !trusted(share, peer.uid)) {
        return "another user's process listens there";
    }
    if (*daemon >= 0 && *daemon != peer.pid) {
        return "another daemon was started while the driver was";
    }
    *daemon = peer.pid;
    return greeted_by(fd, deadline) ? NULL : "it does not answer";
}

CUresult mps_reach(const dv_share *share, pid_t *daemon) {
    UNCANCELLED;
    const char *pipe = dv_share_mps_pipe(share);
    if (pipe == NULL) {
        return CUDA_SUCCESS;
    }
    int saved = errno;
    const char *wrong = wrong_with_directory(share, pipe);
    if (wrong == NULL) {
        int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        wrong = fd < 0 ? strerror(errno) : wrong_with_daemon(share, pipe, fd, daemon);
        if (fd >= 0) {
            close(fd);
        }
    }
    if (wrong != NULL) {
        dv_log("cuda: the MPS control daemon of this share cannot be reached at %s: %s; without it "
               "nothing would be limited, so cuInit fails; try again in some seconds, then start "
               "the share anew or ask divvy doctor",
               pipe, wrong);
    }
    errno = saved;
    return wrong == NULL ? CUDA_SUCCESS : CUDA_ERROR_MPS_CONNECTION_FAILED;
}
