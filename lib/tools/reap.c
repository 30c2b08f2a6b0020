/* divvy-reap [--user UID] DIRECTORY: takes the balances of dead processes out of the share in the
 * directory. Started by root with a user, it opens files as that user.
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
#define _GNU_SOURCE
#include "share/state.h"

#include <grp.h>
#include <linux/capability.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/fsuid.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#define NOBODY 65534u

/* Keeps of all capabilities those in the mask. */
static bool keep_capabilities(uint32_t mask) {
    struct __user_cap_header_struct head = {.version = _LINUX_CAPABILITY_VERSION_3, .pid = 0};
    struct __user_cap_data_struct sets[2] = {{.effective = mask, .permitted = mask}, {0}};
    return syscall(SYS_capset, &head, sets) == 0;
}

/* Has the user's rights to files, and no others. The process belongs to nobody else, because the
 * user could stop, trace or slow down one of theirs: this one is the agent's child, and has its
 * limits and its cgroup. */
static bool open_files_as(uid_t user) {
    if (prctl(PR_SET_KEEPCAPS, 1, 0, 0, 0) != 0 || setgroups(0, NULL) != 0 ||
        setresgid(NOBODY, NOBODY, NOBODY) != 0 || setresuid(NOBODY, NOBODY, NOBODY) != 0 ||
        !keep_capabilities(1u << CAP_SETUID)) {
        return false;
    }
    setfsuid(user);
    return (uid_t)setfsuid((uid_t)-1) == user && keep_capabilities(0);
}

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
    if (argc == 4 && strcmp(argv[1], "--user") == 0) {
        char *end;
        unsigned long user = strtoul(argv[2], &end, 10);
        if (*end != '\0' || end == argv[2] || user == 0 || user >= UINT32_MAX) {
            fprintf(stderr, "divvy-reap: %s is no user\n", argv[2]);
            return 2;
        }
        if (!open_files_as((uid_t)user)) {
            perror("divvy-reap: become another user");
            return 1;
        }
        argv += 2;
        argc -= 2;
    }
    if (argc != 2 || argv[1][0] == '-') {
        fprintf(stderr, "usage: divvy-reap [--user UID] DIRECTORY\n");
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
