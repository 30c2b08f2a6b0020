/* The daemon at work. It serves like those of the drivers 535, 550 and 555 (traced without a GPU): it waits for the first
 * packet of whoever connects and does nothing else meanwhile, one that only connects keeps everybody waiting, and while one
 * program gives commands others are refused. Processes that ask for a server are taken beside it. */
#define _GNU_SOURCE
#include "simgpu/mps/mps.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define LISTENERS 2

static bool is_join(const char *packet, ssize_t length) {
    return length == (ssize_t)sizeof(struct sg_join_request) && packet[0] == SG_JOIN_CLIENT;
}

static ssize_t receive(int socket, char *packet, size_t size) {
    ssize_t length;

    do {
        length = recv(socket, packet, size, 0);
    } while (length < 0 && errno == EINTR);
    return length;
}

/* Obeys a packet of who gives commands. */
static void obey(struct mps_ui *ui, char *line, ssize_t length) {
    line[length] = '\0';
    if (line[0] != SG_JOIN_COMMAND) {
        return;
    }
    mps_obey(ui, line + 1);
    if (ui->daemon->quitter != ui->socket) {
        mps_send(ui, MPS_DONE, "");
    }
}

/* Serves the first packet of who has connected; false when the connection is to be closed. */
static bool meet(struct mps_ui *who, struct mps_ui *ui) {
    char line[1 + MPS_LINE_BYTES];
    struct sg_join_request request;
    ssize_t length = receive(who->socket, line, sizeof line - 1);

    if (length <= 0) {
        mps_note(who->daemon, "User did not send valid credentials");
        return false;
    }
    if (is_join(line, length)) {
        memcpy(&request, line, sizeof request);
        return mps_wait(who->daemon, who, &request);
    }
    if (ui->socket >= 0) {
        mps_note(who->daemon, "Unable to accept connection");
        return false;
    }
    mps_note(who->daemon, "NEW UI");
    *ui = *who;
    obey(ui, line, length);
    return true;
}

static void greet(struct mps_daemon *daemon, int listener, struct mps_ui *ui) {
    struct ucred who;
    socklen_t size = sizeof who;
    int socket = accept4(listener, NULL, NULL, SOCK_CLOEXEC);

    if (socket < 0) {
        return;
    }
    mps_note(daemon, "Accepting connection...");
    if (getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &who, &size) != 0) {
        close(socket);
        return;
    }
    (void)send(socket, SG_JOIN_GREETING, sizeof SG_JOIN_GREETING, MSG_NOSIGNAL | MSG_DONTWAIT);
    struct mps_ui met = {.daemon = daemon, .socket = socket, .user = who.uid, .pid = who.pid};
    if (!meet(&met, ui)) {
        close(socket);
    }
}

/* The next command, or the end, of who gives commands. */
static void answer(struct mps_ui *ui) {
    char line[1 + MPS_LINE_BYTES];
    ssize_t length = recv(ui->socket, line, sizeof line - 1, MSG_DONTWAIT);

    if (length > 0) {
        obey(ui, line, length);
    } else if (length == 0 || (errno != EAGAIN && errno != EINTR)) {
        mps_note(ui->daemon, "UI closed");
        close(ui->socket);
        ui->socket = -1;
    }
}

void mps_serve(struct mps_daemon *daemon, const int listeners[LISTENERS]) {
    struct mps_ui ui = {.daemon = daemon, .socket = -1};
    int wait_ms;

    while (wait_ms = mps_settle(daemon), !daemon->ended) {
        struct pollfd ready[LISTENERS + 1] = {{.fd = listeners[0], .events = POLLIN},
                                              {.fd = listeners[1], .events = POLLIN},
                                              {.fd = ui.socket, .events = POLLIN}};
        if (poll(ready, LISTENERS + 1, wait_ms) < 0) {
            continue;
        }
        if (ready[LISTENERS].revents) {
            answer(&ui);
        }
        for (int i = 0; i < LISTENERS && !daemon->ended; i++) {
            if (ready[i].revents & POLLIN) {
                greet(daemon, listeners[i], &ui);
            }
        }
    }
}
