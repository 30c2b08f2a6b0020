#define _GNU_SOURCE
#include "remote/test/copies_served.h"

#include "simgpu/machine/test/setting.h"

#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

char copies_folder[256];
static pid_t worker, owner;
static int life;

static void copy_file(const char *name) {
    char from[PATH_MAX], to[PATH_MAX];
    static char bytes[1 << 16];
    ssize_t size;

    snprintf(from, sizeof from, "%s%s", CLIENT_FOLDER, name);
    snprintf(to, sizeof to, "%s/%s", copies_folder, name);
    int in = open(from, O_RDONLY), out = open(to, O_WRONLY | O_CREAT | O_EXCL, 0700);
    CHECK(in >= 0 && out >= 0);
    while ((size = read(in, bytes, sizeof bytes)) > 0) {
        CHECK_EQUAL(write(out, bytes, (size_t)size), size);
    }
    close(in);
    close(out);
}

/* Also where a check has failed, but not in a child. */
static void remove_folder(void) {
    struct dirent *entry;
    DIR *all = getpid() == owner ? opendir(copies_folder) : NULL;

    while (all && (entry = readdir(all))) {
        unlinkat(dirfd(all), entry->d_name, 0);
    }
    if (all) {
        closedir(all);
        rmdir(copies_folder);
    }
}

void copies_start_worker(void) {
    char path[PATH_MAX + 16], said[32];
    int ends[2], ready[2];

    snprintf(copies_folder, sizeof copies_folder, "%s/divvy-copies-XXXXXX",
             getenv("TMPDIR") ? getenv("TMPDIR") : "/tmp");
    CHECK(mkdtemp(copies_folder));
    owner = getpid();
    CHECK_EQUAL(atexit(remove_folder), 0);
    copy_file("libcuda.so.1");
    copy_file("libnvidia-ml.so.1");
    copy_file("libdivvy-remote.so.1");
    snprintf(path, sizeof path, "%s/worker.sock", copies_folder);
    CHECK_EQUAL(pipe(ends), 0);
    CHECK_EQUAL(fcntl(ends[1], F_SETFD, FD_CLOEXEC), 0);
    CHECK_EQUAL(pipe(ready), 0);
    CHECK_EQUAL(fcntl(ready[0], F_SETFD, FD_CLOEXEC), 0);
    worker = fork();
    CHECK(worker >= 0);
    if (worker == 0) {
        char number[16], told[16];
        snprintf(number, sizeof number, "%d", ends[0]);
        snprintf(told, sizeof told, "%d", ready[1]);
        setenv("LD_LIBRARY_PATH", SIMGPU_FOLDER, 1);
        execl(WORKER_PROGRAM, "divvy-worker", "--listen", path, "--life", number, "--ready", told,
              (char *)NULL);
        _exit(127);
    }
    close(ends[0]);
    close(ready[1]);
    life = ends[1];
    /* The socket's file is there before the worker listens. */
    CHECK(read(ready[0], said, sizeof said) > 0);
    close(ready[0]);
}

void copies_end_worker(void) {
    int status;

    close(life);
    CHECK_EQUAL(waitpid(worker, &status, 0), worker);
    remove_folder();
}

pid_t copies_fork(void) {
    pid_t child = fork();

    CHECK(child >= 0);
    if (child == 0) {
        close(life);
    }
    return child;
}

static void *library;

void copies_open(const char *folder) {
    char path[PATH_MAX];

    snprintf(path, sizeof path, "%s/libcuda.so.1", folder);
    library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    CHECK(library);
}

void *copies_find(const char *name) {
    return dlsym(library, name);
}

int copies_connect(void) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int connection = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

    CHECK(connection >= 0);
    CHECK((size_t)snprintf(address.sun_path, sizeof address.sun_path, "%s/worker.sock",
                           copies_folder) < sizeof address.sun_path);
    CHECK_EQUAL(connect(connection, (const struct sockaddr *)&address, sizeof address), 0);
    return connection;
}

void copies_kill_worker(void) {
    char path[64];
    int found, count = 0;

    snprintf(path, sizeof path, "/proc/%d/task/%d/children", (int)worker, (int)worker);
    FILE *file = fopen(path, "r");
    CHECK(file);
    while (fscanf(file, "%d", &found) == 1) {
        CHECK(kill((pid_t)found, SIGKILL) == 0 || errno == ESRCH); /* it has ended since */
        count++;
    }
    fclose(file);
    CHECK(count > 0);
}
