/* Threads that a signal interrupts in a call of the driver, again and again, and that leave the
 * call by siglongjmp or allocate in the handler. In the end the program takes all the memory that
 * it gets, and prints how many pieces of 64 MiB that is, handlers' included.
 *
 *     inside sync|alloc|launch leave|allocate|nested [stack] [THREADS]
 *
 * With nested a second signal interrupts the handler's allocation; with stack handlers run on a
 * stack of their own. Calls of cuMemAlloc and cuLaunchKernel have to sleep in the driver for some
 * time (divvy simgpu inject). */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#define ROUNDS 20
#define THREADS_MAX 8
#define PIECE ((size_t)64 << 20)
#define WAIT_NS 200000000ull /* how long a wait for the stream takes */

static int (*init)(unsigned), (*retain)(void **, int), (*set)(void *), (*sync_stream)(void *);
static int (*alloc)(unsigned long long *, size_t), (*create)(void **, unsigned);
static int (*load)(void **, const void *), (*get)(void **, void *, const char *);
static int (*launch)(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
                     void *, void **, void **);

static const char image[] = ".version 7.0\n.target sm_80\n.address_size 64\n"
                            ".visible .entry divvy_busy_ns(.param .u64 a) { ret; }\n";
static const char *action, *reaction;
static int on_stack, pieces;
static void *context, *kernel;

struct victim {
    pthread_t id;
    int tid;
    volatile sig_atomic_t inside;  /* in the call */
    volatile sig_atomic_t handled; /* handlers that have begun in this call */
    volatile sig_atomic_t rounds;
    void *stream;
    sigjmp_buf out;
};
static struct victim victims[THREADS_MAX];
static _Thread_local struct victim *me;

static int take_piece(void) {
    unsigned long long address;
    int result = alloc(&address, PIECE);
    if (result == 0) {
        __atomic_add_fetch(&pieces, 1, __ATOMIC_RELAXED);
    }
    return result;
}

static void on_signal(int number) {
    (void)number;
    if (me == NULL || !me->inside) {
        return;
    }
    me->handled++;
    if (strcmp(reaction, "leave") == 0) {
        siglongjmp(me->out, 1);
    }
    take_piece();
}

static int kernel_for(unsigned long long ns) {
    void *parameters[] = {&ns};
    return launch(kernel, 1, 1, 1, 1, 1, 1, 0, me->stream, parameters, NULL);
}

static void act(void) {
    if (strcmp(action, "sync") == 0) {
        sync_stream(me->stream);
    } else if (strcmp(action, "alloc") == 0) {
        take_piece();
    } else {
        kernel_for(1000);
    }
}

static void *suffer(void *arg) {
    stack_t stack = {.ss_sp = malloc(1 << 16), .ss_size = 1 << 16};
    me = arg;
    me->tid = (int)syscall(SYS_gettid);
    if ((on_stack && sigaltstack(&stack, NULL) != 0) || set(context) != 0 ||
        create(&me->stream, 1) != 0) {
        exit(3);
    }
    for (; me->rounds < ROUNDS; me->rounds++) {
        if (strcmp(action, "sync") == 0 && kernel_for(WAIT_NS) != 0) {
            exit(3);
        }
        me->handled = 0;
        if (sigsetjmp(me->out, 1) == 0) {
            me->inside = 1;
            act();
        }
        me->inside = 0;
    }
    /* What the thread allocates after all that is counted too. */
    for (int i = 0; i < 4; i++) {
        take_piece();
    }
    return NULL;
}

/* Whether the thread sleeps, in a call that it makes. */
static int sleeps(const struct victim *v) {
    char path[64], text[512];
    snprintf(path, sizeof path, "/proc/self/task/%d/stat", v->tid);
    FILE *file = fopen(path, "r");
    size_t size = file != NULL ? fread(text, 1, sizeof text - 1, file) : 0;
    if (file != NULL) {
        fclose(file);
    }
    text[size] = '\0';
    const char *end = strrchr(text, ')');
    return end != NULL && end[1] == ' ' && end[2] == 'S';
}

static void interrupt(struct victim *v, int most) {
    if (v->inside && v->handled < most && sleeps(v) && v->inside) {
        pthread_kill(v->id, v->handled % 2 == 0 ? SIGUSR1 : SIGUSR2);
    }
}

static void prepare(void) {
    void *driver = dlopen("libcuda.so.1", RTLD_NOW), *module;
    if (driver == NULL) {
        exit(3);
    }
    *(void **)&init = dlsym(driver, "cuInit");
    *(void **)&retain = dlsym(driver, "cuDevicePrimaryCtxRetain");
    *(void **)&set = dlsym(driver, "cuCtxSetCurrent");
    *(void **)&sync_stream = dlsym(driver, "cuStreamSynchronize");
    *(void **)&alloc = dlsym(driver, "cuMemAlloc_v2");
    *(void **)&create = dlsym(driver, "cuStreamCreate");
    *(void **)&load = dlsym(driver, "cuModuleLoadData");
    *(void **)&get = dlsym(driver, "cuModuleGetFunction");
    *(void **)&launch = dlsym(driver, "cuLaunchKernel");
    if (init(0) != 0 || retain(&context, 0) != 0 || set(context) != 0 ||
        load(&module, image) != 0 || get(&kernel, module, "divvy_busy_ns") != 0) {
        exit(3);
    }
}

int main(int argc, char **argv) {
    struct sigaction handler = {.sa_handler = on_signal};
    int threads = 1, left;
    action = argv[1];
    reaction = argv[2];
    for (int i = 3; i < argc; i++) {
        on_stack = on_stack || strcmp(argv[i], "stack") == 0;
        threads = atoi(argv[i]) > 0 ? atoi(argv[i]) : threads;
    }
    handler.sa_flags = on_stack ? SA_ONSTACK : 0;
    sigaction(SIGUSR1, &handler, NULL);
    sigaction(SIGUSR2, &handler, NULL);
    prepare();
    int most = strcmp(reaction, "nested") == 0 ? 2 : 1;
    for (int i = 0; i < threads; i++) {
        pthread_create(&victims[i].id, NULL, suffer, &victims[i]);
    }
    do {
        left = 0;
        for (int i = 0; i < threads; i++) {
            left += victims[i].rounds < ROUNDS;
            interrupt(&victims[i], most);
        }
        usleep(1000);
    } while (left > 0);
    for (int i = 0; i < threads; i++) {
        pthread_join(victims[i].id, NULL);
    }
    while (take_piece() == 0) {
    }
    printf("%d\n", pieces);
    return 0;
}
