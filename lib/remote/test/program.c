#define _GNU_SOURCE
#include "remote/test/program.h"

#include "test/check.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static char folder[64] = "/tmp/divvy-worker-test-XXXXXX";
char program_path[400];
pid_t program_listener;
int program_life = -1;
static pid_t owner;

pid_t program_start(const char *const *more, int *ready) {
    const char *given[16] = {WORKER_PROGRAM, "--listen", program_path, "--ready",
                             "10",           "--life",   "11"};
    size_t count = 7;
    int told[2], living[2];

    while (*more) {
        given[count++] = *more++;
    }
    CHECK(pipe2(told, O_CLOEXEC) == 0 && pipe2(living, O_CLOEXEC) == 0);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        char log[100];

        prctl(PR_SET_PDEATHSIG, SIGKILL);
        snprintf(log, sizeof log, "%s/log", folder);
        dup2(open(log, O_WRONLY | O_CREAT | O_TRUNC, 0600), STDERR_FILENO);
        dup2(told[1], 10);
        dup2(living[0], 11);
        setenv("LD_LIBRARY_PATH", SIMGPU_FOLDER, 1);
        execv(WORKER_PROGRAM, (char *const *)given);
        _exit(99);
    }
    close(told[1]);
    close(living[0]);
    if (program_life >= 0) {
        close(program_life);
    }
    program_life = living[1];
    *ready = told[0];
    return child;
}

void program_begin(const char *const *more) {
    char said[32] = "";
    int ready;

    program_listener = program_start(more, &ready);
    CHECK_EQUAL(read(ready, said, sizeof said - 1), 10);
    CHECK(strcmp(said, "listening\n") == 0);
    close(ready);
}

int program_status(pid_t process) {
    int status;

    CHECK_EQUAL(waitpid(process, &status, 0), process);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
}

/* Ends the program_life, and checks that nothing is left. */
void program_stop(void) {
    close(program_life);
    program_life = -1;
    CHECK_EQUAL(program_status(program_listener), 0);
    CHECK(access(program_path, F_OK) && errno == ENOENT);
}

bool program_log_has(const char *text) {
    char at[100], log[65536];

    snprintf(at, sizeof at, "%s/log", folder);
    FILE *file = fopen(at, "r");
    CHECK(file);
    log[fread(log, 1, sizeof log - 1, file)] = 0;
    fclose(file);
    return strstr(log, text) != NULL;
}

unsigned program_workers(pid_t *first) {
    char at[100], list[8192];

    snprintf(at, sizeof at, "/proc/%d/task/%d/children", (int)program_listener,
             (int)program_listener);
    FILE *file = fopen(at, "r");
    CHECK(file);
    list[fread(list, 1, sizeof list - 1, file)] = 0;
    fclose(file);
    unsigned count = 0;
    for (char *word = strtok(list, " "); word; word = strtok(NULL, " "), count++) {
        if (first && count == 0) {
            *first = (pid_t)atoi(word);
        }
    }
    return count;
}

static void remove_folder(void) {
    char log[100];

    if (getpid() != owner) {
        return;
    }
    snprintf(log, sizeof log, "%s/log", folder);
    unlink(log);
    unlink(program_path);
    *strrchr(program_path, '/') = 0;
    rmdir(program_path);
    rmdir(folder);
}

void program_place(void) {
    owner = getpid();
    atexit(remove_folder);
    CHECK(mkdtemp(folder));
    snprintf(program_path, sizeof program_path, "%s/worker.sock", folder);
}

void program_place_deep(void) {
    snprintf(program_path, sizeof program_path, "%s/%0150d", folder, 0);
    CHECK_EQUAL(mkdir(program_path, 0700), 0);
    strcat(program_path, "/worker.sock");
}
