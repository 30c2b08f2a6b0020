/* What cuGetProcAddress answers over simgpu for every name, version and meaning of the default
 * stream is what lib/cuda/test/answers.txt says. With --write it writes that file anew. A line is
 *
 *     cuMemAlloc 0: 2000 ours cuMemAlloc, 3020 ours cuMemAlloc_v2
 *
 * for a name and flags: from that CUDA version on, whose function it is and under which name;
 * nothing where there is none. Flags without a line have the answers of the ones before. */
#define _GNU_SOURCE
#include "cuda/test/sim.h"

#include <stdio.h>
#include <string.h>

#define GOLDEN "lib/cuda/test/answers.txt"
#define VERSIONS_MAX 256

static struct setting s;

struct name {
    const char *name, *base;
    int since;
};
static const struct name names[] = {
#define CUDA_FN(name, base, since, variant, kind, hooked) {#name, #base, since},
#include "abi/generated/cuda_names.inc"
#undef CUDA_FN
};
#define NAMES (sizeof names / sizeof names[0])

static int versions[VERSIONS_MAX];
static unsigned version_count;

/* Every version in which a name is new, rising. */
static void collect_versions(void) {
    for (size_t i = 0; i < NAMES; i++) {
        unsigned at = 0;
        while (at < version_count && versions[at] < names[i].since) {
            at++;
        }
        if (at < version_count && versions[at] == names[i].since) {
            continue;
        }
        CHECK(version_count < VERSIONS_MAX);
        memmove(&versions[at + 1], &versions[at], (version_count - at) * sizeof versions[0]);
        versions[at] = names[i].since;
        version_count++;
    }
}

/* Writes whose function an answer is. The driver has one function for all that it does not
 * implement, so an answer is known by its base too. */
static void describe(char *text, size_t room, const char *base, const void *answer) {
    for (size_t i = 0; i < NAMES; i++) {
        if (strcmp(names[i].base, base) != 0) {
            continue;
        }
        if (setting_function(&s, names[i].name) == answer) {
            snprintf(text, room, "ours %s", names[i].name);
            return;
        }
        if (setting_real(&s, names[i].name) == answer) {
            snprintf(text, room, "driver %s", names[i].name);
            return;
        }
    }
    snprintf(text, room, "unknown");
}

/* Writes the answers for a base and flags as one line. */
static void print_answers(char *line, size_t room, const char *base, cuuint64_t flags) {
    char last[160] = "-", now[160];
    size_t used = 0;
    line[0] = '\0';
    for (unsigned v = 0; v < version_count; v++) {
        void *got = NULL;
        CUdriverProcAddressQueryResult status;
        CUresult result = CUDA(&s, cuGetProcAddress_v2)(base, &got, versions[v], flags, &status);
        if (result != CUDA_SUCCESS || got == NULL) {
            snprintf(now, sizeof now, "-");
        } else {
            describe(now, sizeof now, base, got);
        }
        if (strcmp(now, last) != 0) {
            used += (size_t)snprintf(line + used, room - used, "%s %d %s", used > 0 ? "," : "",
                                     versions[v], now);
            CHECK(used < room);
            strcpy(last, now);
        }
    }
}

static bool is_first_of_base(size_t at) {
    for (size_t i = 0; i < at; i++) {
        if (strcmp(names[i].base, names[at].base) == 0) {
            return false;
        }
    }
    return true;
}

static void print_all(FILE *out) {
    for (size_t i = 0; i < NAMES; i++) {
        char before[1024] = "", line[1024];
        for (cuuint64_t flags = 0; flags <= 2 && is_first_of_base(i); flags++) {
            print_answers(line, sizeof line, names[i].base, flags);
            if (flags == 0 || strcmp(line, before) != 0) {
                fprintf(out, "%s %u:%s\n", names[i].base, (unsigned)flags, line);
            }
            strcpy(before, line);
        }
    }
}

/* Fails at the first line that differs. */
static void compare(FILE *have) {
    char was[1024], is[1024];
    FILE *want = fopen(GOLDEN, "r");
    CHECK(want != NULL);
    rewind(have);
    for (unsigned line = 1;; line++) {
        char *a = fgets(was, sizeof was, want), *b = fgets(is, sizeof is, have);
        if (a == NULL && b == NULL) {
            break;
        }
        if (a == NULL || b == NULL || strcmp(was, is) != 0) {
            fprintf(stderr, "%s:%u: %sis now %s", GOLDEN, line, a ? was : "\n", b ? is : "\n");
            CHECK(!"the answers of cuGetProcAddress have changed");
        }
    }
    fclose(want);
}

int main(int argc, char **argv) {
    sim_make(&s, 1, 64 * MIB);
    CHECK_EQUAL(CUDA(&s, cuInit)(0), CUDA_SUCCESS);
    collect_versions();
    bool writes = argc == 2 && strcmp(argv[1], "--write") == 0;
    FILE *out = writes ? fopen(GOLDEN, "w") : tmpfile();
    CHECK(out != NULL);
    print_all(out);
    if (!writes) {
        compare(out);
    }
    CHECK_EQUAL(fclose(out), 0);
    return 0;
}
