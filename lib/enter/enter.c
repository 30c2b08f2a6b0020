/* divvy-enter: executes a command that sees other files at some paths.
 *
 *     divvy-enter [--contain] [--cgroup FOLDER NAME]... [--bind SOURCE TARGET]... [--bind-ro SOURCE TARGET]...
 *                 [--bind-tree SOURCE TARGET]... [--user UID GROUP[,GROUP]...] -- COMMAND [ARGUMENT]...
 *     divvy-enter --detach -- COMMAND [ARGUMENT]...
 *     divvy-enter --probe
 *
 * Makes a mount namespace of its own (inside a user namespace of its own where the caller may not
 * make one otherwise), binds every SOURCE over its TARGET in the order given, and executes COMMAND
 * without a new process: same process id, working directory, environment, open files, terminal. A
 * parent therefore sees the command itself: its exit status, its signals, its stops.
 *
 * --bind-tree binds a directory read-only, with what is mounted in it. --detach executes COMMAND so
 * that it is not a child of the caller, because the caller may become a program that waits for all of
 * its children. The exit status of --probe says whether the namespaces can be made here; standard
 * error says why not.
 *
 * --contain has what the caller left open not lead out of the namespace: see contain.h.
 *
 * --cgroup and --user are for root alone. --cgroup enters the cgroup NAME in a folder, which is made if
 * it is not there; "." is the folder itself. One that cannot be entered is told of and passed over.
 * --user has COMMAND run as that user and these groups, of which the first is its own, without a right
 * of root's.
 *
 * It is a program of its own because unshare(2) refuses a user namespace to a process with threads,
 * which every Go program is, and because an administrator can allow user namespaces to one small
 * file by name.
 *
 * Exit status: 125 the namespaces or binds cannot be set up, 126 COMMAND
 * cannot be executed, 127 COMMAND is not found.
 */
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <limits.h>
#include <linux/capability.h>
#include <sched.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "enter/contain.h"
#include "libc/kernel.h"

enum { EXIT_SETUP = 125, EXIT_NOT_EXECUTABLE = 126, EXIT_NOT_FOUND = 127 };

/* Ends with EXIT_SETUP. A format that ends in a colon gets errno's text behind it. */
__attribute__((noreturn, format(printf, 1, 2))) static void die(const char *format, ...) {
    int error = errno;
    va_list args;
    va_start(args, format);
    fputs("divvy: ", stderr);
    vfprintf(stderr, format, args);
    va_end(args);
    if (format[strlen(format) - 1] == ':') {
        fprintf(stderr, " %s", strerror(error));
    }
    fputc('\n', stderr);
    exit(EXIT_SETUP);
}

/* The caller's effective capabilities, one bit each. */
static uint64_t capabilities(void) {
    struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct data[_LINUX_CAPABILITY_U32S_3] = {{0}};
    if (syscall(SYS_capget, &header, data) != 0) {
        die("read capabilities:");
    }
    return (uint64_t)data[1].effective << 32 | data[0].effective;
}

static void write_file(const char *path, const char *text) {
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    if (fd < 0 || write(fd, text, strlen(text)) < 0) {
        die("write %s:", path);
    }
    close(fd);
}

/* Maps the caller to itself: the command runs under the user and group it would run under anyway.
 * Supplementary groups keep their rights but are shown as unmapped: mapping them needs privilege.
 */
static void map_identity(uid_t uid, gid_t gid) {
    char map[64];
    write_file("/proc/self/setgroups", "deny");
    (void)snprintf(map, sizeof map, "%u %u 1", uid, uid);
    write_file("/proc/self/uid_map", map);
    (void)snprintf(map, sizeof map, "%u %u 1", gid, gid);
    write_file("/proc/self/gid_map", map);
}

/* Drops every capability that the caller did not have: a user namespace gives its maker all of
 * them. The bounding set decides what survives execve(2): all of it for uid 0, else what a file's
 * own capabilities ask for. For other users only the right to unmount is dropped, because a program
 * whose file capabilities are not granted in full cannot be executed (capabilities(7)). */
static void bound_capabilities(uint64_t held) {
    for (int cap = 0; prctl(PR_CAPBSET_READ, cap) >= 0; cap++) {
        bool keep = geteuid() == 0 ? (held >> cap & 1) != 0 : cap != CAP_SYS_ADMIN;
        if (!keep && prctl(PR_CAPBSET_DROP, cap) != 0) {
            die("drop capability %d:", cap);
        }
    }
}

/* Mounts made outside later are seen inside; ours are never seen outside. */
static void enter_namespaces(void) {
    uint64_t held = capabilities();
    uid_t uid = geteuid();
    gid_t gid = getegid();
    if (unshare(CLONE_NEWNS) != 0) {
        if (unshare(CLONE_NEWUSER | CLONE_NEWNS) != 0) {
            die("make a user and a mount namespace:");
        }
        map_identity(uid, gid);
        bound_capabilities(held);
    }
    if (mount(NULL, "/", NULL, MS_REC | MS_SLAVE, NULL) != 0) {
        die("make the mount namespace private:");
    }
}

/* A symbolic link is refused: mount(2) would follow it and cover something else. */
static void require_place(const char *path) {
    struct stat st;
    if (path[0] != '/') {
        die("bind %s: the path is not absolute", path);
    }
    if (kernel_lstat(path, &st) != 0) {
        die("bind %s:", path);
    }
    if (S_ISLNK(st.st_mode)) {
        die("bind %s: it is a symbolic link", path);
    }
}

/* A bind is made read-only by a second call, which must repeat the flags that the file system is
 * mounted with: a user namespace may not clear those (mount_namespaces(7)). */
static void make_read_only(const char *target) {
    static const struct {
        unsigned long in, out;
    } flags[] = {{ST_NOSUID, MS_NOSUID},         {ST_NODEV, MS_NODEV},
                 {ST_NOEXEC, MS_NOEXEC},         {ST_NOATIME, MS_NOATIME},
                 {ST_NODIRATIME, MS_NODIRATIME}, {ST_RELATIME, MS_RELATIME}};
    struct statvfs vfs;
    unsigned long all = MS_REMOUNT | MS_BIND | MS_RDONLY;
    if (statvfs(target, &vfs) != 0) {
        die("look at %s:", target);
    }
    for (size_t i = 0; i < sizeof flags / sizeof flags[0]; i++) {
        all |= (vfs.f_flag & flags[i].in) != 0 ? flags[i].out : 0;
    }
    if (mount(NULL, target, NULL, all, NULL) != 0) {
        die("make %s read-only:", target);
    }
}

enum option { NONE, BIND, BIND_READ_ONLY, BIND_TREE, CGROUP, USER };

static enum option option_of(const char *text) {
    static const char *const names[] = {[BIND] = "--bind",
                                        [BIND_READ_ONLY] = "--bind-ro",
                                        [BIND_TREE] = "--bind-tree",
                                        [CGROUP] = "--cgroup",
                                        [USER] = "--user"};
    for (int kind = BIND; kind <= USER; kind++) {
        if (strcmp(text, names[kind]) == 0) {
            return (enum option)kind;
        }
    }
    return NONE;
}

static void bind_over(const char *source, const char *target, enum option kind) {
    require_place(source);
    require_place(target);
    contain_note(target);
    if (mount(source, target, NULL, MS_BIND | (kind == BIND_TREE ? MS_REC : 0), NULL) != 0) {
        die("bind %s over %s:", source, target);
    }
    if (kind != BIND) {
        make_read_only(target);
    }
}

/* The command is worth more than where its memory is counted, so a cgroup that takes nobody ends nothing. */
static void enter_cgroup(const char *folder, const char *name) {
    char path[PATH_MAX];
    int length = snprintf(path, sizeof path, "%s/%s", folder, name);
    if (length > 0 && (size_t)length < sizeof path - sizeof "/cgroup.procs" &&
        (mkdir(path, 0755) == 0 || errno == EEXIST)) {
        strcpy(path + length, "/cgroup.procs");
        int fd = open(path, O_WRONLY | O_CLOEXEC);
        bool entered = fd >= 0 && write(fd, "0", 1) == 1;
        if (fd >= 0) {
            close(fd);
        }
        if (entered) {
            return;
        }
    }
    fprintf(stderr, "divvy: enter the cgroup %s/%s: %s\n", folder, name, strerror(errno));
}

/* A number up to an end character; the rest of the text behind it is returned. */
static const char *number_in(const char *text, char end, unsigned *number) {
    char *rest = NULL;
    errno = 0;
    unsigned long value = strtoul(text, &rest, 10);
    /* The last one stands for no user. */
    if (*text < '0' || *text > '9' || errno != 0 || value >= UINT32_MAX ||
        (*rest != end && *rest != 0)) {
        die("%s is not the number of a user or group", text);
    }
    *number = (unsigned)value;
    return *rest == 0 ? rest : rest + 1;
}

/* Becomes another user for good. What the agent has against being killed for want of memory is not
 * passed on. */
static void become_user(const char *user, const char *groups) {
    unsigned uid;
    gid_t all[NGROUPS_MAX > 64 ? 64 : NGROUPS_MAX];
    size_t count = 0;
    number_in(user, 0, &uid);
    while (*groups != 0) {
        if (count == sizeof all / sizeof *all) {
            die("more than %zu groups", count);
        }
        groups = number_in(groups, ',', &all[count++]);
    }
    if (uid == 0 || count == 0 || all[0] == 0) {
        die("--user is for another user than root, with a group");
    }
    write_file("/proc/self/oom_score_adj", "0");
    for (int cap = 0; prctl(PR_CAPBSET_READ, cap) >= 0; cap++) {
        if (prctl(PR_CAPBSET_DROP, cap) != 0) {
            die("drop capability %d:", cap);
        }
    }
    if (prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0) != 0 ||
        prctl(PR_SET_KEEPCAPS, 0) != 0 || setgroups(count - 1, all + 1) != 0 ||
        setresgid(all[0], all[0], all[0]) != 0 || setresuid(uid, uid, uid) != 0 ||
        prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) {
        die("become user %u:", uid);
    }
    if (setuid(0) == 0 || capabilities() != 0) {
        die("user %u keeps rights of root's", uid);
    }
    umask(077);
}

/* Whether a command that cannot be executed exists. execvp(3) reports missing permission also when
 * a directory on PATH may not be searched and no other directory has the command. */
static bool on_path(const char *command) {
    const char *path = getenv("PATH");
    if (strchr(command, '/') != NULL || path == NULL) {
        return true;
    }
    for (const char *dir = path; dir != NULL;) {
        const char *end = strchrnul(dir, ':');
        char file[4096];
        int length = snprintf(file, sizeof file, "%.*s/%s", (int)(end - dir), dir, command);
        if (length > 0 && (size_t)length < sizeof file && access(file, F_OK) == 0) {
            return true;
        }
        dir = *end == ':' ? end + 1 : NULL;
    }
    return false;
}

__attribute__((noreturn)) static void become(char **command) {
    execvp(command[0], command);
    int error = errno;
    if (error == ENOENT || (error == EACCES && !on_path(command[0]))) {
        fprintf(stderr, "divvy run: %s: not found\n", command[0]);
        exit(EXIT_NOT_FOUND);
    }
    fprintf(stderr, "divvy run: %s: %s\n", command[0], strerror(error));
    exit(EXIT_NOT_EXECUTABLE);
}

/* Forks and ends the parent, so that the rest runs as a child of init. */
static void detach(void) {
    pid_t pid = fork();
    if (pid < 0) {
        die("start a process:");
    }
    if (pid > 0) {
        _exit(0);
    }
}

int main(int argc, char **argv) {
    if (argc == 2 && strcmp(argv[1], "--probe") == 0) {
        enter_namespaces();
        return 0;
    }
    if (argc > 3 && strcmp(argv[1], "--detach") == 0 && strcmp(argv[2], "--") == 0) {
        detach();
        become(argv + 3);
    }
    bool entered = false;
    bool contain = argc > 1 && strcmp(argv[1], "--contain") == 0;
    int i = contain ? 2 : 1;
    for (; i < argc && strcmp(argv[i], "--") != 0; i += 3) {
        enum option kind = option_of(argv[i]);
        if (kind == NONE || i + 2 >= argc) {
            die("%s is not an option with two words: this program is for `divvy run`", argv[i]);
        }
        if (kind == CGROUP) {
            enter_cgroup(argv[i + 1], argv[i + 2]);
        } else if (kind == USER) {
            become_user(argv[i + 1], argv[i + 2]);
        } else {
            if (!entered) {
                enter_namespaces();
                entered = true;
            }
            bind_over(argv[i + 1], argv[i + 2], kind);
        }
    }
    if (i + 1 >= argc) {
        die("no command: this program is for `divvy run`");
    }
    if (contain && !contain_open_files()) {
        die("look at the open files:");
    }
    become(argv + i + 1);
}
