/* A descriptor of a directory stays in the mount namespace where it was opened, in which nothing is covered: who has one reaches
 * all that is there, also by "..". One of a device node needs no path. */
#include "enter/contain.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "libc/kernel.h"

/* More than a machine has of nodes that lead to GPUs. Where there is no room for a node it is not noted. */
enum { MOST_DEVICES = 4096 };

static dev_t devices[MOST_DEVICES];
static size_t device_count;

static void note(int folder, const char *name) {
    struct stat status;

    /* Inside of another share /dev/null may stand where a GPU's node does, and leads to no GPU. */
    if (kernel_fstatat(folder, name, &status, AT_SYMLINK_NOFOLLOW) == 0 &&
        S_ISCHR(status.st_mode) && status.st_rdev != makedev(1, 3) && device_count < MOST_DEVICES) {
        devices[device_count++] = status.st_rdev;
    }
}

void contain_note(const char *place) {
    DIR *folder = opendir(place);
    const struct dirent *entry;

    note(AT_FDCWD, place);
    while (folder && (entry = readdir(folder)) != NULL) {
        if (entry->d_type == DT_CHR || entry->d_type == DT_UNKNOWN) {
            note(dirfd(folder), entry->d_name);
        }
    }
    if (folder) {
        closedir(folder);
    }
}

static bool is_noted(dev_t device) {
    for (size_t i = 0; i < device_count; i++) {
        if (devices[i] == device) {
            return true;
        }
    }
    return false;
}

/* The path of a link in /proc/self; false if the kernel tells none. */
static bool path_of(const char *link, char path[PATH_MAX]) {
    ssize_t length = readlink(link, path, PATH_MAX - 1);

    path[length > 0 ? length : 0] = 0;
    return length > 0;
}

static bool same(const struct stat *one, const struct stat *other) {
    return one->st_dev == other->st_dev && one->st_ino == other->st_ino;
}

/* Puts the directory that is at the path now in the descriptor's place, if it is the same one. */
static bool open_again(int file, const struct stat *status, const char *path) {
    struct stat now;
    int flags = fcntl(file, F_GETFL), on_exec = fcntl(file, F_GETFD);
    int again = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC | (flags & O_PATH));
    bool good = again >= 0 && flags >= 0 && on_exec >= 0 && kernel_fstat(again, &now) == 0 &&
                same(status, &now) &&
                dup3(again, file, (on_exec & FD_CLOEXEC) != 0 ? O_CLOEXEC : 0) == file;

    if (again >= 0) {
        close(again);
    }
    return good;
}

/* A standard stream stays open, for who takes its number for granted. */
static void give_up(int file, const char *path) {
    int nothing = file <= STDERR_FILENO ? open("/dev/null", O_RDWR | O_CLOEXEC) : -1;

    fprintf(stderr, "divvy: descriptor %d is closed for the command: %s is hidden from it\n", file,
            path[0] != 0 ? path : "what it leads to");
    if (nothing < 0 || dup3(nothing, file, 0) != file) {
        close(file);
    }
    if (nothing >= 0) {
        close(nothing);
    }
}

static void contain(int file) {
    char link[64], path[PATH_MAX];
    struct stat status;

    if (kernel_fstat(file, &status) != 0) {
        return; /* it is none */
    }
    (void)snprintf(link, sizeof link, "/proc/self/fd/%d", file);
    bool told = path_of(link, path);
    if ((S_ISDIR(status.st_mode) && !(told && open_again(file, &status, path))) ||
        (S_ISCHR(status.st_mode) && is_noted(status.st_rdev))) {
        give_up(file, path);
    }
}

/* One that is covered is left for what covers it. */
static void contain_working_directory(void) {
    char path[PATH_MAX];
    struct stat here, there;

    if (path_of("/proc/self/cwd", path) && kernel_stat(".", &here) == 0 &&
        kernel_stat(path, &there) == 0 && !same(&here, &there) && chdir(path) != 0 &&
        chdir("/") != 0) {
        fputs("divvy: the command's directory stays\n",
              stderr); /* which the kernel never refuses */
    }
}

bool contain_open_files(void) {
    DIR *folder = opendir("/proc/self/fd");
    int *files = NULL;
    size_t count = 0, room = 0;
    const struct dirent *entry;

    while (folder && (entry = readdir(folder)) != NULL) {
        int file = atoi(entry->d_name);
        if (entry->d_name[0] == '.' || file == dirfd(folder)) {
            continue;
        }
        if (count == room) {
            room = room ? 2 * room : 64;
            int *more = realloc(files, room * sizeof *files);
            if (!more) {
                break;
            }
            files = more;
        }
        files[count++] = file;
    }
    bool whole = folder && !entry;
    if (folder) {
        closedir(folder);
    }
    for (size_t i = 0; whole && i < count; i++) {
        contain(files[i]);
    }
    free(files);
    if (whole) {
        contain_working_directory();
    }
    return whole;
}
