/* Starting and ending a daemon: what it has in its pipe directory. */
#define _GNU_SOURCE
#include "simgpu/mps/mps.h"

#include <fcntl.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#define PRIVILEGED "control_privileged" /* the socket with the longest name */

static bool path_fits(void) {
    char path[MPS_PATH_BYTES];

    if (!mps_entry(path, PRIVILEGED)) {
        printf("CUDA_MPS_PIPE_DIRECTORY=%s is too long for sockets in it\n", mps_pipe_directory());
        return false;
    }
    return true;
}

/* Makes the directories that are missing. */
static bool make_directories(void) {
    const char *pipe = mps_pipe_directory();

    umask(0);
    if (mkdir(pipe, 0777) != 0 && access(pipe, R_OK | W_OK | X_OK) != 0) {
        printf("Cannot access CUDA_MPS_PIPE_DIRECTORY=%s\n", pipe);
        return false;
    }
    if (mkdir(mps_log_directory(), 0700) != 0 &&
        access(mps_log_directory(), R_OK | W_OK | X_OK) != 0) {
        printf("Cannot access CUDA_MPS_LOG_DIRECTORY=%s\n", mps_log_directory());
        return false;
    }
    return path_fits();
}

/* Holds the directory's lock as long as the daemon lives, and no process that it makes: the drivers 535 and 555 take it with
 * F_SETLK in the process that becomes the daemon (traced). */
static bool lock_directory(void) {
    char path[MPS_PATH_BYTES];
    int fd = mps_entry(path, "control_lock") ? open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666) : -1;

    if (fd < 0) {
        return false;
    }
    struct flock whole = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    if (fcntl(fd, F_SETLK, &whole) != 0) {
        puts("An instance of this daemon is already running");
        close(fd);
        return false;
    }
    return true;
}

/* The lock is held: what has the name is a dead daemon's. */
static int bind_at(const char *name, mode_t mode) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);

    if (fd < 0 || !mps_entry(address.sun_path, name)) {
        return -1;
    }
    unlink(address.sun_path);
    if (bind(fd, (struct sockaddr *)&address, sizeof address) != 0 ||
        chmod(address.sun_path, mode) != 0) {
        return -1;
    }
    return fd;
}

static void remove_entry(const char *name) {
    char path[MPS_PATH_BYTES];

    if (mps_entry(path, name)) {
        unlink(path);
    }
}

/* Servers' log; NVIDIA's servers write to it. */
static bool make_fifo(void) {
    char path[MPS_PATH_BYTES];

    remove_entry("log");
    return mps_entry(path, "log") && mkfifo(path, 0777) == 0;
}

static FILE *open_log(const char *name) {
    char path[MPS_PATH_BYTES + 4096];
    int length = snprintf(path, sizeof path, "%s/%s", mps_log_directory(), name);
    int fd = length < (int)sizeof path ? open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644)
                                       : -1;

    return fd < 0 ? NULL : fdopen(fd, "a");
}

/* The file with the daemon's pid is no socket: its path may be longer than one's. */
static const char *pid_path(void) {
    static char path[2 * MPS_PATH_BYTES];

    snprintf(path, sizeof path, "%s/nvidia-cuda-mps-control.pid", mps_pipe_directory());
    return path;
}

static void write_pid(pid_t pid) {
    FILE *file = fopen(pid_path(), "we");

    if (file) {
        fprintf(file, "%d", pid);
        fclose(file);
    }
}

static void detach(void) {
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);

    for (int fd = 0; null >= 0 && fd < 3; fd++) {
        dup2(null, fd);
    }
}

/* Who connects sees the process that called listen: that must be the daemon itself. */
static bool begin(struct mps_daemon *daemon, const int listeners[2]) {
    if (daemon->driver >= MPS_STATUS_SINCE) {
        write_pid(getpid());
    }
    mps_note(daemon, "Starting control daemon using socket %s/control", mps_pipe_directory());
    mps_note(daemon,
             "To connect CUDA applications to this daemon, set env CUDA_MPS_PIPE_DIRECTORY=%s",
             mps_pipe_directory());
    return listen(listeners[0], 128) == 0 && listen(listeners[1], 128) == 0;
}

static int live(struct mps_daemon *daemon, const int listeners[2]) {
    mps_serve(daemon, listeners);
    mps_note(daemon, "Exit with status 0");
    remove_entry("log");
    unlink(pid_path());
    return 0; /* the process's end ends the connections: who said quit waits for that */
}

static FILE *open_logs(void) {
    FILE *servers = open_log("server.log");

    if (servers) {
        fclose(servers);
    }
    return open_log("control.log");
}

/* Takes the directories and lives there. `ready` is closed after a byte when clients can come; -1 in the foreground. */
static int run(struct mps_daemon *daemon, int ready) {
    char byte = 0;

    if (!make_directories() || !lock_directory()) {
        return 1;
    }
    int listeners[2] = {bind_at("control", 0666), bind_at(PRIVILEGED, 0755)};
    daemon->log = ready >= 0 ? open_logs() : stdout;
    if (listeners[0] < 0 || listeners[1] < 0 || !daemon->log || !make_fifo()) {
        return 1;
    }
    if (ready >= 0) {
        detach();
    }
    if (!begin(daemon, listeners) || (ready >= 0 && write(ready, &byte, 1) != 1)) {
        return 1;
    }
    close(ready);
    return live(daemon, listeners);
}

/* Becomes the daemon in a process of its own, and returns in this one when that listens. */
static int run_in_background(struct mps_daemon *daemon) {
    int ready[2];
    char byte = 0;

    if (pipe2(ready, O_CLOEXEC) != 0) {
        return 1;
    }
    pid_t child = fork();
    if (child < 0) {
        return 1;
    }
    if (child == 0) {
        close(ready[0]);
        setsid();
        return run(daemon, ready[1]);
    }
    close(ready[1]);
    return read(ready[0], &byte, 1) == 1 ? 0 : 1;
}

int mps_start(const struct mps_options *options) {
    static struct mps_daemon daemon;

    daemon = (struct mps_daemon){.driver = options->driver,
                                 .machine = options->machine,
                                 .any_user = options->any_user,
                                 .most = options->most,
                                 .quitter = -1};
    mps_settings_start(&daemon.settings);
    return options->background ? run_in_background(&daemon) : run(&daemon, -1);
}
