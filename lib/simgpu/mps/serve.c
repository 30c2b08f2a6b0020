/* The daemon at work: everybody who asks has a connection of its own. */
#define _GNU_SOURCE
#include "simgpu/mps/mps.h"

#include <errno.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#define LISTENERS 2
#define UIS 62 /* at once; others wait until they are accepted */

static bool greet(struct mps_daemon *daemon, int listener, struct mps_ui *ui) {
    struct ucred who;
    socklen_t size = sizeof who;
    int socket = accept4(listener, NULL, NULL, SOCK_CLOEXEC);

    if (socket < 0) {
        return false;
    }
    mps_note(daemon, "Accepting connection...");
    if (getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &who, &size) != 0) {
        close(socket);
        return false;
    }
    mps_note(daemon, "NEW UI");
    (void)send(socket, MPS_GREETING, sizeof MPS_GREETING, MSG_NOSIGNAL | MSG_DONTWAIT);
    *ui = (struct mps_ui){.daemon = daemon, .socket = socket, .user = who.uid};
    return true;
}

/* Answers one command; false when nothing more comes. */
static bool answer(struct mps_ui *ui) {
    char line[1 + MPS_LINE_BYTES];
    ssize_t length = recv(ui->socket, line, sizeof line - 1, MSG_DONTWAIT);

    if (length < 0 && (errno == EAGAIN || errno == EINTR)) {
        return true;
    }
    if (length <= 0) {
        return false;
    }
    line[length] = '\0';
    mps_obey(ui, line + 1);
    if (!ui->daemon->ended) {
        mps_send(ui, MPS_DONE, "");
    }
    return true;
}

void mps_serve(struct mps_daemon *daemon, const int listeners[LISTENERS]) {
    struct pollfd ready[LISTENERS + UIS];
    struct mps_ui uis[UIS];
    nfds_t count = 0;

    while (!daemon->ended) {
        for (int i = 0; i < LISTENERS; i++) {
            ready[i] = (struct pollfd){.fd = listeners[i],
                                       .events = count + LISTENERS <= UIS ? POLLIN : 0};
        }
        for (nfds_t i = 0; i < count; i++) {
            ready[LISTENERS + i] = (struct pollfd){.fd = uis[i].socket, .events = POLLIN};
        }
        if (poll(ready, LISTENERS + count, -1) < 0) {
            continue;
        }
        for (nfds_t i = count; i-- > 0 && !daemon->ended;) {
            if (ready[LISTENERS + i].revents && !answer(&uis[i])) {
                mps_note(daemon, "UI closed");
                close(uis[i].socket);
                uis[i] = uis[--count];
            }
        }
        for (int i = 0; i < LISTENERS && !daemon->ended; i++) {
            count += (ready[i].revents & POLLIN) && greet(daemon, listeners[i], &uis[count]);
        }
    }
}
