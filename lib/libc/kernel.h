/* System calls for which the C library has a function only after GLIBC_2.17, the newest that our files
 * may need: where they are loaded, in anybody's container, it may be as old as that. Each has the
 * arguments, result and errno of the function of that name. */
#ifndef LIBC_KERNEL_H
#define LIBC_KERNEL_H

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <unistd.h>

/* long syscall(long, ...) is declared by unistd.h for _DEFAULT_SOURCE, which not every file asks for. */
long syscall(long number, ...);

/* The kernel's struct stat is the C library's where time_t, off_t and ino_t have 64 bits. */
_Static_assert(sizeof(off_t) == 8 && sizeof(ino_t) == 8 && sizeof(time_t) == 8,
               "a 64-bit kernel's struct stat");

static inline int kernel_fstat(int file, struct stat *status) {
    return (int)syscall(SYS_fstat, file, status);
}

static inline int kernel_stat(const char *path, struct stat *status) {
    return (int)syscall(SYS_newfstatat, AT_FDCWD, path, status, 0);
}

static inline int kernel_lstat(const char *path, struct stat *status) {
    return (int)syscall(SYS_newfstatat, AT_FDCWD, path, status, AT_SYMLINK_NOFOLLOW);
}

static inline int kernel_fstatat(int folder, const char *path, struct stat *status, int flags) {
    return (int)syscall(SYS_newfstatat, folder, path, status, flags);
}

struct statx;

static inline int kernel_statx(int directory, const char *path, int flags, unsigned mask,
                               struct statx *status) {
    return (int)syscall(SYS_statx, directory, path, flags, mask, status);
}

static inline ssize_t kernel_getrandom(void *bytes, size_t count, unsigned flags) {
    return (ssize_t)syscall(SYS_getrandom, bytes, count, flags);
}

static inline int kernel_memfd_create(const char *name, unsigned flags) {
    return (int)syscall(SYS_memfd_create, name, flags);
}

#endif
