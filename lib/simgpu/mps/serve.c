/* The daemon at work: everybody who asks has a connection of its own. */
#define _GNU_SOURCE
#include "simgpu/mps/mps.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
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
    (void)send(socket, SG_JOIN_GREETING, sizeof SG_JOIN_GREETING, MSG_NOSIGNAL | MSG_DONTWAIT);
    *ui = (struct mps_ui){.daemon = daemon, .socket = socket, .user = who.uid, .pid = who.pid};
    return true;
}

static bool is_join(const char *packet, ssize_t length) {
    return length == (ssize_t)sizeof(struct sg_join_request) && packet[0] == SG_JOIN_CLIENT;
}

/* Answers one packet; false when the connection is no longer this one's to answer. */
static bool answer(struct mps_ui *ui) {
    char line[1 + MPS_LINE_BYTES];
    struct sg_join_request request;
    ssize_t length = recv(ui->socket, line, sizeof line - 1, MSG_DONTWAIT);

    if (length < 0 && (errno == EAGAIN || errno == EINTR)) {
        return true;
    }
    if (length > 0 && is_join(line, length) && !ui->asks) {
        memcpy(&request, line, sizeof request);
        if (mps_wait(ui->daemon, ui, &request)) {
            ui->socket = -1;
        }
        return false;
    }
    if (length <= 0) {
        return false;
    }
    if (!ui->asks) {
        mps_note(ui->daemon, "NEW UI");
        ui->asks = true;
    }
    line[length] = '\0';
    mps_obey(ui, line + 1);
    if (ui->daemon->quitter != ui->socket) {
        mps_send(ui, MPS_DONE, "");
    }
    return true;
}

static void end(struct mps_ui *ui) {
    if (ui->socket >= 0) {
        mps_note(ui->daemon, "UI closed");
        close(ui->socket);
    }
}

void mps_serve(struct mps_daemon *daemon, const int listeners[LISTENERS]) {
    struct pollfd ready[LISTENERS + UIS];
    struct mps_ui uis[UIS];
    nfds_t count = 0;
    int wait_ms;

    while (wait_ms = mps_settle(daemon), !daemon->ended) {
        for (int i = 0; i < LISTENERS; i++) {
            ready[i] = (struct pollfd){.fd = listeners[i],
                                       .events = count + LISTENERS <= UIS ? POLLIN : 0};
        }
        for (nfds_t i = 0; i < count; i++) {
            ready[LISTENERS + i] = (struct pollfd){.fd = uis[i].socket, .events = POLLIN};
        }
        if (poll(ready, LISTENERS + count, wait_ms) < 0) {
            continue;
        }
        for (nfds_t i = count; i-- > 0 && !daemon->ended;) {
            if (ready[LISTENERS + i].revents && !answer(&uis[i])) {
                end(&uis[i]);
                uis[i] = uis[--count];
            }
        }
        for (int i = 0; i < LISTENERS && !daemon->ended; i++) {
            count += (ready[i].revents & POLLIN) && greet(daemon, listeners[i], &uis[count]);
        }
    }
}
