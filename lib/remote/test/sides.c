#define _GNU_SOURCE /* sched_setaffinity */
#include "remote/test/sides.h"

#include <dirent.h>
#include <pthread.h>
#include <sched.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "test/check.h"

static struct remote_link *good(struct remote_link *link, const char *why) {
    if (!link) {
        fprintf(stderr, "no link: %s\n", why);
        exit(1);
    }
    return link;
}

struct remote_link *sides_start(enum remote_link_kind kind, sides_worker *worker, pid_t *process) {
    char why[REMOTE_WHY_BYTES] = "";
    int pair[2];

    CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) == 0);
    *process = fork();
    CHECK(*process >= 0);
    if (*process == 0) {
        close(pair[0]);
        struct remote_link *link = good(remote_link_worker(pair[1], REMOTE_HELLO_NS, why), why);
        int result = worker(link);
        remote_link_free(link);
        _exit(result);
    }
    close(pair[1]);
    return good(remote_link_client(pair[0], kind, REMOTE_HELLO_NS, why), why);
}

int sides_wait(pid_t process) {
    int status;

    CHECK(waitpid(process, &status, 0) == process);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 256 + WTERMSIG(status);
}

static void *accept_one(void *socket) {
    char why[REMOTE_WHY_BYTES] = "";

    return good(remote_link_worker(*(int *)socket, REMOTE_HELLO_NS, why), why);
}

void sides_both(enum remote_link_kind kind, struct remote_link **client,
                struct remote_link **worker) {
    char why[REMOTE_WHY_BYTES] = "";
    int pair[2];
    pthread_t thread;
    void *result;

    CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) == 0);
    CHECK(pthread_create(&thread, NULL, accept_one, &pair[1]) == 0);
    *client = good(remote_link_client(pair[0], kind, REMOTE_HELLO_NS, why), why);
    CHECK(pthread_join(thread, &result) == 0);
    *worker = result;
}

static uint64_t next(uint64_t *state) {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state;
}

static uint64_t begin(uint64_t index) {
    uint64_t state = (index + 1) * UINT64_C(0x9e3779b97f4a7c15);

    next(&state);
    next(&state);
    return state;
}

/* Most frames are small, a few long, and some as long as they may be. */
static size_t draw_size(uint64_t *state) {
    uint64_t drawn = next(state);
    size_t most = REMOTE_RECORD_BYTES - sizeof(struct remote_head);

    if (drawn % 2000 == 0) {
        return most;
    }
    if (drawn % 1000 == 1) {
        return (size_t)(next(state) % most) & ~(size_t)7;
    }
    return (size_t)(next(state) % (drawn % 100 ? 500 : 30000)) & ~(size_t)7;
}

/* The pieces are filled up with zeros, and so are what is compared. */
void sides_frame(struct sides_frame *frame, uint64_t index) {
    uint64_t state = begin(index);
    size_t size = draw_size(&state), at = 0;

    frame->head = (struct remote_head){
        .size = (uint32_t)(sizeof frame->head + size), .sequence = index, .context = next(&state)};
    for (frame->count = 0; at < size; frame->count++) {
        bool last = frame->count == REMOTE_MOST_PIECES - 1;
        size_t left = size - at, part = last ? left : 8 + (size_t)(next(&state) % left & ~7ull);
        part = part < left ? part : left;
        for (size_t i = 0; i < part; i += 8) {
            uint64_t word = next(&state);
            memcpy(frame->bytes + at + i, &word, 8);
        }
        size_t less = (size_t)(next(&state) % 8);
        memset(frame->bytes + at + part - less, 0, less);
        frame->pieces[frame->count] = (struct remote_piece){frame->bytes + at, part - less};
        at += part;
    }
}

void sides_check(const unsigned char *taken, size_t size, uint64_t index) {
    static _Thread_local struct sides_frame wanted;

    sides_frame(&wanted, index);
    CHECK_EQUAL(size, wanted.head.size);
    CHECK(memcmp(taken, &wanted.head, sizeof wanted.head) == 0);
    CHECK(memcmp(taken + sizeof wanted.head, wanted.bytes, size - sizeof wanted.head) == 0);
}

size_t sides_descriptors(void) {
    DIR *folder = opendir("/proc/self/fd");
    size_t count = 0;

    CHECK(folder);
    while (readdir(folder)) {
        count++;
    }
    closedir(folder);
    return count;
}

void sides_run_on(size_t which) {
    cpu_set_t may, one;
    size_t core = 0;

    CHECK(sched_getaffinity(0, sizeof may, &may) == 0);
    for (size_t left = which % (size_t)CPU_COUNT(&may); !CPU_ISSET(core, &may) || left; core++) {
        left -= CPU_ISSET(core, &may) ? 1 : 0;
    }
    CPU_ZERO(&one);
    CPU_SET(core, &one);
    CHECK(sched_setaffinity(0, sizeof one, &one) == 0);
}
