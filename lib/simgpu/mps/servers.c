/* The daemon's servers, and who waits for them: nvidia-cuda-mps-control(1), DESCRIPTION.
 *
 * One server serves one user, unless the daemon serves all by one. Whoever asks while another user's server runs waits
 * until that has no clients; the daemon ends it then. Users wait in the order in which they asked. */
#define _GNU_SOURCE
#include "simgpu/mps/server.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define LOOK_MS                                                                                    \
    20 /* while something waits for processes to end, of which nobody tells the daemon */
#define IDLE_LOOK_MS 100

/* ---- servers ---- */

struct mps_server *mps_server_find(struct mps_daemon *daemon, int pid) {
    for (uint32_t i = 0; i < SG_SERVERS_MAX; i++) {
        if (daemon->servers[i].pid != 0 && daemon->servers[i].pid == pid) {
            return &daemon->servers[i];
        }
    }
    return NULL;
}

/* Another user's server runs as that user, and needs no directory but the machine's. */
_Noreturn static void become_server(const struct mps_daemon *daemon, uid_t uid, int socket) {
    static char *const arguments[] = {MPS_SERVER_PROGRAM, NULL};
    /* NVIDIA's daemon looks on its PATH alone. */
    int opened = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
    int self = fcntl(opened, F_DUPFD_CLOEXEC, MPS_SERVER_SOCKET + 1);

    signal(SIGCHLD, SIG_DFL);
    if (setenv("DIVVY_SIMGPU", daemon->machine->dir, 1) == 0 &&
        (uid == geteuid() || setuid(uid) == 0) && dup2(socket, MPS_SERVER_SOCKET) >= 0) {
        fcntl(MPS_SERVER_SOCKET, F_SETFD, 0); /* dup2 onto itself would leave it closed on exec */
        execvp(MPS_SERVER_PROGRAM, arguments);
        fexecve(self, arguments, environ);
    }
    _exit(1);
}

static bool fork_server(struct mps_daemon *daemon, struct mps_server *server, uid_t uid) {
    struct mps_server_purpose purpose = {
        .uid = uid, .any_user = daemon->any_user, .percentage = daemon->settings.percentage};
    int ends[2];

    memcpy(purpose.limits, daemon->settings.limits, sizeof purpose.limits);
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0) {
        return false;
    }
    pid_t pid = send(ends[0], &purpose, sizeof purpose, MSG_NOSIGNAL) > 0 ? fork() : -1;
    if (pid == 0) {
        become_server(daemon, uid, ends[1]);
    }
    close(ends[1]);
    if (pid < 0) {
        close(ends[0]);
        return false;
    }
    *server =
        (struct mps_server){.pid = pid, .uid = uid, .socket = ends[0], .entry = SG_SERVERS_MAX};
    return true;
}

bool mps_server_begin(struct mps_daemon *daemon, uid_t uid) {
    struct mps_server *server = daemon->servers;

    while (server < daemon->servers + SG_SERVERS_MAX && server->pid) {
        server++;
    }
    if (server == daemon->servers + SG_SERVERS_MAX) {
        errno = EAGAIN;
    } else if (uid != geteuid() && geteuid() != 0) {
        errno = EPERM;
    } else if (fork_server(daemon, server, uid)) {
        mps_note(daemon, "Starting new server %d for user %u", server->pid, uid);
        return true;
    }
    mps_note(daemon, "Failed to start server using uid %u. %s", uid, strerror(errno));
    return false;
}

void mps_server_leave(struct mps_daemon *daemon, struct mps_server *server, bool at_once) {
    if (at_once) {
        if (daemon->driver >= MPS_STATUS_SINCE) {
            mps_note(daemon, "Force shutting down server %d", server->pid);
        }
        kill(server->pid, SIGKILL);
    }
    server->leaving = true;
}

/* How many clients a server has. */
static uint32_t clients_of(struct mps_daemon *daemon, const struct mps_server *server) {
    struct sg_instance *in = daemon->machine;
    uint32_t count = 0;

    if (server->entry < SG_SERVERS_MAX) {
        sg_state_lock(in);
        sg_reap(in);
        sg_server_recover(in, server->entry);
        count = sg_server_clients(in, server->entry);
        sg_state_unlock(in);
    }
    return count;
}

/* A server that has told that it is ready, or has ended. */
static void look_at(struct mps_daemon *daemon, struct mps_server *server) {
    struct mps_server_ready ready;
    int status = 0;

    if (server->entry == SG_SERVERS_MAX &&
        recv(server->socket, &ready, sizeof ready, MSG_DONTWAIT) == (ssize_t)sizeof ready) {
        server->entry = ready.entry;
        mps_note(daemon, "NEW SERVER %d: Ready", server->pid);
    }
    if (waitpid(server->pid, &status, WNOHANG) == server->pid) {
        mps_note(daemon, "Server %d exited with status %d", server->pid, WEXITSTATUS(status));
        mps_note(daemon, "Removed Shm file at ");
        clients_of(daemon, server); /* frees what it had */
        close(server->socket);
        server->pid = 0;
        return;
    }
    if (clients_of(daemon, server) == 0 && server->leaving && server->entry < SG_SERVERS_MAX) {
        (void)send(server->socket, "", 1, MSG_NOSIGNAL | MSG_DONTWAIT);
    }
}

/* ---- who waits ---- */

bool mps_wait(struct mps_daemon *daemon, const struct mps_ui *ui,
              const struct sg_join_request *request) {
    if (daemon->waiting == MPS_WAITERS) {
        return false;
    }
    struct mps_waiter *waiter = &daemon->waiters[daemon->waiting++];
    *waiter = (struct mps_waiter){.socket = ui->socket, .uid = ui->user, .pid = ui->pid};
    if (request) {
        waiter->request = *request;
    }
    return true;
}

static void answer(struct mps_daemon *daemon, uint32_t i, enum sg_join result, uint32_t server) {
    struct sg_join_answer packet = {.result = result, .server = server};

    if (daemon->waiters[i].socket >= 0) {
        (void)send(daemon->waiters[i].socket, &packet, sizeof packet, MSG_NOSIGNAL | MSG_DONTWAIT);
        close(daemon->waiters[i].socket);
    }
    memmove(&daemon->waiters[i], &daemon->waiters[i + 1],
            (--daemon->waiting - i) * sizeof daemon->waiters[0]);
}

/* A waiter that has ended waits for nothing. */
static bool left(const struct mps_waiter *waiter) {
    char byte;

    return waiter->socket >= 0 && recv(waiter->socket, &byte, 1, MSG_DONTWAIT | MSG_PEEK) == 0;
}

/* The server that may serve the waiter: NULL, and *other whether one of another user is in its way. */
static struct mps_server *server_for(struct mps_daemon *daemon, const struct mps_waiter *waiter,
                                     bool *other) {
    *other = false;
    for (uint32_t i = 0; i < SG_SERVERS_MAX; i++) {
        struct mps_server *server = &daemon->servers[i];
        if (server->pid == 0) {
            continue;
        }
        if (!server->leaving && (daemon->any_user || server->uid == waiter->uid)) {
            return server;
        }
        *other = true;
        server->leaving = true;
    }
    return NULL;
}

static void tell(struct mps_daemon *daemon, struct mps_waiter *waiter) {
    if (!waiter->told && waiter->socket >= 0) {
        mps_note(daemon,
                 "NEW CLIENT %d from user %u: Server is not ready, push client to pending list",
                 waiter->pid, waiter->uid);
    }
    waiter->told = true;
}

/* Serves the first who waits; false when nobody does or it has to go on waiting. */
static bool serve_first(struct mps_daemon *daemon) {
    struct mps_waiter *waiter = &daemon->waiters[0];
    const struct sg_join_request *request = &waiter->request;
    bool other;

    if (daemon->waiting == 0) {
        return false;
    }
    if (waiter->socket >= 0 && request->machine != daemon->machine->state->key_seed) {
        answer(daemon, 0, SG_JOIN_ABROAD, 0);
        return true;
    }
    struct mps_server *server = server_for(daemon, waiter, &other);
    if (left(waiter) || daemon->quitter >= 0) {
        answer(daemon, 0, SG_JOIN_REFUSED, 0);
        return true;
    }
    if (server && waiter->socket < 0) {
        answer(daemon, 0, SG_JOINED, server->entry);
        return true;
    }
    if (!server) {
        if (!other && !mps_server_begin(daemon, daemon->any_user ? geteuid() : waiter->uid)) {
            answer(daemon, 0, SG_JOIN_REFUSED, 0);
            return true;
        }
        return false;
    }
    if (server->entry == SG_SERVERS_MAX) {
        return false;
    }
    if (!waiter->told) {
        mps_note(daemon, "NEW CLIENT %d from user %u: Server already exists", waiter->pid,
                 waiter->uid);
    }
    uint32_t place = daemon->machine->state->servers[server->entry].place;
    enum sg_join result =
        sg_server_admit(daemon->machine, server->entry, request->client, request->generation,
                        mps_clients_of(daemon->machine, place, daemon->most));
    answer(daemon, 0, result, server->entry);
    return true;
}

/* A server that did not become ready cannot be had: who waited for it is told. */
static void refuse_all(struct mps_daemon *daemon, uid_t uid) {
    for (uint32_t i = daemon->waiting; i-- > 0;) {
        if (daemon->any_user || daemon->waiters[i].uid == uid) {
            answer(daemon, i, SG_JOIN_REFUSED, 0);
        }
    }
}

int mps_settle(struct mps_daemon *daemon) {
    bool any = false, soon = daemon->waiting > 0;

    for (uint32_t i = 0; i < SG_SERVERS_MAX; i++) {
        struct mps_server *server = &daemon->servers[i];
        if (server->pid == 0) {
            continue;
        }
        bool starting = server->entry == SG_SERVERS_MAX;
        if (daemon->quitter >= 0) {
            server->leaving = true;
            if (daemon->quit_at && sg_now() >= daemon->quit_at) {
                mps_server_leave(daemon, server, !server->ending);
                server->ending = true;
            }
        }
        look_at(daemon, server);
        if (server->pid == 0 && starting) {
            refuse_all(daemon, server->uid);
        }
        any |= server->pid != 0;
        soon |= server->pid != 0 && (server->leaving || server->entry == SG_SERVERS_MAX);
    }
    while (serve_first(daemon)) {
    }
    for (uint32_t i = 0; i < daemon->waiting; i++) {
        tell(daemon, &daemon->waiters[i]);
    }
    if (daemon->quitter >= 0 && !any) {
        daemon->ended = true;
    }
    return soon || daemon->waiting > 0 ? LOOK_MS : any ? IDLE_LOOK_MS : -1;
}
