#define _GNU_SOURCE
#include "cuda/environment.h"

#include <stddef.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "cuda/fork.h"
#include "cuda/lock.h"

static lock guard; /* held while the pointer is exchanged, not during the driver's call */
static unsigned inside;
static char **before;  /* the program's array */
static char *replaced; /* the program's entry, NULL if it had none */

/* The copy stays mapped for good: another thread may still walk along it after we have left. */
static char **copy;
static size_t copy_room; /* pointers */
static char shown[ENVIRONMENT_ENTRY];

static bool same_name(const char *a, const char *b) {
    size_t length = strcspn(b, "=");
    return strncmp(a, b, length) == 0 && a[length] == '=';
}

static bool make_room(size_t count) {
    if (count <= copy_room) {
        return true;
    }
    void *pages = mmap(NULL, 2 * count * sizeof *copy, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (pages == MAP_FAILED) {
        return false;
    }
    copy = pages;
    copy_room = 2 * count;
    return true;
}

static bool exchange(const char *entry) {
    size_t count = 0;
    for (char **e = environ; e != NULL && *e != NULL; e++) {
        count++;
    }
    if (strlen(entry) >= sizeof shown || !make_room(count + 2)) {
        return false;
    }
    memcpy(shown, entry, strlen(entry) + 1);
    replaced = NULL;
    size_t kept = 0;
    for (size_t i = 0; i < count; i++) {
        if (same_name(environ[i], entry)) {
            replaced = replaced != NULL ? replaced : environ[i];
        } else {
            copy[kept++] = environ[i];
        }
    }
    copy[kept++] = shown;
    copy[kept] = NULL;
    before = environ;
    environ = copy;
    return true;
}

/* If a thread has set a variable meanwhile, the C library has made a new array out of ours. Then
 * only our entry is replaced there. */
static void repair(char **array) {
    for (char **e = array; e != NULL && *e != NULL; e++) {
        if (*e != shown) {
            continue;
        }
        if (replaced != NULL) {
            *e = replaced;
            return;
        }
        for (; *e != NULL; e++) {
            e[0] = e[1];
        }
        return;
    }
}

bool environment_enter(const char *entry) {
    lock_take(&guard);
    bool done = inside > 0 || exchange(entry);
    inside += done;
    lock_give(&guard);
    return done;
}

void environment_leave(void) {
    lock_take(&guard);
    if (--inside == 0) {
        if (environ == copy) {
            environ = before;
        } else {
            repair(environ);
        }
    }
    lock_give(&guard);
}

static void environment_forked(void) {
    guard = (lock){0};
}
ON(forked, environment_forked);
