/* divvy-checkpoint CUDA: asks the driver to take processes off their GPUs, and to bring them back.
 * CUDA is the driver's library, by path. The program keeps the driver open, because opening it takes
 * longer than most questions, and answers one at a time. Descriptor 3 is a socket on which questions
 * come and answers go, each one line:
 *
 *     lock PID TIMEOUT-MS | save PID | restore PID | unlock PID | state PID
 *
 * The answer is the driver's result and the state of the process after it, as two numbers, of which
 * the second is -1 where the driver does not tell it. PIDs are those of this process's pid
 * namespace. The first line that goes out is one of
 *
 *     ready VERSION      of the driver
 *     none VERSION       the driver has no checkpoints of processes, and the program ends
 *     fault TEXT         why the driver cannot be asked, and the program ends
 *
 * It ends when the other end of the socket is closed, also while a call has not returned: whoever
 * asks next finds in the states of the processes how far it came. Exit status: 0, or 2 for wrong
 * usage.
 */
#define _GNU_SOURCE /* POLLRDHUP */
#include <dlfcn.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "abi/cuda/types.h"

#define LINE_BYTES 64u
#define FAULT_BYTES 512u
#define SOCKET 3

static struct {
    CUresult (*init)(unsigned);
    CUresult (*version)(int *);
    CUresult (*lock)(int, CUcheckpointLockArgs *);
    CUresult (*save)(int, CUcheckpointCheckpointArgs *);
    CUresult (*restore)(int, CUcheckpointRestoreArgs *);
    CUresult (*unlock)(int, CUcheckpointUnlockArgs *);
    CUresult (*state)(int, CUprocessState *);
    bool functions; /* all five of checkpoints are there */
} cuda;

/* Dlsym's object pointers as function pointers, which POSIX allows and ISO C has no cast for. */
static bool symbol(void *from, const char *name, void *function) {
    *(void **)function = dlsym(from, name);
    return *(void **)function != NULL;
}

static bool say(const char *line) {
    size_t length = strlen(line);
    while (length > 0) {
        ssize_t sent = send(SOCKET, line, length, MSG_NOSIGNAL);
        if (sent < 0) {
            return false;
        }
        line += sent;
        length -= (size_t)sent;
    }
    return true;
}

__attribute__((noreturn)) static void refuse(const char *word, const char *why) {
    char line[FAULT_BYTES];
    int length = snprintf(line, sizeof line - 1, "%s %s", word, why);
    if (length > (int)sizeof line - 2) {
        length = (int)sizeof line - 2;
    }
    for (int i = 0; i < length; i++) {
        line[i] = line[i] == '\n' ? ' ' : line[i];
    }
    line[length] = '\n';
    line[length + 1] = '\0';
    (void)say(line);
    _exit(0);
}

static void load(const char *path) {
    void *from = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (from == NULL) {
        refuse("fault", dlerror());
    }
    if (!symbol(from, "cuInit", &cuda.init) || !symbol(from, "cuDriverGetVersion", &cuda.version)) {
        refuse("fault", "the library is no driver of CUDA");
    }
    cuda.functions = symbol(from, "cuCheckpointProcessLock", &cuda.lock) &&
                     symbol(from, "cuCheckpointProcessCheckpoint", &cuda.save) &&
                     symbol(from, "cuCheckpointProcessRestore", &cuda.restore) &&
                     symbol(from, "cuCheckpointProcessUnlock", &cuda.unlock) &&
                     symbol(from, "cuCheckpointProcessGetState", &cuda.state);
}

/* A driver has the functions and still no checkpoints, as on another processor: its answer about
 * this process tells. */
static void begin(void) {
    char text[LINE_BYTES];
    CUprocessState own;
    int version = 0;
    (void)cuda.version(&version);
    snprintf(text, sizeof text, "%d", version);
    if (!cuda.functions) {
        refuse("none", text);
    }
    CUresult result = cuda.init(0);
    if (result != CUDA_SUCCESS) {
        snprintf(text, sizeof text, "cuInit: result %d", (int)result);
        refuse("fault", text);
    }
    if (cuda.state((int)getpid(), &own) == CUDA_ERROR_NOT_SUPPORTED) {
        refuse("none", text);
    }
    snprintf(text, sizeof text, "ready %d\n", version);
    if (!say(text)) {
        _exit(0);
    }
}

/* Ends the process when nobody listens any more, whatever call has not returned. */
static void *watch(void *unused) {
    struct pollfd end = {.fd = SOCKET, .events = POLLRDHUP};
    (void)unused;
    while (poll(&end, 1, -1) < 0 || (end.revents & (POLLRDHUP | POLLHUP | POLLERR)) == 0) {
    }
    _exit(0);
}

static CUresult lock(int pid, unsigned timeout_ms) {
    CUcheckpointLockArgs args = {.timeoutMs = timeout_ms};
    return cuda.lock(pid, &args);
}

static CUresult ask(const char *verb, int pid, unsigned timeout_ms) {
    if (strcmp(verb, "lock") == 0) {
        return lock(pid, timeout_ms);
    }
    if (strcmp(verb, "save") == 0) {
        return cuda.save(pid, NULL);
    }
    if (strcmp(verb, "restore") == 0) {
        return cuda.restore(pid, NULL);
    }
    if (strcmp(verb, "unlock") == 0) {
        return cuda.unlock(pid, NULL);
    }
    return strcmp(verb, "state") == 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

/* The question in the line, false for a line that is none. */
static bool read_question(const char *line, char verb[LINE_BYTES], int *pid, unsigned *timeout_ms) {
    const char *space = strchr(line, ' ');
    char *end;
    if (space == NULL) {
        return false;
    }
    snprintf(verb, LINE_BYTES, "%.*s", (int)(space - line), line);
    *pid = (int)strtol(space + 1, &end, 10);
    *timeout_ms = (unsigned)strtoul(end, &end, 10);
    return *pid > 0;
}

static bool answer(const char *line) {
    char verb[LINE_BYTES], text[LINE_BYTES];
    CUprocessState now = CU_PROCESS_STATE_RUNNING;
    unsigned timeout_ms;
    int pid;
    if (!read_question(line, verb, &pid, &timeout_ms)) {
        return false;
    }
    CUresult result = ask(verb, pid, timeout_ms), told = cuda.state(pid, &now);
    if (result == CUDA_SUCCESS) {
        result = strcmp(verb, "state") == 0 ? told : result;
    }
    snprintf(text, sizeof text, "%d %d\n", (int)result, told == CUDA_SUCCESS ? (int)now : -1);
    return say(text);
}

/* One line, without its end; false at the end of the socket. */
static bool read_line(char line[LINE_BYTES]) {
    for (size_t length = 0; length < LINE_BYTES; length++) {
        if (read(SOCKET, line + length, 1) != 1) {
            return false;
        }
        if (line[length] == '\n') {
            line[length] = '\0';
            return true;
        }
    }
    return false;
}

int main(int argc, char **argv) {
    char line[LINE_BYTES];
    pthread_t watcher;
    if (argc != 2 || argv[1][0] == '-') {
        fprintf(stderr, "usage: divvy-checkpoint CUDA-LIBRARY\n");
        return 2;
    }
    /* Signals for the agent's process group are the agent's to follow. */
    signal(SIGINT, SIG_IGN);
    signal(SIGTERM, SIG_IGN);
    signal(SIGHUP, SIG_IGN);
    if (pthread_create(&watcher, NULL, watch, NULL) != 0) {
        refuse("fault", "no thread can be started");
    }
    /* Which GPUs the agent's user wants to see does not matter here. */
    (void)unsetenv("CUDA_VISIBLE_DEVICES");
    load(argv[1]);
    begin();
    while (read_line(line) && answer(line)) {
    }
    _exit(0); /* no handler of the driver's at its end may wait */
}
