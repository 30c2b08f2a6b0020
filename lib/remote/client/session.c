/* The one connection of a process to its worker: its begin, its end, and what every call answers at a moment.
 *
 * The state is a word. What is open stands in a page of its own, which the kernel clears in the child of any fork, also of
 * one that runs no handlers (madvise(2), MADV_WIPEONFORK): such a child finds nothing open. */
#define _GNU_SOURCE
#include "abi/generated/nvml_functions.h"
#include "remote/client/inside.h"

#include <errno.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define HIDDEN __attribute__((visibility("hidden")))

#ifndef MADV_WIPEONFORK
#define MADV_WIPEONFORK 18
#endif

enum state {
    NEVER,  /* not begun */
    LIVE,   /* connected */
    ENDED,  /* was connected */
    FOREIGN /* the parent was connected, and had called cuInit */
};

/* What is open; `ours` is 1 in the process that wrote it. */
struct opened {
    uint32_t cuda, nvml, ours;
};

static pthread_mutex_t beginning = PTHREAD_MUTEX_INITIALIZER;
static struct remote_link *connection;
static enum state state;
static bool cuda_begun;     /* cuInit has succeeded */
static unsigned nvml_begun; /* how often nvmlInit has, less nvmlShutdown */
static bool told;           /* why there is no connection */
static bool watched;        /* forks are */
static struct opened unwiped;
static struct opened *opened = &unwiped;

extern remote_begun *const on_begun[] __asm__("__start_remote_on_begun") HIDDEN;
extern remote_begun *const on_begun_end[] __asm__("__stop_remote_on_begun") HIDDEN;
extern remote_forked *const on_forked[] __asm__("__start_remote_on_forked") HIDDEN;
extern remote_forked *const on_forked_end[] __asm__("__stop_remote_on_forked") HIDDEN;

static enum state state_now(void) {
    return __atomic_load_n(&state, __ATOMIC_ACQUIRE);
}

void remote_say(const char *format, ...) {
    char line[512] = "divvy: ";
    size_t begin = strlen(line), room = sizeof line - begin - 1;
    va_list arguments;

    va_start(arguments, format);
    int wrote = vsnprintf(line + begin, room, format, arguments);
    va_end(arguments);
    size_t length = wrote < 0 ? 0 : (size_t)wrote < room ? (size_t)wrote : room - 1;
    line[begin + length] = '\n';
    if (write(STDERR_FILENO, line, begin + length + 1) < 0) {
        return; /* nobody reads it */
    }
}

/* Has the page say what is open now. */
static void publish(void) {
    bool live = state_now() == LIVE;

    __atomic_store_n(&opened->cuda, live && cuda_begun, __ATOMIC_RELEASE);
    __atomic_store_n(&opened->nvml, live && nvml_begun > 0, __ATOMIC_RELEASE);
    __atomic_store_n(&opened->ours, 1, __ATOMIC_RELEASE);
}

static void make_page(void) {
    if (opened != &unwiped) {
        return;
    }
    size_t size = (size_t)sysconf(_SC_PAGESIZE);
    void *page = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (page == MAP_FAILED) {
        return;
    }
    if (madvise(page, size, MADV_WIPEONFORK) != 0) { /* a kernel before 4.14: handlers must do */
        munmap(page, size);
        return;
    }
    __atomic_store_n(&opened, page, __ATOMIC_RELEASE);
}

/* This process is the child of a fork. The child of a process that called cuInit is refused everything; another may connect
 * anew. Locks are made free, because the thread that held one may not be here. A child after vfork shares its parent's
 * memory until it calls exec, and runs no handler: it must change nothing, and does not. */
static void forked(void) {
    enum state now = state_now();

    beginning = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
    if (now == LIVE || now == ENDED) {
        remote_link_abandon(connection);
        connection = NULL;
        __atomic_store_n(&state, cuda_begun ? FOREIGN : NEVER, __ATOMIC_RELEASE);
        __atomic_store_n(&nvml_begun, 0, __ATOMIC_RELEASE);
        told = false;
    }
    for (remote_forked *const *each = on_forked; each < on_forked_end; each++) {
        (*each)();
    }
    publish();
}

/* Calls that need a connection, and nothing else. */
static bool is_free(enum remote_number number) {
    switch (number) {
    case REMOTE_cuInit:
    case REMOTE_cuDriverGetVersion:
    case REMOTE_nvmlInit:
    case REMOTE_nvmlInit_v2:
    case REMOTE_nvmlInitWithFlags:
        return true;
    default:
        return (unsigned)number >= REMOTE_SNAPSHOT;
    }
}

static int32_t closed(enum remote_number number) {
    bool nvml = remote_is_nvml((uint16_t)number);

    if (state_now() != NEVER && !__atomic_load_n(&opened->ours, __ATOMIC_ACQUIRE)) {
        forked();
    }
    enum state now = state_now();
    bool begun = nvml ? __atomic_load_n(&nvml_begun, __ATOMIC_ACQUIRE) > 0
                      : __atomic_load_n(&cuda_begun, __ATOMIC_ACQUIRE);
    if (now == NEVER || now == FOREIGN || (!begun && !is_free(number))) {
        return nvml ? NVML_ERROR_UNINITIALIZED : CUDA_ERROR_NOT_INITIALIZED;
    }
    if (now == ENDED) {
        return nvml ? NVML_ERROR_GPU_IS_LOST : CUDA_ERROR_DEVICE_UNAVAILABLE;
    }
    return 0;
}

int32_t remote_gate(enum remote_number number) {
    const struct opened *now = __atomic_load_n(&opened, __ATOMIC_ACQUIRE);
    const uint32_t *open = remote_is_nvml((uint16_t)number) ? &now->nvml : &now->cuda;

    if (!__atomic_load_n(open, __ATOMIC_ACQUIRE)) {
        return closed(number);
    }
    return remote_in_callback() && open == &now->cuda ? (int32_t)CUDA_ERROR_NOT_PERMITTED
                                                      : remote_late_stands(number);
}

static CUresult connect_now(void) {
    char room[REMOTE_PATH_BYTES],
        why[REMOTE_WHY_BYTES] = "no worker.sock stands beside the library";
    char reason[REMOTE_REASON_BYTES];
    const char *path = remote_socket_path(room, sizeof room);

    connection = path ? remote_link_connect(path, why) : NULL;
    if (!connection) {
        if (!told) {
            bool has = remote_socket_reason(path, reason);
            remote_say("no connection to the GPU: %s", has ? reason : why);
        }
        told = true;
        return CUDA_ERROR_DEVICE_UNAVAILABLE;
    }
    make_page();
    if (!watched) {
        watched = pthread_atfork(NULL, NULL, forked) == 0;
    }
    for (remote_begun *const *each = on_begun; each < on_begun_end; each++) {
        (*each)(connection);
    }
    __atomic_store_n(&state, LIVE, __ATOMIC_RELEASE);
    publish();
    return CUDA_SUCCESS;
}

CUresult remote_session_begin(void) {
    CUresult result = CUDA_SUCCESS;

    if (state_now() == LIVE && __atomic_load_n(&opened->ours, __ATOMIC_ACQUIRE)) {
        return CUDA_SUCCESS;
    }
    closed(REMOTE_cuInit); /* learns of a fork */
    pthread_mutex_lock(&beginning);
    switch (state_now()) {
    case NEVER:
        result = connect_now();
        break;
    case ENDED:
        result = CUDA_ERROR_DEVICE_UNAVAILABLE;
        break;
    case FOREIGN:
        result = CUDA_ERROR_NOT_INITIALIZED;
        break;
    case LIVE:
        break;
    }
    pthread_mutex_unlock(&beginning);
    return result;
}

struct remote_link *remote_session_link(void) {
    return state_now() == LIVE ? connection : NULL;
}

/* What the other end of the socket is: of a GPU of another host the relay, which says why it ends unless it is killed. */
static const char *gone(void) {
    size_t size;

    return remote_link_area(connection, &size) ? NULL
                                               : "divvy relay on this machine, which kept the "
                                                 "connection to the GPU's host, has ended";
}

/* Not for long on the stack of a thread of the program's, which may be small. */
static __attribute__((noinline)) void tell_end(const char *why) {
    char room[REMOTE_PATH_BYTES], reason[REMOTE_REASON_BYTES];
    bool has = remote_socket_reason(remote_socket_path(room, sizeof room), reason);

    remote_say("the connection to the GPU has ended: %s", has ? reason : why);
}

void remote_session_end(const char *why) {
    enum state live = LIVE;

    if (!__atomic_compare_exchange_n(&state, &live, ENDED, false, __ATOMIC_ACQ_REL,
                                     __ATOMIC_ACQUIRE)) {
        return;
    }
    __atomic_store_n(&opened->cuda, 0, __ATOMIC_RELEASE);
    __atomic_store_n(&opened->nvml, 0, __ATOMIC_RELEASE);
    const char *better = remote_link_left(connection) ? gone() : NULL;
    if (!better) {
        better = remote_link_why(connection);
    }
    remote_link_end(connection);
    tell_end(better ? better : why);
}

void remote_session_cuda(void) {
    pthread_mutex_lock(&beginning);
    __atomic_store_n(&cuda_begun, true, __ATOMIC_RELEASE);
    publish();
    pthread_mutex_unlock(&beginning);
}

void remote_session_nvml(int by) {
    pthread_mutex_lock(&beginning);
    if (by > 0 || nvml_begun > 0) {
        __atomic_store_n(&nvml_begun, nvml_begun + (unsigned)by, __ATOMIC_RELEASE);
    }
    publish();
    pthread_mutex_unlock(&beginning);
}
