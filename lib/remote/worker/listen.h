/* The process that accepts clients, and starts a worker for each. It never loads the driver itself. */
#ifndef DIVVY_REMOTE_LISTEN_H
#define DIVVY_REMOTE_LISTEN_H

#include <stdbool.h>
#include <sys/types.h>

#define REMOTE_READY "listening\n"

struct remote_listening {
    const char *path; /* of the socket */
    int bound; /* a socket that is bound to the path already, and is not removed at the end; -1 for none */
    int ready; /* where REMOTE_READY is written once clients can connect, and which is closed then; -1 for none */
    int life;      /* whose end-of-file ends the listening; -1 for none */
    uid_t user;    /* whose processes are served */
    unsigned most; /* workers at once */
};

/* Listens until the life has ended and no worker is left, or SIGTERM or SIGINT comes. Returns the exit status. */
int remote_listen(const struct remote_listening *how);

#endif
