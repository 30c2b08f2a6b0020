/* The pid by which the caller knows a client.
 *
 * A process knows its pid in its own pid namespace only. For the others, each client holds a
 * flock(2) on a file of its own that nobody else can open: /proc/locks shows the holder's number in
 * the reader's namespace, and leaves out whom it does not see, as drivers that translate pids do.
 * The kernel keeps this list right when processes die. */
#define _GNU_SOURCE
#include "simgpu/machine/state.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "libc/kernel.h"

static uint64_t own_namespace(void) {
    struct stat info;

    return kernel_stat("/proc/self/ns/pid", &info) == 0 ? info.st_ino : 0;
}

int sg_who_describe(struct sg_who *who) {
    struct stat info;

    *who = (struct sg_who){.pid = getpid(), .namespace = own_namespace()};
    int fd = kernel_memfd_create("simgpu-client", MFD_CLOEXEC);
    if (fd < 0) {
        return -1;
    }
    if (kernel_fstat(fd, &info) == 0 && flock(fd, LOCK_EX | LOCK_NB) == 0) {
        who->device = info.st_dev;
        who->inode = info.st_ino;
        return fd;
    }
    close(fd);
    return -1;
}

/* "12: FLOCK  ADVISORY  WRITE 4711 00:01:2063 0 EOF", proc_locks(5). */
static bool parse(const char *line, struct sg_marked *marked) {
    unsigned int major_number, minor_number;
    unsigned long long inode;
    int pid;

    if (sscanf(line, "%*u: FLOCK %*s %*s %d %x:%x:%llu", &pid, &major_number, &minor_number,
               &inode) != 4) {
        return false;
    }
    *marked = (struct sg_marked){
        .pid = pid, .device = makedev(major_number, minor_number), .inode = inode};
    return true;
}

static void add(struct sg_pids *pids, const struct sg_marked *marked) {
    if (pids->count == pids->room) {
        size_t room = pids->room ? 2 * pids->room : 64;
        struct sg_marked *grown = realloc(pids->marked, room * sizeof *grown);
        if (!grown) {
            return;
        }
        pids->marked = grown;
        pids->room = room;
    }
    pids->marked[pids->count++] = *marked;
}

void sg_pids_read(struct sg_pids *pids) {
    char line[256];
    struct sg_marked marked;
    FILE *file = fopen("/proc/locks", "re");

    pids->own = own_namespace();
    pids->read = true;
    while (file && fgets(line, sizeof line, file)) {
        if (parse(line, &marked)) {
            add(pids, &marked);
        }
    }
    if (file) {
        fclose(file);
    }
}

/* Numbers that were found before, by inode: a process keeps its number in the reader's namespace,
 * and the list of all locks takes long to read. A child may be in another namespace. */
#define KNOWN 1024u
static struct {
    pthread_mutex_t lock;
    uint64_t own; /* the namespace for which they hold */
    struct sg_marked places[KNOWN];
} known = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* Does not wait: another thread may have held the lock when the process forked. */
static int32_t recall(uint64_t own, const struct sg_who *who) {
    const struct sg_marked *place = &known.places[who->inode % KNOWN];
    int32_t pid = 0;

    if (pthread_mutex_trylock(&known.lock) != 0) {
        return 0;
    }
    if (known.own == own && place->inode == who->inode && place->device == who->device) {
        pid = place->pid;
    }
    pthread_mutex_unlock(&known.lock);
    return pid;
}

static void remember(uint64_t own, const struct sg_marked *marked) {
    if (pthread_mutex_trylock(&known.lock) != 0) {
        return;
    }
    if (known.own != own) {
        memset(known.places, 0, sizeof known.places);
    }
    known.own = own;
    known.places[marked->inode % KNOWN] = *marked;
    pthread_mutex_unlock(&known.lock);
}

int32_t sg_pids_of(struct sg_pids *pids, const struct sg_who *who) {
    if (!pids->own) {
        pids->own = own_namespace();
    }
    if (who->namespace == pids->own) {
        return who->pid;
    }
    int32_t pid = pids->read ? 0 : recall(pids->own, who);
    if (pid) {
        return pid;
    }
    if (!pids->read) {
        sg_pids_read(pids);
    }
    for (size_t i = 0; i < pids->count; i++) {
        if (pids->marked[i].inode == who->inode && pids->marked[i].device == who->device) {
            remember(pids->own, &pids->marked[i]);
            return pids->marked[i].pid;
        }
    }
    return 0;
}

void sg_pids_end(struct sg_pids *pids) {
    free(pids->marked);
    *pids = (struct sg_pids){.count = 0};
}
