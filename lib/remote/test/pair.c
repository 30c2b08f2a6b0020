#define _GNU_SOURCE
#include "remote/test/pair.h"

#include "remote/worker/sandbox.h"
#include "test/check.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

static void *library;

uint64_t pair_draw_value(uint64_t drawn, const unsigned bounds[8]) {
    unsigned bound = bounds[drawn % 8];
    uint64_t rest = drawn >> 3;

    return bound == PAIR_POWER ? UINT64_C(1) << rest % 22 : rest % bound;
}

void pair_load(const char *file) {
    library = dlopen(file, RTLD_NOW | RTLD_LOCAL);
    CHECK(library);
}

void *pair_find(const char *name) {
    return dlsym(library, name);
}

/* dlsym answers with an object's address, which POSIX lets stand for a function. */
void pair_found(void *to, const char *name) {
    void *at = pair_find(name);

    CHECK(at);
    memcpy(to, &at, sizeof at);
}

#define MOST_DRAWS 256

/* What the draws of one call gave. */
struct outcome {
    uint64_t digest;
    int32_t result;
    bool failed;
    bool done;
};

/* A process of its own, so that nothing that an earlier call left counts, and in a worker's sandbox, so that none keeps the
 * driver from its work. Returns how it ended. */
static int run(const struct pair *pair, const struct exercise_entry *entry, uint64_t draws,
               bool remote, struct outcome *outcomes) {
    int status;
    pid_t child = fork();

    CHECK(child >= 0);
    if (child == 0) {
        char why[REMOTE_WHY_BYTES];

        CHECK(remote_sandbox_prepare(why) && remote_sandbox_enter(why));
        alarm(20);
        pair->start();
        for (uint64_t seed = 0; seed < draws; seed++) {
            pair->build(entry->name);
            struct exercise e = exercise_run(entry, seed, remote);
            pair->unbuild(entry->name);
            outcomes[seed] = (struct outcome){e.digest, e.result, e.failed, true};
        }
        _exit(0);
    }
    CHECK_EQUAL(waitpid(child, &status, 0), child);
    return status;
}

/* Returns how many draws differ. */
static unsigned long compare(const struct pair *pair, const struct exercise_entry *entry,
                             uint64_t draws, struct outcome *one, struct outcome *other,
                             bool *succeeded) {
    unsigned long differ = 0;

    memset(one, 0, draws * sizeof *one);
    memset(other, 0, draws * sizeof *other);
    int direct_end = run(pair, entry, draws, false, one);
    int remote_end = run(pair, entry, draws, true, other);
    if (direct_end || remote_end) {
        fprintf(stderr, "%s: the driver ended the process directly with 0x%x, remotely with 0x%x\n",
                entry->name, (unsigned)direct_end, (unsigned)remote_end);
    }
    for (uint64_t i = 0; i < draws; i++) {
        if (one[i].digest != other[i].digest || one[i].failed || other[i].failed ||
            one[i].done != other[i].done || direct_end != remote_end) {
            fprintf(stderr, "%s, draw %llu: direct %d, remote %d%s\n", entry->name,
                    (unsigned long long)i, one[i].result, other[i].result,
                    one[i].failed     ? ", the driver wrote what is only read, or too much"
                    : other[i].failed ? ", memory changed"
                                      : "");
            differ++;
        }
        *succeeded = *succeeded || (one[i].done && one[i].result == 0);
    }
    return differ;
}

static bool is_left_out(const struct pair *pair, const char *name) {
    const char *only = getenv("ONLY");

    if (only && *only && strcmp(only, name) != 0) {
        return true;
    }
    for (const char *const *out = pair->left_out; *out; out++) {
        size_t length = strlen(*out) - 1;

        if ((*out)[length] == '*' ? strncmp(name, *out, length) == 0 : strcmp(name, *out) == 0) {
            return true;
        }
    }
    return false;
}

void pair_run(const struct pair *pair, uint64_t draws, unsigned long successes) {
    unsigned long faults = 0, calls = 0, succeeding = 0;
    const char *given = getenv("DRAWS");
    struct outcome *outcomes = mmap(NULL, 2 * MOST_DRAWS * sizeof *outcomes, PROT_READ | PROT_WRITE,
                                    MAP_SHARED | MAP_ANONYMOUS, -1, 0);

    draws = given ? strtoull(given, NULL, 10) : draws;
    CHECK(outcomes != MAP_FAILED && draws <= MOST_DRAWS);
    loopback_strict = true;
    exercise_world = pair->world;
    for (const struct exercise_entry *entry = pair->entries; entry->name; entry++) {
        bool succeeded = false;

        if (is_left_out(pair, entry->name)) {
            continue;
        }
        faults += compare(pair, entry, draws, outcomes, outcomes + MOST_DRAWS, &succeeded);
        calls++;
        succeeding += succeeded;
        if (!succeeded && getenv("VERBOSE")) {
            fprintf(stderr, "%s: no draw with success\n", entry->name);
        }
    }
    printf("%lu calls, %lu with success, %lu differences\n", calls, succeeding, faults);
    CHECK_EQUAL(faults, 0);
    CHECK((getenv("ONLY") && *getenv("ONLY")) || succeeding >= successes);
}
