#define _GNU_SOURCE
#include "cuda/environment.h"

#include <stddef.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "cuda/fork.h"
#include "cuda/lock.h"

static lock guard; /* held while entries are exchanged, not during the driver's call */
static unsigned inside;
static bool disturbed; /* since the first who is inside came */

/* What is shown, and the program's entry in whose place it stands, NULL if there was none. */
static struct {
    char *entry;
    char *instead; /* of a hidden variable: an empty text, told from others by its address */
    char *replaced;
} shown[ENVIRONMENT_ENTRIES];
static unsigned shown_count;
static char hidden[ENVIRONMENT_ENTRIES][1];

static char **ours; /* the array that we made last */
static size_t room; /* its pointers */

/* Other threads read the array, and exchange entries in it, without a lock that we could take. */
static char *load(char **at) {
    return __atomic_load_n(at, __ATOMIC_RELAXED);
}

static void store(char **at, char *entry) {
    __atomic_store_n(at, entry, __ATOMIC_RELEASE);
}

static bool same_name(const char *a, const char *b) {
    size_t length = strcspn(b, "=");
    return strncmp(a, b, length) == 0 && a[length] == '=';
}

/* The place of the first entry of a name, NULL if there is none. */
static char **find_name(char **array, const char *entry) {
    for (char **e = array; e != NULL && load(e) != NULL; e++) {
        if (same_name(load(e), entry)) {
            return e;
        }
    }
    return NULL;
}

static char **find_entry(char **array, const char *entry) {
    for (char **e = array; e != NULL && load(e) != NULL; e++) {
        if (load(e) == entry) {
            return e;
        }
    }
    return NULL;
}

static size_t count_entries(char **array) {
    size_t count = 0;
    while (array != NULL && load(&array[count]) != NULL) {
        count++;
    }
    return count;
}

/* An array with the program's entries and room for ours. */
static char **make_room(size_t count) {
    if (environ == ours && count + ENVIRONMENT_ENTRIES < room) {
        return ours;
    }
    size_t pointers = 2 * (count + ENVIRONMENT_ENTRIES + 1);
    char **copy = mmap(NULL, pointers * sizeof *copy, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (copy == MAP_FAILED) {
        return NULL;
    }
    for (size_t i = 0; i < count; i++) {
        copy[i] = load(&environ[i]);
    }
    ours = copy;
    room = pointers;
    return copy;
}

/* Puts one entry into an array that has room, behind `count` others or in the place of its name. */
static void show(char **array, unsigned number, size_t *count) {
    char *entry = shown[number].entry;
    char **place = find_name(array, entry);
    shown[number].replaced = place != NULL ? load(place) : NULL;
    shown[number].instead = strchr(entry, '=') != NULL ? entry : hidden[number];
    if (place != NULL) {
        store(place, shown[number].instead);
    } else if (shown[number].instead == entry) {
        store(&array[*count + 1], NULL);
        store(&array[(*count)++], entry);
    }
}

static bool show_all(const struct environment *environment) {
    size_t count = count_entries(environ);
    char **array = make_room(count);
    if (array == NULL) {
        return false;
    }
    shown_count = environment->count;
    for (unsigned i = 0; i < shown_count; i++) {
        shown[i].entry = environment->entry[i];
        show(array, i, &count);
    }
    __atomic_store_n(&environ, array, __ATOMIC_RELEASE);
    disturbed = false;
    return true;
}

/* Whether whoever asks for the names finds what is shown. */
static bool all_shown(void) {
    for (unsigned i = 0; i < shown_count; i++) {
        char **place = find_name(environ, shown[i].entry);
        bool visible = shown[i].instead == shown[i].entry;
        if (visible ? place == NULL || load(place) != shown[i].entry : place != NULL) {
            return false;
        }
    }
    return true;
}

/* Gives the program its own entries back, in whatever array it has by now: if a thread has set a
 * variable meanwhile, the C library may have made a new one out of ours. */
static void restore_all(void) {
    for (unsigned i = shown_count; i-- > 0;) {
        char **place = find_entry(environ, shown[i].instead);
        if (place != NULL && shown[i].replaced != NULL) {
            store(place, shown[i].replaced);
            continue;
        }
        for (; place != NULL && load(place) != NULL; place++) {
            store(place, load(place + 1));
        }
    }
    shown_count = 0;
}

bool environment_enter(const struct environment *environment) {
    lock_take(&guard);
    bool done = inside > 0 || show_all(environment);
    inside += done;
    lock_give(&guard);
    return done;
}

bool environment_leave(void) {
    lock_take(&guard);
    disturbed |= !all_shown();
    bool sound = !disturbed;
    if (--inside == 0) {
        restore_all();
    }
    lock_give(&guard);
    return sound;
}

/* The threads that were inside are not in the child. */
static void environment_forked(void) {
    guard = (lock){0};
    restore_all();
    inside = 0;
}
ON(forked, environment_forked);
