/* divvy-worker --listen PATH [--bound FD] [--ready FD] [--life FD] [--uid UID] [--workers N]: accepts clients, and starts a
 * worker for each.
 * divvy-worker --socket FD [--client PID]: is the worker of the client on this socket. Who looks at its command line sees
 * which process that is. */
#include "remote/worker/listen.h"
#include "remote/worker/serve.h"

#include <errno.h>
#include <limits.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#define MOST_WORKERS 256u

static int usage(void) {
    remote_log(
        "usage: divvy-worker --listen PATH [--bound FD] [--ready FD] [--life FD] [--uid UID] "
        "[--workers N] | "
        "--socket FD [--client PID]");
    return 2;
}

static bool number(const char *text, unsigned long most, unsigned long *value) {
    char *end = NULL;

    errno = 0;
    *value = strtoul(text, &end, 10);
    return *text >= '0' && *text <= '9' && *end == 0 && !errno && *value <= most;
}

int main(int count, char **given) {
    struct remote_listening how = {
        .bound = -1, .ready = -1, .life = -1, .user = geteuid(), .most = MOST_WORKERS};
    unsigned long value;

    if ((count == 3 || (count == 5 && strcmp(given[3], "--client") == 0)) &&
        strcmp(given[1], "--socket") == 0 && number(given[2], INT_MAX, &value)) {
        prctl(PR_SET_NAME, "divvy-worker"); /* it was started by another name */
        remote_serve((int)value);
    }
    for (int i = 1; i + 1 < count; i += 2) {
        if (strcmp(given[i], "--listen") == 0) {
            how.path = given[i + 1];
        } else if (strcmp(given[i], "--bound") == 0 && number(given[i + 1], INT_MAX, &value)) {
            how.bound = (int)value;
        } else if (strcmp(given[i], "--ready") == 0 && number(given[i + 1], INT_MAX, &value)) {
            how.ready = (int)value;
        } else if (strcmp(given[i], "--life") == 0 && number(given[i + 1], INT_MAX, &value)) {
            how.life = (int)value;
        } else if (strcmp(given[i], "--uid") == 0 && number(given[i + 1], UINT32_MAX - 1, &value)) {
            how.user = (uid_t)value;
        } else if (strcmp(given[i], "--workers") == 0 && number(given[i + 1], 65536, &value)) {
            how.most = (unsigned)value;
        } else {
            return usage();
        }
    }
    return how.path && count % 2 == 1 ? remote_listen(&how) : usage();
}
