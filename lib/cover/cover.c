/* divvy-cover: hides the driver libraries that a container's image contains.
 *
 * A createContainer hook (OCI runtime specification): it runs in the container's mount namespace,
 * before pivot_root, with the container's state on standard input. CUDA's images have a driver
 * library of their own for hosts with older drivers, in a folder "compat" that some put on
 * LD_LIBRARY_PATH. A program that loads it would bypass the share. This program covers the folder
 * with an empty one, and the loader finds ours. It makes no folder that the image lacks.
 *
 * Links in the image are resolved as the container will. Exit status 1: the container must not
 * start; standard error says why. */
#include "cover/json.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/syscall.h>
#include <unistd.h>

#define TEXT_MAX (16u << 20)
#define FOLDER "/usr/local"

/* Ends the program; a format that ends in a colon gets errno's text behind it. */
__attribute__((noreturn, format(printf, 1, 2))) static void die(const char *format, ...) {
    int error = errno;
    va_list args;
    va_start(args, format);
    fputs("divvy-cover: ", stderr);
    vfprintf(stderr, format, args);
    va_end(args);
    if (format[strlen(format) - 1] == ':') {
        fprintf(stderr, " %s", strerror(error));
    }
    fputc('\n', stderr);
    exit(1);
}

/* All that can be read, with a zero behind it. */
static char *read_all(int fd, const char *what) {
    size_t room = 1 << 16, filled = 0;
    char *text = malloc(room);
    for (ssize_t got = 1; text != NULL && got != 0;) {
        if (filled + 1 == room) {
            room *= 2;
            char *grown = room > TEXT_MAX ? NULL : realloc(text, room);
            if (grown == NULL) {
                free(text);
            }
            text = grown;
            continue;
        }
        got = read(fd, text + filled, room - 1 - filled);
        if (got < 0 && errno != EINTR) {
            die("read %s:", what);
        }
        filled += got > 0 ? (size_t)got : 0;
    }
    if (text == NULL) {
        die("read %s: it is too long", what);
    }
    text[filled] = '\0';
    return text;
}

/* Opens the container's root file system, as its bundle's configuration names it. */
static int open_root(void) {
    char bundle[4096], path[8192], root[4096];
    char *state = read_all(STDIN_FILENO, "the container's state");
    if (!json_string(json_member(state, "bundle"), bundle, sizeof bundle)) {
        die("the container's state names no bundle");
    }
    free(state);
    snprintf(path, sizeof path, "%s/config.json", bundle);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        die("open %s:", path);
    }
    char *config = read_all(fd, path);
    close(fd);
    if (!json_string(json_member(json_member(config, "root"), "path"), root, sizeof root)) {
        die("%s names no root", path);
    }
    free(config);
    snprintf(path, sizeof path, "%s%s%s", *root == '/' ? "" : bundle, *root == '/' ? "" : "/",
             root);
    fd = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) {
        die("open %s:", path);
    }
    return fd;
}

/* Opens a directory as the container will see it; -1 if there is none. */
static int open_inside(int root, const char *path, uint64_t flags) {
    struct open_how how = {.flags = flags | O_DIRECTORY | O_CLOEXEC, .resolve = RESOLVE_IN_ROOT};
    int fd = (int)syscall(SYS_openat2, root, path, &how, sizeof how);
    if (fd < 0 && errno != ENOENT && errno != ENOTDIR && errno != ELOOP) {
        die("look into the image at %s:", path);
    }
    return fd;
}

/* Several links may lead to one folder. Covering it twice is harmless. */
static void hide(int root, const char *path) {
    char name[64];
    int fd = open_inside(root, path, O_PATH);
    if (fd < 0) {
        return;
    }
    snprintf(name, sizeof name, "/proc/self/fd/%d", fd);
    if (mount("tmpfs", name, "tmpfs", MS_RDONLY | MS_NOSUID | MS_NODEV | MS_NOEXEC,
              "size=4k,mode=755") != 0) {
        die("hide %s, the driver that the image has:", path);
    }
    close(fd);
}

int main(void) {
    int root = open_root();
    int folder = open_inside(root, FOLDER, O_RDONLY);
    DIR *entries = folder < 0 ? NULL : fdopendir(folder);
    for (struct dirent *entry; entries != NULL && (entry = readdir(entries)) != NULL;) {
        char path[sizeof FOLDER + sizeof entry->d_name + 16];
        if (strncmp(entry->d_name, "cuda", 4) == 0) {
            snprintf(path, sizeof path, FOLDER "/%s/compat", entry->d_name);
            hide(root, path);
        }
    }
    return 0;
}
