/* The thread that carries out orders, in processes that share a swap share of two GPUs: they divide
 * what is ordered, and end when and how they want to. */
#define _GNU_SOURCE
#include "cuda/test/orders.h"

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "share/state.h"

#define GPUS 2
#define PART (64 * MIB)
#define CHUNK (2 * MIB)
#define LOAD_NS (80 * (uint64_t)MS) /* in the first launch of a kernel */
#define ROUNDS 4

/* Children make threads beside the one that renews orders, which the sanitizer allows if it is told. */
__attribute__((visibility("default"))) const char *__tsan_default_options(void);
const char *__tsan_default_options(void) {
    return "die_after_fork=0";
}

static struct setting s;

struct child {
    pid_t pid;
    int commands, answers;
};

/* A context, memory and work on each GPU. */
static void use_gpus(void) {
    CHECK_EQUAL(CUDA(&s, cuInit)(0), CUDA_SUCCESS);
    for (int i = 0; i < GPUS; i++) {
        CUcontext context;
        CUdeviceptr part;
        CHECK_EQUAL(CUDA(&s, cuCtxCreate_v2)(&context, 0, i), CUDA_SUCCESS);
        CHECK_EQUAL(CUDA(&s, cuMemAlloc_v2)(&part, PART), CUDA_SUCCESS);
        CHECK_EQUAL(CUDA(&s, cuMemsetD8Async)(part, 1, PART, NULL), CUDA_SUCCESS);
        CHECK_EQUAL(CUDA(&s, cuCtxSynchronize)(), CUDA_SUCCESS);
    }
}

/* Launches on the first GPU, until the process is killed. */
static void launch(void) {
    CUcontext context;
    CHECK_EQUAL(CUDA(&s, cuCtxCreate_v2)(&context, 0, 0), CUDA_SUCCESS);
    while (busy_launch_new(&s, NULL) == CUDA_SUCCESS) {
    }
}

/* Does what the parent says: works, launches, ends by exit, or ends its first thread. */
static void serve(int commands, int answers) {
    char command;
    while (read(commands, &command, 1) == 1) {
        if (command == 'w') {
            use_gpus();
        } else if (command == 'l') {
            launch();
        } else if (command == 'e') {
            exit(0);
        } else if (command == 't') {
            pthread_exit(NULL);
        }
        CHECK_EQUAL(write(answers, &command, 1), 1);
    }
    _exit(1);
}

static struct {
    pid_t pid[64]; /* all that were started; 0 for those that have ended */
    unsigned count;
} started;

/* A test that fails, and may run anew, leaves none. */
static void kill_children(void) {
    for (unsigned i = 0; i < started.count; i++) {
        if (started.pid[i] > 0 && kill(started.pid[i], SIGKILL) == 0) {
            waitpid(started.pid[i], NULL, 0);
        }
    }
}

static struct child start(void) {
    struct child child;
    int to[2], from[2];
    CHECK(pipe2(to, O_CLOEXEC) == 0 && pipe2(from, O_CLOEXEC) == 0);
    CHECK(started.count < sizeof started.pid / sizeof started.pid[0]);
    child.pid = fork();
    CHECK(child.pid >= 0);
    if (child.pid == 0) {
        started.count = 0;
        close(to[1]);
        close(from[0]);
        serve(to[0], from[1]);
    }
    started.pid[started.count++] = child.pid;
    close(to[0]);
    close(from[1]);
    child.commands = to[1];
    child.answers = from[0];
    return child;
}

static void say(const struct child *child, char command) {
    CHECK_EQUAL(write(child->commands, &command, 1), 1);
}

static void have(const struct child *child, char command) {
    char answer = 0;
    say(child, command);
    CHECK_EQUAL(read(child->answers, &answer, 1), 1);
}

/* Waits for its end, which must be a good one unless it is killed. */
static void await_end(const struct child *child, int sign) {
    int status;
    CHECK_EQUAL(waitpid(child->pid, &status, 0), child->pid);
    for (unsigned i = 0; i < started.count; i++) {
        started.pid[i] = started.pid[i] == child->pid ? 0 : started.pid[i];
    }
    if (sign != 0) {
        CHECK(WIFSIGNALED(status) && WTERMSIG(status) == sign);
    } else {
        CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    }
    close(child->commands);
    close(child->answers);
}

static const dv_page_present *present_of(pid_t pid, unsigned gpu) {
    for (unsigned slot = 0; slot < DV_PAGE_SLOTS; slot++) {
        if (load32(&s.share->state->slot[slot].pid) == (uint32_t)pid) {
            return &s.share->gpu[gpu].present[slot];
        }
    }
    return NULL;
}

static void await_taking_part(pid_t pid) {
    while (present_of(pid, 0) == NULL || load32(&present_of(pid, 0)->takes_part) == 0) {
        usleep(500);
    }
}

static void await_done(pid_t pid, uint64_t order) {
    for (unsigned i = 0; i < GPUS; i++) {
        while (load64(&present_of(pid, i)->done) != order) {
            usleep(500);
        }
    }
}

static uint64_t resident(unsigned gpu) {
    sim_look();
    return sim_seen(&s, gpu, "managed");
}

static void processes_divide_what_is_ordered(void) {
    struct child children[2];
    uint64_t resident_order = orders_give(DV_PAGE_TURN_RESIDENT, 0, UINT64_MAX);
    for (unsigned i = 0; i < 2; i++) {
        children[i] = start();
        have(&children[i], 'w');
        await_taking_part(children[i].pid);
        await_done(children[i].pid, resident_order);
    }
    for (unsigned i = 0; i < GPUS; i++) {
        CHECK_EQUAL(resident(i), 2 * PART);
        for (unsigned k = 0; k < 2; k++) { /* it is told every quarter of a second */
            while (load64(&present_of(children[k].pid, i)->there) != PART) {
                usleep(500);
            }
        }
    }
    uint64_t leaving = orders_give(DV_PAGE_TURN_LEAVING, PART, 0);
    for (unsigned i = 0; i < 2; i++) {
        await_done(children[i].pid, leaving);
        CHECK(load64(&present_of(children[i].pid, 0)->there) >= PART / 2 - CHUNK);
    }
    for (unsigned i = 0; i < GPUS; i++) {
        uint64_t there = resident(i);
        CHECK(there <= PART && there >= PART - 2 * CHUNK);
    }
    uint64_t entering = orders_give(DV_PAGE_TURN_ENTERING, 0, 4 * PART);
    for (unsigned i = 0; i < 2; i++) {
        await_done(children[i].pid, entering);
    }
    CHECK_EQUAL(resident(0), 2 * PART);
    orders_give(DV_PAGE_TURN_RESIDENT, 0, UINT64_MAX);
    for (unsigned i = 0; i < 2; i++) {
        say(&children[i], 'e');
        await_end(&children[i], 0);
    }
}

/* exit, SIGKILL and the end of the first thread, while memory moves or not. */
static void processes_end_in_the_middle(void) {
#if defined(__SANITIZE_THREAD__)
    const char ends[] = {'e',
                         'k'}; /* it does not know the end of a forked process's first thread */
#else
    const char ends[] = {'e', 'k', 't'};
#endif
    for (unsigned i = 0; i < 12; i++) {
        char end = ends[i / 2 % sizeof ends];
        orders_give(DV_PAGE_TURN_RESIDENT, 0, UINT64_MAX);
        struct child child = start();
        have(&child, 'w');
        await_taking_part(child.pid);
        uint64_t order = orders_give(DV_PAGE_TURN_LEAVING, PART, 0);
        if (i % 2 != 0) {
            await_done(child.pid, order);
        }
        if (end == 'k') {
            CHECK_EQUAL(kill(child.pid, SIGKILL), 0);
        } else {
            say(&child, end);
        }
        await_end(&child, end == 'k' ? SIGKILL : 0);
    }
    CHECK_EQUAL(resident(0), 0);
}

/* The thread that forked had called the library before. In the child its calls are waited for like
 * those of others: when the order is carried out, none of them is between gate and driver. */
static void calls_of_the_thread_that_forked_are_seen(void) {
    CUdeviceptr none;
    CHECK_EQUAL(CUDA(&s, cuMemAlloc_v2)(&none, PART), CUDA_ERROR_NOT_INITIALIZED);
    orders_give(DV_PAGE_TURN_RESIDENT, 0, UINT64_MAX);
    struct child child = start();
    have(&child, 'w');
    await_taking_part(child.pid);
    say(&child, 'l');
    uint64_t time = sim_time(&s, 0);
    for (unsigned round = 0; round < ROUNDS; round++) {
        await_done(child.pid, orders_give(DV_PAGE_TURN_RESIDENT, 0, UINT64_MAX));
        while (sim_time(&s, 0) == time) {
            usleep(500);
        }
        await_done(child.pid, orders_give(DV_PAGE_TURN_LEAVING, 0, 0));
        time = sim_time(&s, 0);
        orders_await_held(&s, LOAD_NS);
        CHECK_EQUAL(sim_time(&s, 0), time);
    }
    CHECK_EQUAL(kill(child.pid, SIGKILL), 0);
    await_end(&child, SIGKILL);
}

/* A process that has the thread forks. The child has none, and ends as usual. */
static void a_child_of_fork_ends(void) {
    orders_give(DV_PAGE_TURN_RESIDENT, 0, UINT64_MAX);
    use_gpus();
    await_taking_part(getpid());
    pid_t pid = fork();
    if (pid == 0) {
        exit(0);
    }
    int status;
    CHECK(waitpid(pid, &status, 0) == pid && WIFEXITED(status) && WEXITSTATUS(status) == 0);
    uint64_t order = orders_give(DV_PAGE_TURN_LEAVING, PART, 0);
    await_done(getpid(), order);
    CHECK_EQUAL(resident(0), 0);
}

int main(void) {
    CHECK(atexit(kill_children) == 0);
    sim_load_ns = LOAD_NS;
    orders_make(&s, GPUS, (uint64_t)1 << 30, 256 * MIB);
    setting_open(&s);
    calls_of_the_thread_that_forked_are_seen();
    processes_divide_what_is_ordered();
    processes_end_in_the_middle();
    a_child_of_fork_ends();
    return 0;
}
