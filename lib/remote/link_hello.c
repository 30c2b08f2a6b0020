/* What both sides say first. The client says what it wants, the worker what it does; neither goes on with a side of another
 * protocol. Later protocols keep the first 16 bytes, so that any two versions can tell each other apart. */
#define _GNU_SOURCE /* MSG_CMSG_CLOEXEC */
#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "libc/cancel.h"
#include "remote/generated/numbers/numbers.h"
#include "remote/link_inside.h"

/* The last character counts up with what the hello itself is, which REMOTE_PROTOCOL does not cover. */
static const char magic[8] = {'D', 'I', 'V', 'V', 'Y', 'R', 'L', '1'};

struct remote_hello {
    char magic[8];
    uint64_t protocol;
    uint32_t kind;    /* what is wanted, or is done; between hosts REMOTE_LINK_STREAM */
    uint32_t process; /* as its own namespace numbers it */
    uint64_t zero;
};
_Static_assert(sizeof(struct remote_hello) == 32, "remote_hello");

static struct remote_hello own(enum remote_link_kind kind) {
    struct remote_hello hello = {
        .protocol = REMOTE_PROTOCOL, .kind = kind, .process = (uint32_t)getpid()};

    memcpy(hello.magic, magic, sizeof magic);
    return hello;
}

/* Waits for the socket; false at the deadline. */
static bool ready(int socket, short events, int64_t deadline) {
    UNCANCELLED;
    struct pollfd polled = {.fd = socket, .events = events};
    int result;

    do {
        int64_t left = deadline - remote_now();
        if (left <= 0) {
            return false;
        }
        result = poll(&polled, 1, (int)(left / 1000000 < INT32_MAX ? left / 1000000 + 1 : -1));
    } while (result <= 0);
    return true;
}

static bool say(int socket, const struct remote_hello *hello, const int *descriptors,
                int64_t deadline, char why[REMOTE_WHY_BYTES]) {
    _Alignas(struct cmsghdr) char control[CMSG_SPACE(REMOTE_HELLO_DESCRIPTORS * sizeof(int))] = {0};
    struct iovec part = {.iov_base = (void *)(uintptr_t)hello, .iov_len = sizeof *hello};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
    ssize_t sent;

    if (descriptors) {
        message.msg_control = control;
        message.msg_controllen = sizeof control;
        struct cmsghdr *head = CMSG_FIRSTHDR(&message);
        *head = (struct cmsghdr){.cmsg_level = SOL_SOCKET,
                                 .cmsg_type = SCM_RIGHTS,
                                 .cmsg_len = CMSG_LEN(REMOTE_HELLO_DESCRIPTORS * sizeof(int))};
        memcpy(CMSG_DATA(head), descriptors, REMOTE_HELLO_DESCRIPTORS * sizeof(int));
    }
    do {
        sent = sendmsg(socket, &message, MSG_DONTWAIT | MSG_NOSIGNAL);
    } while (sent < 0 && (errno == EINTR || (errno == EAGAIN && ready(socket, POLLOUT, deadline))));
    /* An empty socket takes so few bytes whole. */
    if (sent != (ssize_t)sizeof *hello) {
        snprintf(why, REMOTE_WHY_BYTES, "the hello could not be sent: %s",
                 sent < 0 ? strerror(errno) : "only a part of it was taken");
        return false;
    }
    return true;
}

/* Keeps the descriptors of a message if they are as many as there should be, and closes them otherwise. */
static bool keep(struct msghdr *message, int descriptors[REMOTE_HELLO_DESCRIPTORS]) {
    for (struct cmsghdr *head = CMSG_FIRSTHDR(message); head; head = CMSG_NXTHDR(message, head)) {
        if (head->cmsg_level != SOL_SOCKET || head->cmsg_type != SCM_RIGHTS) {
            continue;
        }
        size_t count = (head->cmsg_len - CMSG_LEN(0)) / sizeof(int);
        bool fits = count == REMOTE_HELLO_DESCRIPTORS && descriptors[0] < 0;
        for (size_t i = 0; i < count; i++) {
            int one;
            memcpy(&one, CMSG_DATA(head) + i * sizeof(int), sizeof one);
            if (fits) {
                descriptors[i] = one;
            } else {
                close(one);
            }
        }
        if (!fits) {
            return false;
        }
    }
    return (message->msg_flags & MSG_CTRUNC) == 0;
}

/* Descriptors that come where none are wanted are dropped by the kernel. */
static bool hear(int socket, struct remote_hello *hello, int *descriptors, const char *other,
                 int64_t deadline, char why[REMOTE_WHY_BYTES]) {
    _Alignas(struct cmsghdr) char control[CMSG_SPACE(REMOTE_HELLO_DESCRIPTORS * sizeof(int))];
    size_t heard = 0;

    while (heard < sizeof *hello) {
        struct iovec part = {.iov_base = (char *)hello + heard, .iov_len = sizeof *hello - heard};
        struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
        if (descriptors) {
            message.msg_control = control;
            message.msg_controllen = sizeof control;
        }
        ssize_t got = recvmsg(socket, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
        if (got > 0) {
            if (descriptors && !keep(&message, descriptors)) {
                snprintf(why, REMOTE_WHY_BYTES,
                         "%s passed other descriptors than agreed, or there "
                         "is no room for them",
                         other);
                return false;
            }
            heard += (size_t)got;
            /* Whoever does not speak this at all need not be waited for. */
            size_t first = heard < sizeof magic ? heard : sizeof magic;
            if (memcmp(hello->magic, magic, first) != 0) {
                snprintf(why, REMOTE_WHY_BYTES, "%s speaks something else than Divvy's protocol",
                         other);
                return false;
            }
        } else if (got < 0 && errno == EAGAIN) {
            if (!ready(socket, POLLIN, deadline)) {
                snprintf(why, REMOTE_WHY_BYTES, "%s said nothing%s in time", other,
                         heard ? " more" : "");
                return false;
            }
        } else if (got == 0 || errno != EINTR) {
            snprintf(why, REMOTE_WHY_BYTES, "%s ended the connection %s%s%s", other,
                     heard ? "in the middle of its hello" : "before its hello", got ? ": " : "",
                     got ? strerror(errno) : "");
            return false;
        }
    }
    return true;
}

static bool judge(const struct remote_hello *hello, const char *other, const char *this,
                  char why[REMOTE_WHY_BYTES]) {
    if (hello->protocol != REMOTE_PROTOCOL) {
        snprintf(why, REMOTE_WHY_BYTES,
                 "the %s speaks protocol %016" PRIx64 ", this %s %016" PRIx64
                 ": install the same version of Divvy on both",
                 other, hello->protocol, this, (uint64_t)REMOTE_PROTOCOL);
        return false;
    }
    if ((hello->kind != REMOTE_LINK_RINGS && hello->kind != REMOTE_LINK_STREAM) || hello->zero) {
        snprintf(why, REMOTE_WHY_BYTES, "the %s's hello is wrong", other);
        return false;
    }
    return true;
}

bool remote_hello_client(int socket, enum remote_link_kind *kind, int64_t deadline,
                         int descriptors[REMOTE_HELLO_DESCRIPTORS], char why[REMOTE_WHY_BYTES]) {
    struct remote_hello hello = own(*kind);

    if (!say(socket, &hello, NULL, deadline, why) ||
        !hear(socket, &hello, descriptors, "the worker", deadline, why) ||
        !judge(&hello, "worker", "program", why)) {
        return false;
    }
    /* A wish for rings may be answered with a stream, never the other way round. */
    if ((hello.kind == REMOTE_LINK_RINGS) != (descriptors[0] >= 0) ||
        (hello.kind == REMOTE_LINK_RINGS && *kind != REMOTE_LINK_RINGS)) {
        snprintf(why, REMOTE_WHY_BYTES, "the worker's hello does not fit what it passed");
        return false;
    }
    *kind = (enum remote_link_kind)hello.kind;
    return true;
}

bool remote_hello_worker(int socket, enum remote_link_kind *kind, int64_t deadline,
                         char why[REMOTE_WHY_BYTES]) {
    struct remote_hello hello;
    char unsaid[REMOTE_WHY_BYTES];

    if (!hear(socket, &hello, NULL, "the program", deadline, why)) {
        return false;
    }
    if (!judge(&hello, "program", "worker", why)) {
        /* So that the client can say what is wrong as well. */
        struct remote_hello answer = own(REMOTE_LINK_STREAM);
        say(socket, &answer, NULL, deadline, unsaid);
        return false;
    }
    *kind = (enum remote_link_kind)hello.kind;
    return true;
}

bool remote_hello_answer(int socket, enum remote_link_kind kind, int64_t deadline,
                         const int *descriptors, char why[REMOTE_WHY_BYTES]) {
    struct remote_hello hello = own(kind);

    return say(socket, &hello, descriptors, deadline, why);
}
