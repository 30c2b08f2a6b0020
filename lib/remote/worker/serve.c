#define _GNU_SOURCE
#include "remote/worker/serve.h"

#include "remote/worker/sandbox.h"
#include "remote/worker/state.h"

#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <unistd.h>

void remote_log(const char *format, ...) {
    char line[512];
    va_list list;
    int before = snprintf(line, sizeof line, "divvy-worker[%d]: ", (int)getpid());

    va_start(list, format);
    int size = before + vsnprintf(line + before, sizeof line - (size_t)before - 1, format, list);
    va_end(list);
    size = size > (int)sizeof line - 2 ? (int)sizeof line - 2 : size;
    line[size] = '\n';
    /* One write, so that lines of several workers do not mix. Nobody hears of a log that cannot be written: who reads it may
     * be the client's friend, and a worker that waits keeps what it has of the GPU. A line is less than what a pipe takes as a
     * whole. */
    struct pollfd log = {.fd = STDERR_FILENO, .events = POLLOUT};
    if (poll(&log, 1, 0) == 1 && (log.revents & POLLOUT)) {
        ssize_t written = write(STDERR_FILENO, line, (size_t)size + 1);
        (void)written;
    }
}

/* Ends the process, of which the log has the reason where it is none of the client's. The driver's own functions for the end
 * of a process are not waited for. */
static _Noreturn void leave(struct remote_link *link, const char *why) {
    static int left;
    const char *said = link && !why[0] && !remote_link_left(link) ? remote_link_why(link) : why;

    while (__atomic_exchange_n(&left, 1, __ATOMIC_RELAXED)) {
        /* Another thread is on its way out, and may still be writing. */
        pause();
    }
    if (said && said[0]) {
        sigset_t late;

        /* Others may fill the log just when it was found to have room. */
        sigemptyset(&late);
        sigaddset(&late, SIGALRM);
        signal(SIGALRM, SIG_DFL);
        alarm(1);
        pthread_sigmask(SIG_UNBLOCK, &late, NULL);
        remote_log("%s", said);
    }
    _exit(said && said[0]);
}

/* The executor may be inside the driver for long, such as while it compiles. Whoever has lost its client ends at once. */
static void *watch(void *link) {
    remote_link_await_end(link);
    leave(link, "");
}

static bool start_watch(struct remote_link *link) {
    sigset_t all, before;
    pthread_attr_t attributes;
    pthread_t thread;

    if (pthread_attr_init(&attributes)) {
        return false;
    }
    pthread_attr_setstacksize(&attributes, 256u << 10);
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int failed = pthread_create(&thread, &attributes, watch, link);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&attributes);
    return !failed;
}

/* Serves, and says why it ended if it was not the client who ended it. */
static void serve(int socket, struct remote_link **link, char why[REMOTE_WHY_BYTES]) {
    static struct remote_cuda_driver cuda;
    static struct remote_nvml_driver nvml;

    if (!remote_sandbox_prepare(why) || !remote_driver_load(&cuda, &nvml, why)) {
        return;
    }
    if (why[0]) {
        remote_log("%s", why);
    }
    if (!remote_sandbox_enter(why) || !(*link = remote_link_accept(socket, why))) {
        return;
    }
    struct remote_worker *worker = remote_worker_new(*link, &cuda, &nvml);
    if (!worker || !start_watch(*link)) {
        snprintf(why, REMOTE_WHY_BYTES, "no memory for a worker");
        return;
    }
    remote_worker_run(worker, why);
}

_Noreturn void remote_serve(int socket) {
    struct remote_link *link = NULL;
    char why[REMOTE_WHY_BYTES] = "";

    prctl(PR_SET_NAME, "divvy-worker");
    signal(SIGPIPE, SIG_IGN);
    fcntl(socket, F_SETFD, FD_CLOEXEC);
    remote_unserved_beside(socket);
    serve(socket, &link, why);
    leave(link, why);
}
