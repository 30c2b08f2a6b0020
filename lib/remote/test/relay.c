#define _GNU_SOURCE
#include "remote/test/relay.h"

#include "remote/link_inside.h"
#include "test/check.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#define HELLO_BYTES 32u
#define HELLO_KIND 16u /* where it says the kind of link */

static pid_t relay;
static uint64_t *sent;
static char path[108];

static int open_at(const char *at, bool listens) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int one = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

    CHECK(one >= 0 && strlen(at) < sizeof address.sun_path);
    strcpy(address.sun_path, at);
    if (listens) {
        CHECK(bind(one, (struct sockaddr *)&address, sizeof address) == 0 && listen(one, 1) == 0);
    } else {
        CHECK(connect(one, (struct sockaddr *)&address, sizeof address) == 0);
    }
    return one;
}

static bool write_all(int to, const unsigned char *bytes, size_t size) {
    while (size) {
        ssize_t some = send(to, bytes, size, MSG_NOSIGNAL);

        if (some <= 0) {
            return false;
        }
        bytes += some;
        size -= (size_t)some;
    }
    return true;
}

static void pass_hello(int client, int worker) {
    unsigned char hello[HELLO_BYTES];
    const uint32_t kind = REMOTE_LINK_STREAM;

    CHECK_EQUAL(recv(client, hello, sizeof hello, MSG_WAITALL), sizeof hello);
    memcpy(hello + HELLO_KIND, &kind, sizeof kind);
    CHECK(write_all(worker, hello, sizeof hello));
}

/* Passes on what comes from either side until one has ended. */
static void pass(int client, int worker) {
    static unsigned char bytes[1 << 16];
    struct pollfd sides[2] = {{.fd = client, .events = POLLIN}, {.fd = worker, .events = POLLIN}};

    for (;;) {
        CHECK(poll(sides, 2, -1) > 0 || errno == EINTR);
        for (int i = 0; i < 2; i++) {
            if (!sides[i].revents) {
                continue;
            }
            ssize_t some = read(sides[i].fd, bytes, sizeof bytes);
            if (some <= 0 || !write_all(sides[1 - i].fd, bytes, (size_t)some)) {
                return;
            }
            if (i == 0) {
                __atomic_add_fetch(sent, (uint64_t)some, __ATOMIC_RELEASE);
            }
        }
    }
}

void relay_start(void) {
    const char *to = getenv("DIVVY_REMOTE_SOCKET");

    CHECK(to);
    CHECK((size_t)snprintf(path, sizeof path, "%s.relay", to) < sizeof path);
    sent = mmap(NULL, sizeof *sent, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(sent != MAP_FAILED);
    int listener = open_at(path, true);
    relay = fork();
    CHECK(relay >= 0);
    if (relay == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        int client = accept(listener, NULL, NULL), worker = open_at(to, false);

        CHECK(client >= 0);
        pass_hello(client, worker);
        pass(client, worker);
        _exit(0);
    }
    close(listener);
    CHECK(setenv("DIVVY_REMOTE_SOCKET", path, 1) == 0);
}

uint64_t relay_sent(void) {
    return __atomic_load_n(sent, __ATOMIC_ACQUIRE);
}

void relay_end(void) {
    CHECK(kill(relay, SIGTERM) == 0);
    CHECK_EQUAL(waitpid(relay, NULL, 0), relay);
    CHECK(unlink(path) == 0);
}
