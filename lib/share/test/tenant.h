/* A tenant's directory with pages in it, as the agent would write them. */
#ifndef DIVVY_SHARE_TEST_TENANT_H
#define DIVVY_SHARE_TEST_TENANT_H

#include "share/state.h"
#include "test/check.h"

#include <sys/types.h>

#define MIB (1ull << 20)

struct tenant {
    char directory[64];
    size_t state_size;
    pid_t owner; /* the process that removes the directory when it exits */
};

/* Makes pages for so many GPUs with this limit each. They go when the calling process ends the test
 * by tenant_remove or exit. */
void tenant_make(struct tenant *tenant, unsigned gpus, uint64_t limit);
void tenant_remove(struct tenant *tenant);

/* Path of a file of the tenant, in a buffer that the next call overwrites. */
const char *tenant_path(const struct tenant *tenant, const char *file);

/* Opens the share; it must succeed. */
dv_share *tenant_open(const struct tenant *tenant);

/* Opens the same share a second time, as another copy of the library in this process would. */
dv_share *tenant_open_again(const dv_share *share);

/* Overwrites bytes of a page. */
void tenant_write(const struct tenant *tenant, const char *file, size_t offset, const void *bytes,
                  size_t size);

/* Writes the budget of one GPU. */
void tenant_grant(const struct tenant *tenant, unsigned gpu, const dv_page_budget *budget);

uint64_t used_bytes(dv_share *share, unsigned device);
uint64_t pending_bytes(dv_share *share, unsigned device);

/* Checks that the totals are exactly what the journals and the export table hold. */
void check_sums(dv_share *share);

/* So that a test that fails leaves no process behind; in each child. */
void die_with_parent(void);

/* Runs body(arg) in a child. */
pid_t spawn(void (*body)(void *arg), void *arg);

/* Waits for the child, which must have exited with status 0, or been killed by us. */
void wait_exited(pid_t child);
void wait_killed(pid_t child);
void wait_stopped(pid_t child);

#endif
