/* File descriptors that stand for an object: while one is open anywhere, even unread in a socket,
 * the object lives. Each is a description of D/exports that holds the file lock of the object's
 * byte and whose position tells which object it is. */
#define _GNU_SOURCE
#include "simgpu/machine/state.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "libc/kernel.h"

#define KEY_BITS 16 /* of the object's key, in the position */

static int open_exports(const struct sg_instance *in) {
    char path[SG_PATH_BYTES + 16];

    snprintf(path, sizeof path, "%s/exports", in->dir);
    int fd = open(path, O_RDWR | O_CLOEXEC);
    return fd < 0 ? -errno : fd;
}

/* Read locks, so that an object can have several descriptors. */
static struct flock lock_of(uint32_t object, short type) {
    return (struct flock){.l_type = type, .l_whence = SEEK_SET, .l_start = object, .l_len = 1};
}

static off_t position_of(uint32_t object, uint64_t key) {
    return (off_t)((uint64_t)object << KEY_BITS | (key & ((1u << KEY_BITS) - 1)));
}

int sg_export_more(struct sg_instance *in, uint32_t object, int fd) {
    struct flock lock = lock_of(object, F_RDLCK);

    in->state->objects[object].descriptors = 1;
    return fcntl(fd, F_OFD_SETLK, &lock) == 0 ? 0 : -errno;
}

int sg_export(struct sg_instance *in, uint32_t object) {
    int fd = open_exports(in);

    if (fd < 0) {
        return fd;
    }
    int result = sg_export_more(in, object, fd);
    if (result == 0 && lseek(fd, position_of(object, sg_object_key(in, object)), SEEK_SET) < 0) {
        result = -errno;
    }
    if (result != 0) {
        close(fd);
    }
    return result != 0 ? result : fd;
}

int sg_exported(struct sg_instance *in, int fd, uint32_t *object, uint64_t *key) {
    struct stat theirs, ours;
    int own = open_exports(in);

    if (own < 0) {
        return own;
    }
    bool same = kernel_fstat(fd, &theirs) == 0 && kernel_fstat(own, &ours) == 0 &&
                theirs.st_dev == ours.st_dev && theirs.st_ino == ours.st_ino;
    close(own);
    off_t at = same ? lseek(fd, 0, SEEK_CUR) : -1;
    if (at < 0 || at >> KEY_BITS >= SG_OBJECTS_MAX) {
        return -EINVAL;
    }
    *object = (uint32_t)(at >> KEY_BITS);
    *key = in->state->objects[*object].key;
    return position_of(*object, *key) == at ? 0 : -ENOENT;
}

bool sg_export_open(struct sg_instance *in, uint32_t object) {
    struct flock lock = lock_of(object, F_WRLCK);
    int fd = open_exports(in);

    if (fd < 0) {
        return false;
    }
    bool open_somewhere = fcntl(fd, F_OFD_GETLK, &lock) == 0 && lock.l_type != F_UNLCK;
    close(fd);
    return open_somewhere;
}
