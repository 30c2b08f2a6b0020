#define _GNU_SOURCE
#include "remote/worker/listen.h"

#include "libc/kernel.h"
#include "remote/worker/clients.h"
#include "remote/worker/serve.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

/* The descriptor on which a worker finds its client. */
#define WORKER_SOCKET 3
#define BACKLOG 128
/* Of what is polled: signals, socket and life. */
#define OWN 3u

struct listener {
    const struct remote_listening *how;
    int socket;  /* -1 once nobody is accepted any more */
    int signals; /* SIGCHLD, and what ends the listening */
    int life;
    struct remote_clients *clients; /* of the workers there are */
    bool full;                      /* somebody was turned away, and the log has it */
    pid_t self;
    struct stat made; /* the socket's file, so that no other's is removed */
};

/* The address of a path, however long: that of its folder's descriptor, which the caller closes, and its last part. */
static bool address_of(const char *path, struct sockaddr_un *address, int *folder) {
    const char *slash = strrchr(path, '/');
    const char *last = slash ? slash + 1 : path;
    int size;

    *folder = -1;
    memset(address, 0, sizeof *address);
    address->sun_family = AF_UNIX;
    if (strlen(path) < sizeof address->sun_path) {
        size = snprintf(address->sun_path, sizeof address->sun_path, "%s", path);
        return size > 0;
    }
    char *name = slash ? strndup(path, (size_t)(last - path)) : strdup(".");
    *folder = name ? open(name, O_PATH | O_DIRECTORY | O_CLOEXEC) : -1;
    free(name);
    if (*folder < 0) {
        return false;
    }
    size =
        snprintf(address->sun_path, sizeof address->sun_path, "/proc/self/fd/%d/%s", *folder, last);
    if (size >= (int)sizeof address->sun_path) {
        close(*folder);
        *folder = -1;
        errno = ENAMETOOLONG;
        return false;
    }
    return true;
}

/* Removes the socket of a listener that is gone. False if somebody listens there, or it is no socket. */
static bool remove_stale(const char *path, const struct sockaddr_un *address) {
    struct stat found;

    if (kernel_lstat(path, &found)) {
        return errno == ENOENT;
    }
    if (!S_ISSOCK(found.st_mode)) {
        errno = EEXIST;
        return false;
    }
    int probe = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (probe < 0) {
        return false;
    }
    int failed = connect(probe, (const struct sockaddr *)address, sizeof *address);
    int why = errno;
    close(probe);
    if (!failed || why != ECONNREFUSED) {
        errno = failed ? why : EADDRINUSE;
        return false;
    }
    return unlink(path) == 0;
}

static bool bind_here(struct listener *l) {
    const char *path = l->how->path;
    struct sockaddr_un address;
    int folder;

    if (!address_of(path, &address, &folder)) {
        return false;
    }
    l->socket = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    bool bound = l->socket >= 0 && remove_stale(path, &address);
    if (bound) {
        /* The user alone may connect, from the moment on when the file is there. */
        mode_t before = umask(0177);

        bound = bind(l->socket, (const struct sockaddr *)&address, sizeof address) == 0;
        umask(before);
    }
    int why = errno;
    if (folder >= 0) {
        close(folder);
    }
    errno = why;
    return bound && kernel_lstat(path, &l->made) == 0 &&
           (l->how->user == geteuid() || chown(path, l->how->user, (gid_t)-1) == 0) &&
           listen(l->socket, BACKLOG) == 0;
}

/* The kernel continues this process when nobody has the other end any more, even if the program has stopped it: then it
 * hears of that. */
static void keep_life(int life) {
    fcntl(life, F_SETFD, FD_CLOEXEC);
    fcntl(life, F_SETSIG, SIGCONT);
    fcntl(life, F_SETOWN, getpid());
    fcntl(life, F_SETFL, fcntl(life, F_GETFL) | O_ASYNC);
}

/* Listens at a socket that somebody else has bound, who removes it too. */
static bool listen_bound(struct listener *l) {
    int flags = fcntl(l->how->bound, F_GETFL);

    l->socket = l->how->bound;
    return flags >= 0 && fcntl(l->socket, F_SETFL, flags | O_NONBLOCK) == 0 &&
           fcntl(l->socket, F_SETFD, FD_CLOEXEC) == 0 && listen(l->socket, BACKLOG) == 0;
}

/* Accepts nobody any more, and removes the socket if it is still this one. */
static void stop(struct listener *l) {
    struct stat found;

    if (l->socket < 0) {
        return;
    }
    close(l->socket);
    l->socket = -1;
    if (l->how->bound < 0 && kernel_lstat(l->how->path, &found) == 0 &&
        found.st_ino == l->made.st_ino && found.st_dev == l->made.st_dev) {
        unlink(l->how->path);
    }
}

static void close_range_of(unsigned first, unsigned last) {
    if (first > last) {
        return;
    }
#ifdef SYS_close_range
    if (syscall(SYS_close_range, first, last, 0) == 0) {
        return;
    }
#endif
    long most = sysconf(_SC_OPEN_MAX);

    for (long i = (long)first; i <= (long)last && i < (most < 0 ? 1024 : most); i++) {
        close((int)i);
    }
}

static void close_from(unsigned first) {
    close_range_of(first, ~0u);
}

/* Closes what was left open for somebody else, such as a lock of the shell's: it would be held for as long as this process
 * lives. Those of how are kept besides the first three. */
static void close_others(const struct remote_listening *how) {
    const int kept[] = {how->bound, how->life, how->ready};
    unsigned next = STDERR_FILENO + 1;

    for (;;) {
        int least = -1;

        for (size_t i = 0; i < sizeof kept / sizeof *kept; i++) {
            if (kept[i] >= (int)next && (least < 0 || kept[i] < least)) {
                least = kept[i];
            }
        }
        if (least < 0) {
            break;
        }
        if ((unsigned)least > next) {
            close_range_of(next, (unsigned)least - 1);
        }
        next = (unsigned)least + 1;
    }
    close_from(next);
}

/* In a child: becomes a worker. It does not outlive the listener, by whose end the share is known to be free. */
static _Noreturn void become_worker(const struct listener *l, int client, pid_t of) {
    char number[16];
    char *const given[] = {"divvy-worker", "--socket", "3", "--client", number, NULL};
    sigset_t none;

    snprintf(number, sizeof number, "%d", (int)of);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != l->self) {
        _exit(1);
    }
    remote_clients_await_ends(l->clients);
    if (client == WORKER_SOCKET) {
        fcntl(client, F_SETFD, 0);
    } else {
        dup2(client, WORKER_SOCKET);
    }
    close_from(WORKER_SOCKET + 1);
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    execv("/proc/self/exe", given);
    _exit(1);
}

/* Whether the process at the other end is of the user who is served. */
static bool may_come(const struct listener *l, int client, pid_t *of) {
    struct ucred who;
    socklen_t size = sizeof who;

    if (getsockopt(client, SOL_SOCKET, SO_PEERCRED, &who, &size)) {
        return false;
    }
    *of = who.pid;
    if (who.uid != l->how->user) {
        remote_log("process %d of user %u is turned away: this worker is of user %u", (int)who.pid,
                   (unsigned)who.uid, (unsigned)l->how->user);
        return false;
    }
    return true;
}

static bool is_full(struct listener *l) {
    if (remote_clients_count(l->clients) < l->how->most) {
        l->full = false;
        return false;
    }
    if (!l->full) {
        remote_log("a client is turned away, and more may be: there are %u workers, the most",
                   l->how->most);
    }
    l->full = true;
    return true;
}

static void welcome(struct listener *l) {
    int client = accept4(l->socket, NULL, NULL, SOCK_CLOEXEC);
    pid_t of;

    if (client < 0) {
        return;
    }
    if (may_come(l, client, &of) && !is_full(l)) {
        pid_t child = fork();

        if (child == 0) {
            become_worker(l, client, of);
        }
        if (child < 0) {
            remote_log("cannot start a worker: %s", strerror(errno));
        }
        if (child > 0) {
            remote_clients_add(l->clients, child, of);
        }
    }
    close(client);
}

/* Reaps the workers that have ended, and says of those that were killed by what. Returns whether a signal asks for the
 * end. */
static bool hear(struct listener *l) {
    struct signalfd_siginfo heard;
    bool end = false;
    int status;
    pid_t ended;

    while (read(l->signals, &heard, sizeof heard) == sizeof heard) {
        end = end || heard.ssi_signo != SIGCHLD;
    }
    while ((ended = waitpid(-1, &status, WNOHANG)) > 0) {
        remote_clients_remove(l->clients, ended);
        if (WIFSIGNALED(status)) {
            remote_log("worker %d was ended by signal %d", (int)ended, WTERMSIG(status));
        }
    }
    return end;
}

/* Notices that the life has ended; what is written to it means nothing. */
static void feel(struct listener *l) {
    char bytes[64];
    ssize_t size = read(l->life, bytes, sizeof bytes);

    if (size == 0 || (size < 0 && errno != EINTR && errno != EAGAIN)) {
        l->life = -1;
        stop(l);
    }
}

static void run(struct listener *l, struct pollfd *on) {
    while (l->socket >= 0 || remote_clients_count(l->clients)) {
        unsigned watched = remote_clients_watched(l->clients, on + OWN);

        on[0] = (struct pollfd){.fd = l->signals, .events = POLLIN};
        on[1] = (struct pollfd){.fd = l->socket, .events = POLLIN};
        on[2] = (struct pollfd){.fd = l->life, .events = POLLIN};
        if (poll(on, OWN + watched, -1) < 0) {
            if (errno != EINTR) {
                return;
            }
            continue;
        }
        remote_clients_continue(l->clients, on + OWN, watched);
        if (on[0].revents && hear(l)) {
            return;
        }
        if (l->life >= 0 && on[2].revents) {
            feel(l);
        }
        if (l->socket >= 0 && on[1].revents) {
            welcome(l);
        }
    }
}

int remote_listen(const struct remote_listening *how) {
    struct listener l = {.how = how, .socket = -1, .life = how->life, .self = getpid()};
    sigset_t heard;

    signal(SIGPIPE, SIG_IGN);
    close_others(how);
    sigemptyset(&heard);
    sigaddset(&heard, SIGCHLD);
    sigaddset(&heard, SIGTERM);
    sigaddset(&heard, SIGINT);
    sigprocmask(SIG_BLOCK, &heard, NULL);
    l.signals = signalfd(-1, &heard, SFD_CLOEXEC | SFD_NONBLOCK);
    if (l.life >= 0) {
        keep_life(l.life);
    }
    l.clients = remote_clients_new(how->most);
    struct pollfd *polled = calloc(OWN + how->most, sizeof *polled);
    bool listens = l.signals >= 0 && l.clients && polled &&
                   (how->bound >= 0 ? listen_bound(&l) : bind_here(&l));
    if (!listens) {
        remote_log("cannot listen at %s: %s", how->path, strerror(errno));
    } else if (how->ready >= 0) {
        ssize_t told = write(how->ready, REMOTE_READY, sizeof REMOTE_READY - 1);
        (void)told; /* without its life, too, the listening ends */
        close(how->ready);
    }
    if (listens) {
        run(&l, polled);
        stop(&l);
    }
    free(polled);
    remote_clients_free(l.clients);
    return !listens;
}
