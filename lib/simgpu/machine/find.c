/* Where a copy of the simulated driver finds its machine. */
#define _GNU_SOURCE
#include "simgpu/machine/state.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Whether the file begins as the state of a simulated machine does. */
static bool is_state(const char *path) {
    uint64_t magic = 0;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);

    if (fd < 0) {
        return false;
    }
    bool is = pread(fd, &magic, sizeof magic, 0) == (ssize_t)sizeof magic && magic == SG_MAGIC;
    close(fd);
    return is;
}

/* Whether dir/state is there; then `found` becomes dir's absolute name. */
static bool holds_state(const char *dir, char found[SG_PATH_BYTES]) {
    char path[SG_PATH_BYTES + 8];
    char resolved[PATH_MAX];

    if (snprintf(path, sizeof path, "%s/state", dir) >= (int)sizeof path) {
        return false;
    }
    if (!is_state(path) || !realpath(dir, resolved)) {
        return false;
    }
    memcpy(found, resolved, strlen(resolved) + 1);
    return true;
}

static void name_of(const char *dir, char tag[SG_TAG_BYTES]) {
    const char *slash = strrchr(dir, '/');

    snprintf(tag, SG_TAG_BYTES, "%.*s", (int)SG_TAG_BYTES - 1, slash ? slash + 1 : dir);
}

/* The tenant of a directory: its name, or in a container, where all directories have one name, what
 * the link in it says. */
static void tenant_of(const char *dir, char tag[SG_TAG_BYTES]) {
    char link[SG_PATH_BYTES + 16], said[SG_TAG_BYTES];

    snprintf(link, sizeof link, "%s/simgpu-tenant", dir);
    ssize_t length = readlink(link, said, sizeof said - 1);
    if (length > 0) {
        said[length] = '\0';
        name_of(said, tag);
    } else {
        name_of(dir, tag);
    }
}

int sg_find(const void *self, char dir[SG_PATH_BYTES], char tag[SG_TAG_BYTES]) {
    char beside[SG_PATH_BYTES], link[SG_PATH_BYTES + 8];
    Dl_info info;

    tag[0] = '\0';
    /* The name as it was loaded: links stay links, so a tenant's directory is seen. */
    if (dladdr(self, &info) && info.dli_fname && strchr(info.dli_fname, '/') &&
        snprintf(beside, sizeof beside, "%s", info.dli_fname) < (int)sizeof beside) {
        *strrchr(beside, '/') = '\0';
        snprintf(link, sizeof link, "%s/simgpu", beside);
        if (holds_state(link, dir)) {
            tenant_of(beside, tag);
            return 0;
        }
        if (holds_state(beside, dir)) {
            return 0;
        }
    }
    const char *named = getenv("DIVVY_SIMGPU");
    return named && holds_state(named, dir) ? 0 : -ENOENT;
}
