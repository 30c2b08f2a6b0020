/* Whose checkpoints one may ask for: of processes that one sees, and of one's own user's. */
#define _GNU_SOURCE
#include "simgpu/cuda/test/controlled.h"

#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define NOBODY 65534

static void describe(sim_machine *machine) {
    machine->cuda_version = 12080;
}

static void read_all(int channel, void *to, size_t bytes) {
    CHECK_EQUAL(read(channel, to, bytes), (ssize_t)bytes);
}

/* Asks for the state of each pid that it is told, and answers with the result. */
static void answer(int channel) {
    CUprocessState state;
    int pid;

    OK(cuInit(0));
    while (read(channel, &pid, sizeof pid) == (ssize_t)sizeof pid) {
        CUresult result = cuCheckpointProcessGetState(pid, &state);
        CHECK_EQUAL(write(channel, &result, sizeof result), (ssize_t)sizeof result);
    }
    _exit(0);
}

static CUresult ask(const struct controlled *asker, int pid) {
    CUresult result;

    CHECK_EQUAL(write(asker->channel, &pid, sizeof pid), (ssize_t)sizeof pid);
    read_all(asker->channel, &result, sizeof result);
    return result;
}

static void be_nobody(int channel) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    CHECK_EQUAL(setgid(NOBODY), 0);
    CHECK_EQUAL(setuid(NOBODY), 0);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    answer(channel);
}

/* Becomes the maker of the first process of a pid namespace, which gets 0. */
static pid_t fork_hidden(void) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    CHECK_EQUAL(unshare(CLONE_NEWPID), 0);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
    }
    return child;
}

/* The hidden process obeys; its maker tells its number outside. */
static void be_hidden(int channel) {
    pid_t child = fork_hidden();
    if (child == 0) {
        controlled_live(channel);
    }
    CHECK_EQUAL(write(channel, &child, sizeof child), (ssize_t)sizeof child);
    waitpid(child, NULL, 0);
    _exit(0);
}

/* The hidden process asks. */
static void ask_hidden(int channel) {
    pid_t child = fork_hidden();
    if (child == 0) {
        answer(channel);
    }
    waitpid(child, NULL, 0);
    _exit(0);
}

static void check_namespace(const struct controlled *hidden, const struct controlled *inside) {
    char path[64];
    int thread;
    pid_t pid;

    read_all(hidden->channel, &pid, sizeof pid);
    controlled_tell(hidden, TELL_BEGIN);
    OK(cuCheckpointProcessGetRestoreThreadId(pid, &thread));
    snprintf(path, sizeof path, "/proc/%d/task/%d", pid, thread);
    CHECK_EQUAL(access(path, F_OK), 0);
    OK(cuCheckpointProcessLock(pid, NULL));
    OK(cuCheckpointProcessCheckpoint(pid, NULL));
    OK(cuCheckpointProcessRestore(pid, NULL));
    OK(cuCheckpointProcessUnlock(pid, NULL));
    controlled_tell(hidden, TELL_LOOK);
    /* Who is outside has no number inside. The numbers of the others mean nobody there, or the asker. */
    FAILS(ask(inside, pid), CUDA_ERROR_INVALID_VALUE);
    FAILS(ask(inside, getpid()), CUDA_ERROR_INVALID_VALUE);
    OK(ask(inside, 1));
}

int main(void) {
    sim_machine machine;

    if (geteuid() != 0) {
        printf("skipped: other users and pid namespaces need root\n");
        return 0;
    }
    setting_describe(&machine);
    describe(&machine);
    CHECK_EQUAL(chmod(setting_make(&machine), 0755), 0);
    struct controlled nobody = controlled_fork(be_nobody), hidden = controlled_fork(be_hidden),
                      inside = controlled_fork(ask_hidden), second = controlled_fork(be_nobody);
    OK(cuInit(0));
    EVENTUALLY(ask(&nobody, second.pid) == CUDA_SUCCESS); /* when that has begun */
    FAILS(ask(&nobody, getpid()), CUDA_ERROR_INVALID_VALUE);
    OK(ask(&nobody, nobody.pid));
    CUprocessState state;
    OK(cuCheckpointProcessGetState(nobody.pid, &state));
    check_namespace(&hidden, &inside);
    controlled_kill(&nobody);
    controlled_kill(&second);
    controlled_kill(&hidden);
    controlled_kill(&inside);
    return 0;
}
