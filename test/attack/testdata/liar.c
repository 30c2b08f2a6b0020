/* Lies in its share's page about who is in the share. Takes memory, prints a line, waits for a
 * byte, lies, prints another line and waits for the end of its standard input.
 *
 *     liar forge BYTES LAYOUT... PID...    says that other processes are in it
 *     liar vanish BYTES LAYOUT...          leaves its parent, and says that nobody is in it
 *     liar damage BYTES LAYOUT...          leaves its parent, and fills the page with ones
 *
 * LAYOUT is that of a state page: where the number of slots lies, the slots, the size of a slot, in
 * it the pid and the agent's pid, and where the locks of slots begin. */
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define FIRST_EXTRA 64u /* of the slots that it forges */

static struct {
    char *page;
    size_t size;
    char path[4096];
    ino_t inode;
    dev_t device;
} state;

static long layout[6];

static void die(const char *what) {
    perror(what);
    exit(2);
}

static void *symbol(void *library, const char *name) {
    void *found = library != NULL ? dlsym(library, name) : NULL;
    if (found == NULL) {
        fprintf(stderr, "%s is not there: %s\n", name, dlerror());
        exit(3);
    }
    return found;
}

static void take(unsigned long long bytes) {
    int (*init)(unsigned), (*retain)(void **, int), (*current)(void *);
    int (*allocate)(unsigned long long *, size_t);
    void *library = dlopen("libcuda.so.1", RTLD_NOW), *context, *found;
    unsigned long long pointer;
    memcpy(&init, (found = symbol(library, "cuInit"), &found), sizeof init);
    memcpy(&retain, (found = symbol(library, "cuDevicePrimaryCtxRetain"), &found), sizeof retain);
    memcpy(&current, (found = symbol(library, "cuCtxSetCurrent"), &found), sizeof current);
    memcpy(&allocate, (found = symbol(library, "cuMemAlloc_v2"), &found), sizeof allocate);
    if (init(0) != 0 || retain(&context, 0) != 0 || current(context) != 0 ||
        allocate(&pointer, bytes) != 0) {
        fprintf(stderr, "the driver refuses %llu bytes\n", bytes);
        exit(3);
    }
}

/* Finds the library's mapping of the state page, beside which lies a config page. */
static void find_state(void) {
    char line[4000], config[4096];
    struct stat file;
    unsigned long from, to;
    FILE *maps = fopen("/proc/self/maps", "r");
    while (maps != NULL && state.page == NULL && fgets(line, sizeof line, maps) != NULL) {
        char *path = strchr(line, '/'), *end = strstr(line, "/state\n");
        if (path == NULL || end == NULL || sscanf(line, "%lx-%lx", &from, &to) != 2) {
            continue;
        }
        *end = '\0';
        (void)snprintf(config, sizeof config, "%s/config", path);
        (void)snprintf(state.path, sizeof state.path, "%s/state", path);
        if (access(config, F_OK) == 0 && stat(state.path, &file) == 0) {
            memcpy(&state.page, &from, sizeof from);
            state.size = to - from;
            state.inode = file.st_ino;
            state.device = file.st_dev;
        }
    }
    if (state.page == NULL) {
        errno = ENOENT;
        die("find the state page");
    }
}

/* Puts the pids into slots of their own, whose locks it holds, as the processes would, and the
 * first into every slot that there is. */
static void forge(char **pids) {
    uint32_t first = (uint32_t)atoi(pids[0]), count = FIRST_EXTRA;
    int file = open(state.path, O_RDWR);
    char *slots = state.page + layout[1];
    for (unsigned i = 0; i < FIRST_EXTRA; i++) {
        uint32_t *pid = (void *)(slots + (long)i * layout[2] + layout[3]);
        uint32_t *host = (void *)(slots + (long)i * layout[2] + layout[4]);
        if (*pid != 0) {
            memcpy(slots + FIRST_EXTRA * layout[2], slots + (long)i * layout[2], (size_t)layout[2]);
            *pid = *host = first;
        }
    }
    for (; *pids != NULL; pids++, count++) {
        char *slot = slots + (long)count * layout[2];
        uint32_t pid = (uint32_t)atoi(*pids);
        struct flock lock = {.l_type = F_WRLCK, .l_start = layout[5] + count, .l_len = 1};
        memmove(slot, slots + FIRST_EXTRA * layout[2], (size_t)layout[2]);
        memcpy(slot + layout[3], &pid, sizeof pid);
        memcpy(slot + layout[4], &pid, sizeof pid);
        if (file < 0 || fcntl(file, F_OFD_SETLK, &lock) != 0) {
            die(state.path);
        }
    }
    memcpy(state.page + layout[0], &count, sizeof count);
}

/* Closes all that leads to the page, which goes on as memory of its own. */
static void leave(void) {
    struct stat file;
    DIR *files = opendir("/proc/self/fd");
    if (mmap(state.page, state.size, PROT_READ | PROT_WRITE,
             MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == MAP_FAILED) {
        die("leave the page");
    }
    for (struct dirent *entry; files != NULL && (entry = readdir(files)) != NULL;) {
        int open = atoi(entry->d_name);
        if (fstat(open, &file) == 0 && file.st_ino == state.inode && file.st_dev == state.device) {
            close(open);
        }
    }
}

static void say(const char *line) {
    printf("%s\n", line);
    fflush(stdout);
}

int main(int argc, char **argv) {
    char end;
    if (argc < 9) {
        return 2;
    }
    for (int i = 0; i < 6; i++) {
        layout[i] = atol(argv[3 + i]);
    }
    int vanish = strcmp(argv[1], "vanish") == 0, damage = strcmp(argv[1], "damage") == 0;
    int ends[2];
    if ((vanish || damage) && pipe(ends) == 0) {
        if (fork() != 0) {
            close(ends[1]);
            while (read(ends[0], &end, 1) > 0) {
            }
            _exit(0);
        }
        setsid();
        for (int file = 3; file < 1024; file++) { /* its parent's connection to the agent, too */
            if (file != ends[1]) {
                close(file);
            }
        }
    }
    take(strtoull(argv[2], NULL, 10));
    find_state();
    say("taken");
    if (read(0, &end, 1) != 1) {
        return 0;
    }
    if (vanish || damage) {
        close(ends[1]);
    }
    if (vanish) {
        memset(state.page + layout[0], 0, sizeof(uint32_t));
        memset(state.page + layout[1], 0, (size_t)(FIRST_EXTRA * layout[2]));
        leave();
    } else if (damage) {
        memset(state.page, 0xff, 4096);
    } else if (argc > 9) {
        forge(argv + 9);
    }
    say("done");
    while (read(0, &end, 1) > 0) {
    }
    return 0;
}
