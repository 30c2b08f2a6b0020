/* Descriptors, which go through the socket beside the rings: each in a message of 8 bytes, its number. */
#define _GNU_SOURCE /* MSG_CMSG_CLOEXEC */
#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "libc/cancel.h"
#include "remote/link_inside.h"

bool remote_link_give(struct remote_link *link, uint64_t number, int descriptor) {
    UNCANCELLED;
    _Alignas(struct cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {0};
    struct iovec part = {.iov_base = &number, .iov_len = sizeof number};
    struct msghdr message = {.msg_iov = &part,
                             .msg_iovlen = 1,
                             .msg_control = control,
                             .msg_controllen = sizeof control};
    ssize_t sent = -1;
    int saved = errno;

    if (link->kind != REMOTE_LINK_RINGS) {
        return false;
    }
    struct cmsghdr *head = CMSG_FIRSTHDR(&message);
    *head = (struct cmsghdr){
        .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS, .cmsg_len = CMSG_LEN(sizeof(int))};
    memcpy(CMSG_DATA(head), &descriptor, sizeof descriptor);
    while (!remote_link_ended(link)) {
        sent = sendmsg(link->socket, &message, MSG_DONTWAIT | MSG_NOSIGNAL);
        if (sent < 0 && errno == EAGAIN) {
            /* The other side asks for descriptors when it meets the frames that name them. */
            remote_rings_flush(link);
            remote_link_poll(link, link->socket, POLLOUT, INT64_MAX);
        } else if (sent >= 0 || errno != EINTR) {
            break;
        }
    }
    errno = saved;
    return sent == (ssize_t)sizeof number;
}

/* The descriptor of a message, -1 without one; -2 if there are more. */
static int only_one(struct msghdr *message) {
    int descriptor = -1;

    for (struct cmsghdr *head = CMSG_FIRSTHDR(message); head; head = CMSG_NXTHDR(message, head)) {
        if (head->cmsg_level != SOL_SOCKET || head->cmsg_type != SCM_RIGHTS) {
            continue;
        }
        size_t count = (head->cmsg_len - CMSG_LEN(0)) / sizeof(int);
        for (size_t i = 0; i < count; i++) {
            int one;
            memcpy(&one, CMSG_DATA(head) + i * sizeof(int), sizeof one);
            if (descriptor == -1) {
                descriptor = one;
                continue;
            }
            close(one);
            if (descriptor >= 0) {
                close(descriptor);
            }
            descriptor = -2;
        }
    }
    return descriptor;
}

/* Takes one message in, and keeps its descriptor; false if there is none. */
static bool keep_next(struct remote_link *link) {
    /* With the kernel's rounding there is room for two, so that a second one is noticed. */
    _Alignas(struct cmsghdr) char control[CMSG_SPACE(sizeof(int))];
    uint64_t number;
    struct iovec part = {.iov_base = &number, .iov_len = sizeof number};
    struct msghdr message = {.msg_iov = &part,
                             .msg_iovlen = 1,
                             .msg_control = control,
                             .msg_controllen = sizeof control};
    ssize_t got = recvmsg(link->socket, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);

    if (got <= 0) {
        return got < 0 && errno == EINTR;
    }
    int descriptor = only_one(&message);
    bool full = link->kept == REMOTE_MOST_KEPT;
    if (got != (ssize_t)sizeof number || descriptor == -2 || full) {
        if (descriptor >= 0) {
            close(descriptor);
        }
        remote_link_fault(link, full ? REMOTE_OTHER(link, "passed too many descriptors")
                                     : REMOTE_OTHER(link, "passed descriptors in another way"));
        return false;
    }
    /* Without a descriptor: this process has no room for one. Whoever asks for it then hears that there is none. */
    if (descriptor >= 0) {
        link->keep[link->kept].number = number;
        link->keep[link->kept].descriptor = descriptor;
        link->kept++;
    }
    return true;
}

static int find(struct remote_link *link, uint64_t number) {
    for (size_t i = 0; i < link->kept; i++) {
        if (link->keep[i].number == number) {
            int descriptor = link->keep[i].descriptor;
            link->keep[i] = link->keep[--link->kept];
            return descriptor;
        }
    }
    return -1;
}

int remote_link_receive(struct remote_link *link, uint64_t number) {
    UNCANCELLED;
    int saved = errno, descriptor = -1;

    if (link->kind != REMOTE_LINK_RINGS) {
        return -1;
    }
    pthread_mutex_lock(&link->keeping);
    do {
        descriptor = find(link, number);
    } while (descriptor < 0 && keep_next(link));
    pthread_mutex_unlock(&link->keeping);
    errno = saved;
    return descriptor;
}
