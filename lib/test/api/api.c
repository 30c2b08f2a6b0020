/* Runs each case in a process of its own, which loads the library; so what one leaves behind is nothing to another, and one
 * that dies is a failure among others. */
#define _GNU_SOURCE
#include "test/api/api.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define CASE_SECONDS 120
#define MOST_LACKS 600

static const struct api_case cases[] = {
#define API_CASE(name) {#name, api_case_##name},
#include "test/api/cases.inc"
#undef API_CASE
};

/* Shared by the processes. */
static struct tally {
    unsigned long checks, places, failures;
} *tally;

static const char *paths[2];
static void *libraries[2];
static const char *current = "";
static struct {
    char name[64];
    enum { FUNCTION, ATTRIBUTE, LATE } kind;
    int value;
} lacks[MOST_LACKS];
static size_t lack_count;

static int absent(void) {
    return CUDA_ERROR_SHARED_OBJECT_SYMBOL_NOT_FOUND;
}

static void fail(const char *file, int line, const char *text, long long got, long long want) {
    tally->failures++;
    fprintf(stderr, "%s: %s:%d: %s: %lld, not %lld\n", current, file, line, text, got, want);
}

uintptr_t api_find(const char *name, bool nvml) {
    void *at = dlsym(libraries[nvml], name);

    if (!at) {
        fail(__FILE__, __LINE__, name, 0, 1);
        return (uintptr_t)absent;
    }
    return (uintptr_t)at;
}

bool api_has(const char *name) {
    return dlsym(libraries[0], name) != NULL;
}

bool api_has_nvml(void) {
    return paths[1] != NULL;
}

/* Threads of a case check too. */
void api_check(struct api_place *place, long long got, long long want) {
    __atomic_add_fetch(&tally->checks, 1, __ATOMIC_RELAXED);
    if (!__atomic_exchange_n(&place->used, true, __ATOMIC_RELAXED)) {
        __atomic_add_fetch(&tally->places, 1, __ATOMIC_RELAXED);
    }
    if (got != want) {
        fail(place->file, place->line, place->text, got, want);
    }
}

void api_named(const char *file, int line, const char *name, long long got, long long want) {
    __atomic_add_fetch(&tally->checks, 1, __ATOMIC_RELAXED);
    if (got != want) {
        fail(file, line, name, got, want);
    }
}

static bool is_listed(const char *name, unsigned kind) {
    for (size_t i = 0; i < lack_count; i++) {
        if (lacks[i].kind == kind && strcmp(lacks[i].name, name) == 0) {
            return true;
        }
    }
    return false;
}

bool api_lacks(const char *name) {
    return is_listed(name, FUNCTION);
}

/* The call that waits is one that nothing forbids, also in a capture. */
CUresult api_answer(const char *name, CUresult got, CUresult want) {
    size_t left, total;

    return want != CUDA_SUCCESS && got == CUDA_SUCCESS && is_listed(name, LATE)
               ? CU(cuMemGetInfo_v2)(&left, &total)
               : got;
}

bool api_lacking_attribute(const char *name, int *value) {
    for (size_t i = 0; i < lack_count; i++) {
        if (lacks[i].kind == ATTRIBUTE && strcmp(lacks[i].name, name) == 0) {
            *value = lacks[i].value;
            return true;
        }
    }
    return false;
}

void api_each_lack(void (*of)(const char *name)) {
    for (size_t i = 0; i < lack_count; i++) {
        if (lacks[i].kind == FUNCTION) {
            of(lacks[i].name);
        }
    }
}

/* A line is the name of a function, `attribute NAME VALUE`, or `late NAME`: the errors of this function may come late. */
static bool read_lacks(const char *path) {
    FILE *file = fopen(path, "r");
    char line[256];

    while (file && fgets(line, sizeof line, file)) {
        if (lack_count == MOST_LACKS) {
            fprintf(stderr, "apisuite: %s is too long\n", path);
            fclose(file);
            return false;
        }
        if (sscanf(line, "attribute %63s %d", lacks[lack_count].name, &lacks[lack_count].value) ==
            2) {
            lacks[lack_count++].kind = ATTRIBUTE;
        } else if (sscanf(line, "late %63s", lacks[lack_count].name) == 1) {
            lacks[lack_count++].kind = LATE;
        } else if (sscanf(line, "%63s", lacks[lack_count].name) == 1) {
            lack_count++;
        }
    }
    if (!file || fclose(file) != 0) {
        fprintf(stderr, "apisuite: read %s: %s\n", path, strerror(errno));
        return false;
    }
    return true;
}

static void load(void) {
    for (int i = 0; i < 2 && paths[i]; i++) {
        libraries[i] = dlopen(paths[i], RTLD_NOW | RTLD_LOCAL);
        if (!libraries[i]) {
            fprintf(stderr, "apisuite: %s\n", dlerror());
            _exit(2);
        }
    }
}

static void run(const struct api_case *one) {
    int status;

    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        alarm(CASE_SECONDS);
        load();
        one->run();
        fflush(NULL);
        _exit(0);
    }
    while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
    }
    if (child < 0 || status != 0) {
        fail("case", 0, "ended with", status, 0);
    }
}

static int usage(void) {
    fprintf(stderr, "usage: apisuite [--lacks FILE] [--only CASE] [--list] LIBCUDA [LIBNVML]\n");
    return 2;
}

static int list(void) {
    for (size_t i = 0; i < COUNT(cases); i++) {
        puts(cases[i].name);
    }
    return 0;
}

int main(int argc, char **argv) {
    const char *only = NULL;
    int at = 1;

    for (; at < argc && argv[at][0] == '-'; at++) {
        if (strcmp(argv[at], "--list") == 0) {
            return list();
        }
        if (at + 1 < argc && strcmp(argv[at], "--only") == 0) {
            only = argv[++at];
        } else if (at + 1 < argc && strcmp(argv[at], "--lacks") == 0) {
            if (!read_lacks(argv[++at])) {
                return 2;
            }
        } else {
            return usage();
        }
    }
    if (at == argc || argc - at > 2) {
        return usage();
    }
    paths[0] = argv[at];
    paths[1] = argv[at + 1];
    tally = mmap(NULL, sizeof *tally, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (tally == MAP_FAILED) {
        return 2;
    }
    for (size_t i = 0; i < COUNT(cases); i++) {
        if (!only || strcmp(only, cases[i].name) == 0) {
            current = cases[i].name;
            run(&cases[i]);
        }
    }
    printf("%lu checks, at %lu places beside tables, %lu failures\n", tally->checks, tally->places,
           tally->failures);
    return tally->failures || !tally->checks ? 1 : 0;
}
