/* What each thread of the program has: its number, and room for one frame. */
#include "remote/client/inside.h"

#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>

/* With this model an access is one instruction and never allocates. */
#define OWN __attribute__((tls_model("initial-exec"))) _Thread_local

static OWN uint32_t number;
static OWN unsigned char *frame;

static pthread_once_t once = PTHREAD_ONCE_INIT;
static pthread_key_t key;
static bool keyed;

static uint32_t last;

uint64_t remote_sent;

uint32_t remote_thread(void) {
    if (!number) {
        number = __atomic_add_fetch(&last, 1, __ATOMIC_RELAXED);
    }
    return number;
}

uint32_t remote_thread_count(void) {
    return __atomic_load_n(&last, __ATOMIC_RELAXED);
}

bool remote_several(void) {
    remote_thread();
    return remote_thread_count() > 1;
}

/* At the thread's end, after which other destructors may still call us. */
static void end(void *of) {
    (void)of;
    if (frame) {
        munmap(frame, REMOTE_RECORD_BYTES);
        frame = NULL;
    }
}

static void make_key(void) {
    keyed = pthread_key_create(&key, end) == 0;
}

unsigned char *remote_thread_frame(void) {
    if (!frame) {
        pthread_once(&once, make_key);
        void *room = mmap(NULL, REMOTE_RECORD_BYTES, PROT_READ | PROT_WRITE,
                          MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (room == MAP_FAILED) {
            return NULL;
        }
        if (keyed) {
            pthread_setspecific(key, room);
        }
        frame = room;
    }
    return frame;
}

void remote_thread_frame_set(unsigned char *to) {
    frame = to;
}

bool remote_thread_start(void *(*run)(void *), void *argument) {
    pthread_attr_t attributes;
    pthread_t thread;
    sigset_t all, before;

    if (pthread_attr_init(&attributes) != 0) {
        return false;
    }
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    bool started = pthread_create(&thread, &attributes, run, argument) == 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&attributes);
    return started;
}
