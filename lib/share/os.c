#define _GNU_SOURCE /* F_OFD_SETLK */
#include "share/os.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/futex.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "libc/kernel.h"

uint64_t os_now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* The functions below run inside calls of an application, which may look at errno after them. */
void os_futex_wait(const uint32_t *word, uint32_t value, uint64_t timeout_ns) {
    struct timespec timeout = {
        .tv_sec = (time_t)(timeout_ns / 1000000000u),
        .tv_nsec = (long)(timeout_ns % 1000000000u),
    };
    int saved = errno;
    syscall(SYS_futex, word, FUTEX_WAIT, value, &timeout, NULL, 0);
    errno = saved;
}

void os_futex_wake(const uint32_t *word) {
    int saved = errno;
    syscall(SYS_futex, word, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
    errno = saved;
}

bool os_lock_contended(uint32_t *lock, uint32_t *waiters) {
    for (unsigned slice = 0; slice <= OS_LOCK_SLICES; slice++) {
        for (unsigned spin = 0; spin < 100; spin++) {
            uint32_t open = 0;
            if (__atomic_load_n(lock, __ATOMIC_RELAXED) == 0 &&
                __atomic_compare_exchange_n(lock, &open, 1, false, __ATOMIC_ACQUIRE,
                                            __ATOMIC_RELAXED)) {
                return true;
            }
        }
        __atomic_store_n(waiters, 1, __ATOMIC_SEQ_CST);
        os_futex_wait(lock, 1, OS_LOCK_SLICE_NS);
    }
    return false;
}

void os_unlock_contended(uint32_t *lock, uint32_t *waiters) {
    __atomic_store_n(waiters, 0, __ATOMIC_SEQ_CST);
    os_futex_wake(lock);
}

static struct flock whole_byte(uint64_t offset, short type) {
    return (struct flock){
        .l_type = type, .l_whence = SEEK_SET, .l_start = (off_t)offset, .l_len = 1};
}

bool os_try_lock_byte(int fd, uint64_t offset) {
    struct flock lock = whole_byte(offset, F_WRLCK);
    return fcntl(fd, F_OFD_SETLK, &lock) == 0;
}

void os_unlock_byte(int fd, uint64_t offset) {
    struct flock lock = whole_byte(offset, F_UNLCK);
    fcntl(fd, F_OFD_SETLK, &lock);
}

bool os_byte_locked(int fd, uint64_t offset) {
    struct flock lock = whole_byte(offset, F_WRLCK);
    return fcntl(fd, F_OFD_GETLK, &lock) != 0 || lock.l_type != F_UNLCK;
}

uint64_t os_pid_namespace(void) {
    struct stat status;
    return kernel_stat("/proc/self/ns/pid", &status) == 0 ? status.st_ino : 0;
}

/* Fields of /proc/<pid>/stat, proc(5), after the command, which may itself hold spaces and ')'. */
enum { STAT_STATE = 3, STAT_FLAGS = 9, STAT_THREADS = 20, STAT_START = 22 };

struct stat_line {
    char state;
    uint64_t flags, threads, start_time;
};

static bool read_text(const char *path, char *text, size_t room) {
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        return false;
    }
    ssize_t size = read(fd, text, room - 1);
    close(fd);
    text[size > 0 ? size : 0] = '\0';
    return size > 0;
}

static bool read_stat(const char *path, struct stat_line *line) {
    char text[1024];
    if (!read_text(path, text, sizeof text)) {
        return false;
    }
    char *field = strrchr(text, ')');
    for (int number = STAT_STATE; field != NULL && number <= STAT_START; number++) {
        field = strchr(field + 1, ' ');
        if (field == NULL) {
            return false;
        }
        uint64_t value = strtoull(field + 1, NULL, 10);
        switch (number) {
        case STAT_STATE:
            line->state = field[1];
            break;
        case STAT_FLAGS:
            line->flags = value;
            break;
        case STAT_THREADS:
            line->threads = value;
            break;
        case STAT_START:
            line->start_time = value;
            break;
        default:
            break;
        }
    }
    return field != NULL;
}

uint64_t os_start_time(void) {
    struct stat_line line;
    int saved = errno;
    bool known = read_stat("/proc/self/stat", &line);
    errno = saved;
    return known ? line.start_time : 0;
}

#define PF_EXITING 0x4u /* include/linux/sched.h, unchanged since 2.6 */

static bool is_exiting(const struct stat_line *line) {
    bool ended = line->state == 'Z' || line->state == 'X';
    if (ended && line->threads <= 1) {
        return false; /* a zombie has closed its files */
    }
    return ended || (line->flags & PF_EXITING) != 0;
}

bool os_process_exiting(pid_t pid, uint64_t start_time) {
    char path[32];
    struct stat_line line;
    snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    int saved = errno;
    bool known = read_stat(path, &line);
    errno = saved;
    return known && line.start_time == start_time && is_exiting(&line);
}

/* The last number of the line NSpid, proc_pid_status(5): in the innermost namespace. */
static pid_t innermost_pid(const char *number) {
    char path[320], text[4096];
    snprintf(path, sizeof path, "/proc/%s/status", number);
    char *line = read_text(path, text, sizeof text) ? strstr(text, "\nNSpid:") : NULL;
    char *end = line == NULL ? NULL : strchr(line + 1, '\n');
    if (end == NULL) {
        return 0;
    }
    *end = '\0';
    return (pid_t)atoi(strrchr(line, '\t') + 1);
}

/* What SYS_getdents64 writes; opendir would allocate. */
struct directory_entry {
    uint64_t inode;
    int64_t next;
    uint16_t size;
    uint8_t type;
    char name[];
};

static bool add_exiting(const char *name, os_exiting *exiting) {
    char path[320];
    struct stat_line line;
    snprintf(path, sizeof path, "/proc/%s/stat", name);
    if (*name < '1' || *name > '9' || !read_stat(path, &line) || !is_exiting(&line)) {
        return true;
    }
    if (exiting->count == OS_EXITING_MAX) {
        return false;
    }
    exiting->process[exiting->count].start_time = line.start_time;
    exiting->process[exiting->count++].pid = innermost_pid(name);
    return true;
}

bool os_find_exiting(os_exiting *exiting) {
    _Alignas(struct directory_entry) char entries[8192];
    int saved = errno;
    int fd = open("/proc", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    bool complete = fd >= 0;
    long size = 0;
    exiting->count = 0;
    while (complete && (size = syscall(SYS_getdents64, fd, entries, sizeof entries)) > 0) {
        for (long at = 0; at < size && complete;) {
            const struct directory_entry *entry = (const void *)(entries + at);
            complete = add_exiting(entry->name, exiting);
            at += entry->size;
        }
    }
    if (fd >= 0) {
        close(fd);
    }
    errno = saved;
    return complete && size == 0;
}
