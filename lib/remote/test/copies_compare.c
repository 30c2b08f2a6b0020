#define _GNU_SOURCE
#include "remote/test/copies_served.h"
#include "remote/test/copies_steps.h"

#include "test/check.h"

#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define OK(call) CHECK_EQUAL(call, CUDA_SUCCESS)

/* What each step gave, in both processes. */
struct seen {
    CUresult result;
    uint64_t digest;
};

bool copies_map_nothing;
static struct remote_cuda_driver driver;
static CUcontext context;

static void steps_of(struct seen *seen, uint64_t steps, uint64_t first) {
    struct copies_side side = {.maps_nothing = copies_map_nothing};

    OK(driver.cuInit(0));
    OK(driver.cuCtxCreate_v2(&context, 0, 0));
    copies_make(&side, &driver, &driver);
    for (uint64_t i = 0; i < steps; i++) {
        seen[i].result = copies_step(&side, first + i);
        /* A late error is told by whoever waits next. */
        CUresult late = driver.cuCtxSynchronize();
        seen[i].result = seen[i].result == CUDA_SUCCESS ? late : seen[i].result;
        seen[i].digest = copies_look(&side);
    }
    copies_end(&side);
    OK(driver.cuCtxDestroy_v2(context));
}

static pid_t begin(bool remote, bool strict, struct seen *seen, uint64_t steps) {
    pid_t child = copies_fork();

    if (child == 0) {
        setenv("DIVVY_REMOTE", strict ? "strict" : "", 1);
        copies_load(remote, &driver);
        steps_of(seen, steps, strict ? 100000 : 0);
        _exit(0);
    }
    return child;
}

void copies_wait(pid_t child) {
    int status;

    CHECK_EQUAL(waitpid(child, &status, 0), child);
    CHECK_EQUAL(status, 0);
}

void copies_compare(bool strict, uint64_t steps) {
    struct seen *seen = mmap(NULL, 2 * steps * sizeof *seen, PROT_READ | PROT_WRITE,
                             MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    unsigned long succeeded = 0;

    CHECK(seen != MAP_FAILED);
    copies_wait(begin(false, strict, seen, steps));
    copies_wait(begin(true, strict, seen + steps, steps));
    for (uint64_t i = 0; i < steps; i++) {
        const struct seen *one = &seen[i], *other = &seen[steps + i];
        if (one->result != other->result || one->digest != other->digest) {
            fprintf(stderr, "step %llu: direct %d, remote %d, memory %s\n", (unsigned long long)i,
                    one->result, other->result, one->digest == other->digest ? "equal" : "differs");
            exit(1);
        }
        succeeded += one->result == CUDA_SUCCESS;
    }
    printf("%s: %llu steps, %lu with success\n", strict ? "strict" : "posted",
           (unsigned long long)steps, succeeded);
    fflush(stdout);
    munmap(seen, 2 * steps * sizeof *seen);
}
