#define _GNU_SOURCE
#include "share/mark.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "abi/generated/page_layout.h"
#include "libc/kernel.h"
#include "share/locks.h"

uint64_t mark_new(void) {
    uint64_t random;
    if (kernel_getrandom(&random, sizeof random, GRND_NONBLOCK) != (ssize_t)sizeof random) {
        return 0;
    }
    return DV_PAGE_MARK_BASE + random % DV_PAGE_MARK_BASE;
}

bool mark_put(int fd, uint64_t mark) {
    struct flock lock = {
        .l_type = F_RDLCK, .l_whence = SEEK_SET, .l_start = (off_t)mark, .l_len = 1};
    return fcntl(fd, F_OFD_SETLK, &lock) == 0;
}

static void keep_least(uint64_t mark, void *arg) {
    uint64_t *least = arg;
    if (mark >= DV_PAGE_MARK_BASE && mark < 2 * DV_PAGE_MARK_BASE &&
        (*least == 0 || mark < *least)) {
        *least = mark;
    }
}

uint64_t mark_of(int fd) {
    int saved = errno;
    uint64_t least = 0;
    locks_of_descriptor(fd, keep_least, &least);
    errno = saved;
    return least;
}

static bool is_file(int fd, uint64_t filesystem, uint64_t inode) {
    struct stat status;
    return kernel_fstat(fd, &status) == 0 && status.st_dev == filesystem && status.st_ino == inode;
}

/* The file for reading, -1 unless its path still leads to it. Opening must not wait, as with a
 * FIFO, nor make a terminal ours. */
static int open_again(const struct mark_file *file) {
    int fd = open(file->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (fd >= 0 && !is_file(fd, file->filesystem, file->inode)) {
        close(fd);
        fd = -1;
    }
    return fd;
}

static const struct mark_file *find(const struct mark_file files[MARK_FILES], uint64_t filesystem,
                                    uint64_t inode) {
    for (const struct mark_file *f = files; f < files + MARK_FILES; f++) {
        if (f->path[0] != '\0' && f->filesystem == filesystem && f->inode == inode) {
            return f;
        }
    }
    return NULL;
}

void mark_learn(struct mark_file files[MARK_FILES], int fd) {
    int saved = errno;
    struct stat status;
    struct mark_file new = {0};
    char link[40];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    if (kernel_fstat(fd, &status) == 0 && find(files, status.st_dev, status.st_ino) == NULL &&
        readlink(link, new.path, sizeof new.path - 1) > 0) {
        new.filesystem = status.st_dev;
        new.inode = status.st_ino;
        int again = new.path[0] == '/' ? open_again(&new) : -1;
        for (unsigned i = 0; i < MARK_FILES && again >= 0; i++) {
            if (files[i].path[0] == '\0') {
                files[i] = new;
                break;
            }
        }
        if (again >= 0) {
            close(again);
        }
    }
    errno = saved;
}

static bool is_locked(int file, uint64_t mark) {
    struct flock lock = {
        .l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = (off_t)mark, .l_len = 1};
    return fcntl(file, F_OFD_GETLK, &lock) != 0 || lock.l_type != F_UNLCK;
}

struct reading {
    struct mark_search *list;
    unsigned count;
};

static void note_held(uint64_t mark, void *arg) {
    const struct reading *reading = arg;
    for (unsigned i = 0; i < reading->count; i++) {
        if (reading->list[i].mark == mark) {
            reading->list[i].held = true;
        }
    }
}

/* Answers for the marks whose file was learnt; returns how many others there are. */
static unsigned ask_files(const struct mark_file files[MARK_FILES], struct mark_search *list,
                          unsigned count, bool *asked) {
    const struct mark_file *last = NULL;
    unsigned others = 0;
    int opened = -1;
    for (unsigned i = 0; i < count; i++) {
        const struct mark_file *file =
            list[i].inode == 0 ? NULL : find(files, list[i].filesystem, list[i].inode);
        if (file != NULL && file != last) {
            if (opened >= 0) {
                close(opened);
            }
            opened = open_again(file);
            last = file;
        }
        asked[i] = file != NULL && opened >= 0;
        list[i].held = asked[i] && is_locked(opened, list[i].mark);
        others += !asked[i];
    }
    if (opened >= 0) {
        close(opened);
    }
    return others;
}

bool marks_look(const struct mark_file files[MARK_FILES], struct mark_search *list,
                unsigned count) {
    int saved = errno;
    bool asked[MARKS_AT_ONCE];
    struct reading reading = {list, count};
    bool told = ask_files(files, list, count, asked) == 0 || locks_of_all(note_held, &reading);
    for (unsigned i = 0; i < count && !told; i++) {
        list[i].held = list[i].held || !asked[i];
    }
    errno = saved;
    return told;
}
