/* Looks for names of a driver's library in one of the ways that the loader offers, and prints for each
 * in which file it lies, by inode: ways WAY LIBRARY < NAMES, and "NAME no" where there is none. Then it
 * calls the functions that begin a program's use of the driver, as found, and prints what they answer.
 *
 * Compiled with -DBETWEEN it is a library: one that a program has between itself and the driver, which
 * looks behind itself. With the variable ASK_EARLY=WAY:LIBRARY its constructor does all of this, and
 * ends the process before main. Compiled with -DLINKED the program needs the driver's library itself.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { NAMES_MAX = 4096, THREADS = 16 };

static char *names[NAMES_MAX];
static int count;
static void *handle;

/* The loader's version string for dlvsym: one that the driver's own needs have, for want of others. */
static const char version[] = "GLIBC_2.2.5";

static void *by_handle(const char *name) {
    return dlsym(handle, name);
}
static void *by_handle_version(const char *name) {
    return dlvsym(handle, name, version);
}
static void *by_default(const char *name) {
    return dlsym(RTLD_DEFAULT, name);
}
static void *by_default_version(const char *name) {
    return dlvsym(RTLD_DEFAULT, name, version);
}
/* The next after the object that this code is in. */
__attribute__((visibility("default"))) void *ask_next(const char *name);
__attribute__((visibility("default"))) void *ask_next_version(const char *name);
#ifdef BETWEEN
void *ask_next(const char *name) {
    return dlsym(RTLD_NEXT, name);
}
void *ask_next_version(const char *name) {
    return dlvsym(RTLD_NEXT, name, version);
}
#endif
static void *(*between)(const char *);
static void *by_next(const char *name) {
    return between(name);
}

static void *(*find)(const char *);

static void fail(const char *what) {
    fprintf(stderr, "ways: %s: %s\n", what, dlerror());
    exit(1);
}

static void take_between(const char *symbol) {
    void *found = dlsym(RTLD_DEFAULT, symbol);
    if (found == NULL) {
        fail(symbol);
    }
    memcpy(&between, &found, sizeof between);
    find = by_next;
}

/* Opens the library as the way needs it, and chooses the look-up. */
static void open_way(const char *way, const char *library) {
    int flags = RTLD_NOW | RTLD_LOCAL;
    find = by_handle;
    if (strcmp(way, "namespace") == 0) {
        handle = dlmopen(LM_ID_NEWLM, library, RTLD_NOW);
    } else if (strcmp(way, "second") == 0) { /* beside one in the program's own namespace */
        if (dlopen(library, flags) == NULL) {
            fail("open the first");
        }
        handle = dlmopen(LM_ID_NEWLM, library, RTLD_NOW);
    } else if (strcmp(way, "next") == 0 || strcmp(way, "next-version") == 0) {
        take_between(strcmp(way, "next") == 0 ? "ask_next" : "ask_next_version");
        return; /* opened by the loader, or not at all */
    } else if (strcmp(way, "default") == 0 || strcmp(way, "default-version") == 0) {
        handle = dlopen(library, RTLD_NOW | RTLD_GLOBAL);
        find = strcmp(way, "default") == 0 ? by_default : by_default_version;
    } else if (strcmp(way, "linked") == 0) {
        find = by_default;
        return;
    } else {
        handle = dlopen(library, strcmp(way, "lazy") == 0   ? RTLD_LAZY
                                 : strcmp(way, "deep") == 0 ? RTLD_NOW | RTLD_DEEPBIND
                                                            : flags);
        find = strcmp(way, "version") == 0 ? by_handle_version : by_handle;
    }
    if (handle == NULL) {
        fail(library);
    }
}

/* The inode of the file in which an address lies, 0 for none. */
static unsigned long file_of(const void *address) {
    static unsigned long begin, end, inode;
    unsigned long at = (unsigned long)address;
    if (at >= begin && at < end) {
        return inode;
    }
    FILE *maps = fopen("/proc/self/maps", "re");
    char line[4352];
    while (maps != NULL && fgets(line, sizeof line, maps) != NULL) {
        if (sscanf(line, "%lx-%lx %*s %*s %*s %lu", &begin, &end, &inode) == 3 && at >= begin &&
            at < end) {
            fclose(maps);
            return inode;
        }
    }
    begin = end = inode = 0;
    return 0;
}

static void call(const char *name) {
    void *symbol = find(name);
    if (symbol == NULL) {
        return;
    }
    long long out = -1;
    int status;
    if (strcmp(name, "cuInit") == 0) {
        int (*init)(unsigned);
        memcpy(&init, &symbol, sizeof init);
        status = init(0);
    } else if (strncmp(name, "nvmlI", 5) == 0) {
        int (*init)(void);
        memcpy(&init, &symbol, sizeof init);
        status = init();
    } else {
        int (*get)(long long *, long long);
        memcpy(&get, &symbol, sizeof get);
        status = get(&out, 4096);
    }
    printf("%s() %d %lld\n", name, status, out);
}

static void *first_of[NAMES_MAX];

static void *look_everywhere(void *differing) {
    for (int i = 0; i < count; i++) {
        if (find(names[i]) != first_of[i]) {
            __atomic_add_fetch((int *)differing, 1, __ATOMIC_RELAXED);
        }
    }
    return NULL;
}

/* Looks every name up in many threads at once, and says how often one of them found something else. */
static void ask_threads(void) {
    pthread_t threads[THREADS];
    int differing = 0;
    for (int i = 0; i < THREADS; i++) {
        if (pthread_create(&threads[i], NULL, look_everywhere, &differing) != 0) {
            fail("start a thread");
        }
    }
    for (int i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
    }
    printf("threads() %d\n", differing);
}

static int run(const char *way, const char *library) {
    char line[256];
    while (count < NAMES_MAX && fgets(line, sizeof line, stdin) != NULL) {
        line[strcspn(line, "\n")] = '\0';
        names[count++] = strdup(line);
    }
    open_way(way, library);
    for (int i = 0; i < count; i++) {
        first_of[i] = find(names[i]);
        if (first_of[i] == NULL) {
            printf("%s no\n", names[i]);
        } else {
            printf("%s %lu\n", names[i], file_of(first_of[i]));
        }
    }
    if (strcmp(way, "threads") == 0) {
        ask_threads();
    }
    static const char *const beginning[] = {
        "cuDriverGetVersion", "cuDeviceGetCount",     "cuInit", "cuDeviceGetCount", "cuMemAlloc_v2",
        "nvmlInit_v2",        "nvmlDeviceGetCount_v2"};
    for (size_t i = 0; i < sizeof beginning / sizeof beginning[0]; i++) {
        call(beginning[i]);
    }
    return fflush(stdout);
}

#ifdef BETWEEN
__attribute__((constructor)) static void early(void) {
    char *way = getenv("ASK_EARLY");
    char *colon = way != NULL ? strchr(way, ':') : NULL;
    if (colon != NULL) {
        char name[64];
        snprintf(name, sizeof name, "%.*s", (int)(colon - way), way);
        _exit(run(name, colon + 1));
    }
}
#else
#ifdef LINKED
/* What the linker binds when the program starts. */
int cuInit(unsigned);
int cuDriverGetVersion(int *);
int cuMemAlloc_v2(void *, size_t);
int nvmlInit_v2(void);
#ifdef LINKED_NVML
static const struct bound {
    const char *name;
    void *address;
} bound[] = {{"nvmlInit_v2", (void *)nvmlInit_v2}};
#else
static const struct bound {
    const char *name;
    void *address;
} bound[] = {{"cuInit", (void *)cuInit},
             {"cuDriverGetVersion", (void *)cuDriverGetVersion},
             {"cuMemAlloc_v2", (void *)cuMemAlloc_v2}};
#endif
#endif

int main(int argc, char **argv) {
    if (argc != 3) {
        fprintf(stderr, "usage: ways WAY LIBRARY < NAMES\n");
        return 2;
    }
    if (strcmp(argv[1], "load") == 0) { /* a library whose constructor does it all */
        if (dlopen(argv[2], RTLD_NOW) == NULL) {
            fail(argv[2]);
        }
        return 3;
    }
#ifdef LINKED
    for (size_t i = 0; i < sizeof bound / sizeof bound[0]; i++) {
        printf("%s %lu\n", bound[i].name, file_of(bound[i].address));
    }
#endif
    return run(argv[1], argv[2]);
}
#endif
