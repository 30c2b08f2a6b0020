#define _GNU_SOURCE
#include "remote/worker/clients.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#ifndef SYS_pidfd_open
#define SYS_pidfd_open 434
#endif

/* A worker that does not end is no reason to keep the next program from its work. */
#define MOST_MS 2000

struct pair {
    pid_t worker, client;
    int ended; /* a descriptor of the client's process, which can be read when that has ended; -1 for none */
};

struct remote_clients {
    unsigned count;
    struct pair pairs[];
};

struct remote_clients *remote_clients_new(unsigned most) {
    return calloc(1, sizeof(struct remote_clients) + most * sizeof(struct pair));
}

void remote_clients_free(struct remote_clients *clients) {
    free(clients);
}

unsigned remote_clients_count(const struct remote_clients *clients) {
    return clients->count;
}

void remote_clients_add(struct remote_clients *clients, pid_t worker, pid_t client) {
    /* A client of another pid namespace has no number here, and kernels before 5.3 know no such descriptors. */
    int ended = client > 0 ? (int)syscall(SYS_pidfd_open, client, 0) : -1;

    clients->pairs[clients->count++] = (struct pair){worker, client, ended};
}

static void forget(struct pair *pair) {
    if (pair->ended >= 0) {
        close(pair->ended);
    }
    pair->ended = -1;
}

unsigned remote_clients_watched(const struct remote_clients *clients, struct pollfd *into) {
    unsigned count = 0;

    for (unsigned i = 0; i < clients->count; i++) {
        if (clients->pairs[i].ended >= 0) {
            into[count++] = (struct pollfd){.fd = clients->pairs[i].ended, .events = POLLIN};
        }
    }
    return count;
}

void remote_clients_continue(struct remote_clients *clients, const struct pollfd *polled,
                             unsigned count) {
    for (unsigned i = 0; i < count; i++) {
        for (unsigned k = 0; polled[i].revents && k < clients->count; k++) {
            if (clients->pairs[k].ended == polled[i].fd) {
                kill(clients->pairs[k].worker, SIGCONT);
                forget(&clients->pairs[k]);
            }
        }
    }
}

void remote_clients_remove(struct remote_clients *clients, pid_t worker) {
    for (unsigned i = 0; i < clients->count; i++) {
        if (clients->pairs[i].worker == worker) {
            forget(&clients->pairs[i]);
            clients->pairs[i] = clients->pairs[--clients->count];
            return;
        }
    }
}

static int milliseconds_until(const struct timespec *end) {
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    long left = (long)(end->tv_sec - now.tv_sec) * 1000 + (end->tv_nsec - now.tv_nsec) / 1000000;
    return left > 0 ? (int)left : 0;
}

/* Kernels before 5.3 know no descriptor of a process: there nobody waits. */
static void await_end(pid_t worker, const struct timespec *end) {
    struct pollfd ended = {.fd = (int)syscall(SYS_pidfd_open, worker, 0), .events = POLLIN};

    if (ended.fd < 0) {
        return;
    }
    while (poll(&ended, 1, milliseconds_until(end)) < 0 && errno == EINTR) {
    }
    close(ended.fd);
}

void remote_clients_await_ends(const struct remote_clients *clients) {
    struct timespec end;

    clock_gettime(CLOCK_MONOTONIC, &end);
    end.tv_sec += MOST_MS / 1000;
    for (unsigned i = 0; i < clients->count; i++) {
        const struct pair *pair = &clients->pairs[i];
        /* A client of another pid namespace has no number here. */
        if (pair->client > 0 && kill(pair->client, 0) != 0 && errno == ESRCH) {
            await_end(pair->worker, &end);
        }
    }
}
