/* The program that asks a daemon. */
#define _GNU_SOURCE
#include "simgpu/mps/mps.h"

#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

static int connect_daemon(void) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);

    if (fd < 0 || !mps_entry(address.sun_path, "control") ||
        connect(fd, (struct sockaddr *)&address, sizeof address) != 0) {
        return -1;
    }
    char greeting[sizeof SG_JOIN_GREETING];
    const char hello = SG_JOIN_UI;
    if (recv(fd, greeting, sizeof greeting, 0) > 0) {
        (void)send(fd, &hello, sizeof hello, MSG_NOSIGNAL);
    }
    return fd;
}

/* Prints the answer to a command; false when the daemon ended before it was complete. */
static bool print_answer(int fd) {
    char packet[1 + MPS_SAID_BYTES];

    for (;;) {
        ssize_t length = recv(fd, packet, sizeof packet, 0);
        if (length <= 0) {
            return false;
        }
        if (packet[0] == MPS_DONE) {
            return true;
        }
        fwrite(packet + 1, 1, (size_t)length - 1, stdout);
        fputc('\n', stdout); /* at once where standard output is a terminal */
    }
}

/* A first byte keeps the packet of an empty line from being none. */
static bool send_line(int fd, const char *line) {
    char packet[1 + MPS_LINE_BYTES] = "c";
    size_t length = strcspn(line, "\n");

    memcpy(packet + 1, line, length);
    return send(fd, packet, 1 + length, MSG_NOSIGNAL) == (ssize_t)(1 + length);
}

int mps_ask(void) {
    char line[MPS_LINE_BYTES];
    bool ended = false;
    int fd = connect_daemon();

    if (fd < 0) {
        fputs("Cannot find MPS control daemon process\n", stderr);
        return 1;
    }
    while (fgets(line, sizeof line, stdin)) {
        if (ended || !send_line(fd, line)) {
            fflush(stdout);
            fputs("Cannot send command to MPS control daemon process\n", stderr);
            return 1;
        }
        ended = !print_answer(fd);
    }
    return 0;
}
