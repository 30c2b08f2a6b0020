#define _GNU_SOURCE
#include "cuda/test/daemon.h"

#include <signal.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "share/test/tenant.h"

/* A user without an account. */
#define STRANGER_UID 4321

static pid_t daemon_pid;

static void serve(int listener, enum manner manner) {
    char rest[16];
    for (;;) {
        int client = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
        CHECK(client >= 0);
        if (manner == GREETS || manner == STRANGER) {
            send(client, "OUTBHELL", 9, MSG_NOSIGNAL);
        }
        while (manner != HANGS_UP && recv(client, rest, sizeof rest, 0) > 0) {
        }
        close(client);
    }
}

void daemon_start(const char *socket_path, enum manner manner) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int ready[2];
    char done;
    strcpy(address.sun_path, socket_path);
    unlink(socket_path);
    CHECK(pipe(ready) == 0);
    daemon_pid = fork();
    if (daemon_pid == 0) {
        int listener = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
        CHECK(bind(listener, (struct sockaddr *)&address, sizeof address) == 0);
        /* Whose it is, the kernel tells by who listens. */
        CHECK(manner != STRANGER || setuid(STRANGER_UID) == 0);
        die_with_parent();
        CHECK(listen(listener, 8) == 0);
        CHECK_EQUAL(write(ready[1], "r", 1), 1);
        serve(listener, manner);
    }
    CHECK_EQUAL(read(ready[0], &done, 1), 1);
    close(ready[0]);
    close(ready[1]);
}

void daemon_end(void) {
    CHECK(kill(daemon_pid, SIGKILL) == 0 && waitpid(daemon_pid, NULL, 0) == daemon_pid);
}
