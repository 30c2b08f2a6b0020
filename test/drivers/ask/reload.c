/* Loads a library, calls a function of it and unloads it, again and again, and prints by how much what
 * the process holds has grown since a tenth of the rounds: mappings, descriptors, threads, bytes of
 * heap, resident bytes. reload LIBRARY FUNCTION ROUNDS THREADS. The threads share the rounds. */
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <malloc.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static const char *library, *function;
static int rounds_each;
/* All threads are there before the first begins: one that ends leaves its stack and its heap to the next. Whether that one needs
 * its own would be chance, and what it then grows by nobody's. None ends before all have done their rounds: libcuda.so.1 has a
 * pthread_key_create destructor, which an ending thread would run while another one unloads the code (555 crashes so, alone). */
static pthread_barrier_t all_there, all_done;

struct held {
    long mappings, descriptors, threads, heap, resident;
};

static void fail(const char *what) {
    const char *why = dlerror();
    fprintf(stderr, "reload: %s: %s\n", what, why != NULL ? why : "failed");
    exit(1);
}

/* Calls the function with zeros, or where to write a version. What it answers is compared elsewhere. */
static void call(void *handle) {
    void *symbol = dlsym(handle, function);
    int (*called)(void *);
    int version;
    if (symbol == NULL) {
        fail(function);
    }
    memcpy(&called, &symbol, sizeof called);
    called(strstr(function, "Version") != NULL ? &version : NULL);
}

static void *reload(void *tid) {
    void *volatile first = malloc(1); /* from here on it has a heap */

    *(pid_t *)tid = gettid();
    free(first);
    pthread_barrier_wait(&all_there);
    for (int i = 0; i < rounds_each; i++) {
        void *handle = dlopen(library, RTLD_NOW);
        if (handle == NULL) {
            fail("load");
        }
        call(handle);
        if (dlclose(handle) != 0) {
            fail("unload");
        }
    }
    pthread_barrier_wait(&all_done);
    return NULL;
}

/* pthread_join returns a moment before the kernel has taken the thread out of its lists. */
static void await_gone(pid_t tid) {
    const struct timespec nap = {.tv_nsec = 1000000};
    char path[64];
    snprintf(path, sizeof path, "/proc/self/task/%d", (int)tid);
    for (int i = 0; access(path, F_OK) == 0; i++) {
        if (i == 10000) {
            fail("end a thread");
        }
        nanosleep(&nap, NULL);
    }
}

static void run(int rounds, int threads) {
    pthread_t started[64];
    pid_t tids[64];
    rounds_each = rounds / threads;
    if (pthread_barrier_init(&all_there, NULL, (unsigned)threads) != 0 ||
        pthread_barrier_init(&all_done, NULL, (unsigned)threads) != 0) {
        fail("make a barrier");
    }
    for (int i = 0; i < threads; i++) {
        if (pthread_create(&started[i], NULL, reload, &tids[i]) != 0) {
            fail("start a thread");
        }
    }
    for (int i = 0; i < threads; i++) {
        pthread_join(started[i], NULL);
        await_gone(tids[i]);
    }
    pthread_barrier_destroy(&all_there);
    pthread_barrier_destroy(&all_done);
}

static long entries_of(const char *path) {
    DIR *dir = opendir(path);
    long count = 0;
    while (dir != NULL && readdir(dir) != NULL) {
        count++;
    }
    if (dir == NULL || closedir(dir) != 0) {
        fail(path);
    }
    return count;
}

static struct held look(void) {
    struct held held = {.descriptors = entries_of("/proc/self/fd"),
                        .threads = entries_of("/proc/self/task"),
                        .heap = (long)mallinfo2().uordblks};
    char line[4352];
    FILE *maps = fopen("/proc/self/maps", "re");
    while (maps != NULL && fgets(line, sizeof line, maps) != NULL) {
        held.mappings++;
    }
    FILE *status = fopen("/proc/self/status", "re");
    while (status != NULL && fgets(line, sizeof line, status) != NULL) {
        sscanf(line, "VmRSS: %ld", &held.resident);
    }
    if (maps == NULL || status == NULL || fclose(maps) != 0 || fclose(status) != 0) {
        fail("/proc/self");
    }
    return held;
}

int main(int argc, char **argv) {
    if (argc != 5) {
        fprintf(stderr, "usage: reload LIBRARY FUNCTION ROUNDS THREADS\n");
        return 2;
    }
    library = argv[1];
    function = argv[2];
    int rounds = atoi(argv[3]), threads = atoi(argv[4]);
    if (threads < 1 || threads > 64 || rounds < 10 * threads) {
        fprintf(stderr, "reload: 1 to 64 threads, 10 rounds each at least\n");
        return 2;
    }
    run(rounds / 10, threads);
    struct held before = look();
    run(rounds - rounds / 10, threads);
    struct held after = look();
    printf("%ld %ld %ld %ld %ld\n", after.mappings - before.mappings,
           after.descriptors - before.descriptors, after.threads - before.threads,
           after.heap - before.heap, (after.resident - before.resident) * 1024);
    return 0;
}
