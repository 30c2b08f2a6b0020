/* divvy-reap DIRECTORY: takes the balances of dead processes out of the share in the directory.
 *
 * The agent runs it because it must not map a page that a tenant can truncate: the SIGBUS would be
 * this program's. Prints one JSON object,
 *
 *     {"reaped": [{"slot": 3, "pid": 4711, "bytes": 2097152}], "live": 2, "unfinished": 0,
 *      "settled": 0}
 *
 * where pid is in the dead process's own pid namespace, bytes is what it held (exported memory that
 * others still hold not included), live counts processes with a slot, and unfinished those that are
 * dead but could not be reaped yet, for instance because the kernel is still closing their files.
 * settled is how many bytes were freed that exported descriptors had kept, now closed everywhere.
 *
 * Exit status: 0 nothing is left to reap, 1 the pages cannot be used (standard error says why), 2
 * wrong usage, 3 some are unfinished: run it again in a few milliseconds. A file closed after
 * writing is the agent's notice of a death, so the state page is opened for writing only where
 * something is to be freed. */
#include "share/state.h"

#include <stdio.h>

struct list {
    unsigned count;
};

static void print_reaped(void *arg, unsigned slot, uint32_t pid, uint64_t bytes) {
    struct list *list = arg;
    printf("%s{\"slot\": %u, \"pid\": %u, \"bytes\": %llu}", list->count++ > 0 ? ", " : "", slot,
           pid, (unsigned long long)bytes);
}

/* Looks only, or reaps too and prints what. *settled is what exports gave back, or if it only looks
 * whether they would. */
static bool sweep_share(const char *dir, bool reap, dv_sweep *sweep, uint64_t *settled) {
    dv_share *share;
    dv_reason reason;
    struct list list = {.count = 0};
    dv_reaper reaper = {.visit = print_reaped, .arg = &list};
    if (open_share(dir, reap, &share, &reason) != DV_OK) {
        fprintf(stderr, "divvy-reap: %s: %s\n", dir, reason.text);
        return false;
    }
    *sweep = reap_all(share, reap ? &reaper : NULL);
    *settled = reap ? dv_export_settle(share) : exports_gone(share);
    if (reap) {
        leave_slot(share);
    }
    return true;
}

int main(int argc, char **argv) {
    dv_sweep sweep;
    uint64_t settled = 0;
    if (argc != 2 || argv[1][0] == '-') {
        fprintf(stderr, "usage: divvy-reap DIRECTORY\n");
        return 2;
    }
    if (!sweep_share(argv[1], false, &sweep, &settled)) {
        return 1;
    }
    printf("{\"reaped\": [");
    if ((sweep.unfinished > 0 || settled > 0) && !sweep_share(argv[1], true, &sweep, &settled)) {
        return 1;
    }
    printf("], \"live\": %u, \"unfinished\": %u, \"settled\": %llu}\n", sweep.live,
           sweep.unfinished, (unsigned long long)settled);
    return sweep.unfinished > 0 ? 3 : 0;
}
