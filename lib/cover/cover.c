/* divvy-cover: hides the driver libraries that a container's image contains, says which cgroup is the
 * container's, and limits what that can take of RDMA adapters.
 *
 * Without an argument it is a createContainer hook (OCI runtime specification): it runs in the container's mount namespace,
 * before pivot_root, with the container's state on standard input. CUDA's images have a driver
 * library of their own for hosts with older drivers, in a folder "compat" that some put on
 * LD_LIBRARY_PATH. A program that loads it would bypass the share. This program covers the folder
 * with one that has a notice alone, and the loader finds ours. It makes no folder that the image
 * lacks.
 *
 * Links in the image are resolved as the container will. Exit status 1: the container must not
 * start; standard error says why.
 *
 * With a file's path it is a createRuntime hook: it runs outside the container, before the
 * container's program, and adds a line with the container's cgroup to the file. The container's
 * processes can leave their mounts and namespaces later, and not their cgroup. Where there is no such
 * cgroup it adds nothing, and the container starts all the same.
 *
 * With --rdma and limits, such as "mlx5_0 hca_handle=64 hca_object=65536", it is a createRuntime hook
 * as well: it limits what the container's cgroup can take of RDMA adapters, and the cgroup of its pod to
 * what the pod's containers may take together. The kernel charges who makes a call, and not who opened the
 * adapter, so a container could pass it to one without a limit. A container that cannot be limited does
 * not start. */
#include "cover/cgroup.h"
#include "cover/json.h"
#include "cover/quota.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <stdarg.h>
#include <stdbool.h>
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

#define NOTICE "README.divvy"
#define NOTICE_TEXT                                                                                \
    "Divvy covers CUDA's forward-compatibility libraries: a share has the driver of its "          \
    "machine.\n"
#define HIDDEN_FLAGS ((unsigned long)(MS_NOSUID | MS_NODEV | MS_NOEXEC))

/* Says in a covered folder why it is empty, and has nobody write there. */
static void explain(int root, const char *path) {
    char name[64];
    /* Opened anew: what the folder was opened as lies below the mount. */
    int fd = open_inside(root, path, O_RDONLY);
    if (fd < 0) {
        die("open %s, which is covered:", path);
    }
    int notice = openat(fd, NOTICE, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0444);
    if (notice < 0 || write(notice, NOTICE_TEXT, strlen(NOTICE_TEXT)) < 0) {
        die("explain %s:", path);
    }
    close(notice);
    snprintf(name, sizeof name, "/proc/self/fd/%d", fd);
    if (mount(NULL, name, NULL, MS_REMOUNT | MS_RDONLY | HIDDEN_FLAGS, "size=8k,mode=755") != 0) {
        die("close %s, which is covered:", path);
    }
    close(fd);
}

/* Several links may lead to one folder. Covering it twice is harmless. */
static void hide(int root, const char *path) {
    char name[64];
    int fd = open_inside(root, path, O_PATH);
    if (fd < 0) {
        return;
    }
    snprintf(name, sizeof name, "/proc/self/fd/%d", fd);
    if (mount("tmpfs", name, "tmpfs", HIDDEN_FLAGS, "size=8k,mode=755") != 0) {
        die("hide %s, the driver that the image has:", path);
    }
    close(fd);
    explain(root, path);
}

/* A file of a process, "self" or a number, below /proc. */
static char *read_process(const char *process, const char *file) {
    char path[64];
    snprintf(path, sizeof path, "/proc/%s/%s", process, file);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        die("open %s:", path);
    }
    char *text = read_all(fd, path);
    close(fd);
    return text;
}

/* Reads from the container's state its id and its first process. */
static void read_state(char *id, size_t id_room, char *number, size_t number_room) {
    char *state = read_all(STDIN_FILENO, "the container's state");
    const char *pid = json_member(state, "pid");
    if (!json_string(json_member(state, "id"), id, id_room) || pid == NULL) {
        die("the container's state names no id or no process");
    }
    snprintf(number, number_room, "%ld", strtol(pid, NULL, 10));
    free(state);
}

/* Adds the container's cgroup to a file. The file lies in the directory of the tenant; where that is
 * gone there is nobody to tell. */
static void record(const char *file) {
    char id[1024], number[32], line[8192];
    read_state(id, sizeof id, number, sizeof number);
    char *container = read_process(number, "cgroup"), *runtime = read_process("self", "cgroup");
    if (cgroup_own(container, runtime, id, line, sizeof line - 1)) {
        const size_t length = strlen(line);
        line[length] = '\n';
        int fd = open(file, O_WRONLY | O_APPEND | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
        if (fd < 0 && errno != ENOENT) {
            die("open %s:", file);
        }
        if (fd >= 0 && write(fd, line, length + 1) != (ssize_t)(length + 1)) {
            die("write %s:", file);
        }
        close(fd);
    }
    free(runtime);
    free(container);
}

/* Writes a text to a file of cgroups at once, and returns whether that was taken. */
static bool put(const char *folder, const char *name, const char *text) {
    char path[8192 + 32];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    if (fd < 0) {
        return false;
    }
    const bool taken = write(fd, text, strlen(text)) == (ssize_t)strlen(text);
    const int error = errno;
    close(fd);
    errno = error;
    return taken;
}

/* Has the second version's controller reach a cgroup: from the root down, each cgroup on the way gives
 * it to those below. Where one does not, the cgroup's own file is missing, which is found when it is
 * written. */
static void enable(const char *mount, char *folder) {
    for (char *slash = folder + strlen(mount); slash != NULL && *slash != '\0';
         slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        (void)put(folder, "cgroup.subtree_control", "+rdma");
        *slash = '/';
    }
}

/* What the containers of a pod may take of an adapter, together. One that has no limit has no such
 * adapter. Cgroups that go meanwhile count nothing. */
static struct quota sum_of(const char *pod, const char *adapter) {
    struct quota sum = {0};
    DIR *entries = opendir(pod);
    if (entries == NULL) {
        die("open %s:", pod);
    }
    for (struct dirent *entry; (entry = readdir(entries)) != NULL;) {
        char path[8192 + sizeof entry->d_name + 32], lines[1 << 16];
        if (entry->d_type != DT_DIR || *entry->d_name == '.') {
            continue;
        }
        snprintf(path, sizeof path, "%s/%s/rdma.max", pod, entry->d_name);
        int fd = open(path, O_RDONLY | O_CLOEXEC);
        const ssize_t got = fd < 0 ? -1 : read(fd, lines, sizeof lines - 1);
        if (got < 0 && errno != ENOENT && errno != ENODEV) {
            die("read %s:", path);
        }
        lines[got < 0 ? 0 : got] = '\0';
        (void)quota_add(lines, adapter, &sum);
        if (fd >= 0) {
            close(fd);
        }
    }
    closedir(entries);
    return sum;
}

/* Limits a pod's cgroup to what its containers may take of an adapter together. Another container of
 * the pod may be made at the same time, so whoever wrote last must find that it still is so. */
static void limit_pod(const char *pod, const char *adapter) {
    char text[512];
    struct quota written = {-1, -1};
    for (int tries = 0; tries < 100; tries++) {
        const struct quota sum = sum_of(pod, adapter);
        if (sum.handles == written.handles && sum.objects == written.objects) {
            return;
        }
        snprintf(text, sizeof text, "%.*s hca_handle=%lld hca_object=%lld",
                 (int)strcspn(adapter, " "), adapter, sum.handles, sum.objects);
        if (!put(pod, "rdma.max", text)) {
            die("limit the use of RDMA cards by the container's pod to %s in %s:", text, pod);
        }
        written = sum;
    }
    die("limit the use of RDMA cards by the container's pod in %s: its containers change all the "
        "time",
        pod);
}

/* Limits the container's cgroup, and then its pod's. The kernel takes one adapter at a time. */
static void limit(char **limits) {
    char id[1024], number[32], path[8192], mount[8192], folder[8192], file[8192 + 32];
    read_state(id, sizeof id, number, sizeof number);
    char *container = read_process(number, "cgroup"), *runtime = read_process("self", "cgroup");
    char *mounts = read_process("self", "mountinfo");
    const char *controller = "rdma";
    if (!cgroup_under(container, runtime, id, controller, path, sizeof path)) {
        controller = "";
        if (!cgroup_under(container, runtime, id, controller, path, sizeof path)) {
            die("the container has no cgroup of its own, in which its use of RDMA cards can be "
                "limited");
        }
    }
    if (!cgroup_folder(mounts, controller, path, mount, folder, sizeof folder)) {
        die("the container's use of RDMA cards cannot be limited: its cgroup %s is not mounted "
            "here",
            path);
    }
    if (!cgroup_in_pod(path)) {
        die("the use of RDMA cards cannot be limited for the container's pod: its cgroup %s is not "
            "in "
            "one of a pod",
            path);
    }
    snprintf(file, sizeof file, "%s/rdma.max", folder);
    if (*controller == '\0' && access(file, F_OK) != 0) {
        enable(mount, folder);
    }
    for (char **each = limits; *each != NULL; each++) {
        if (!put(folder, "rdma.max", *each)) {
            die("limit the container's use of RDMA cards to %s in %s:", *each, folder);
        }
    }
    *strrchr(folder, '/') = '\0';
    for (; *limits != NULL; limits++) {
        limit_pod(folder, *limits);
    }
    free(mounts);
    free(runtime);
    free(container);
}

int main(int argc, char **argv) {
    if (argc > 1 && strcmp(argv[1], "--rdma") == 0) {
        limit(argv + 2);
        return 0;
    }
    if (argc > 1) {
        record(argv[1]);
        return 0;
    }
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
