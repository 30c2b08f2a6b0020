/* Frames between two processes: each arrives, whole and in order, however the sides wait for each other; and what ends a
 * link is noticed by whoever waits. */
#define _GNU_SOURCE
#include <limits.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "remote/test/sides.h"
#include "test/check.h"

#define FRAMES 100000u

static unsigned char taken[REMOTE_RECORD_BYTES];

/* How long who waits lets others in: a run with each, as each ends in another place of the wait. */
static unsigned yields;
/* How many frames are put between two flushes. */
static unsigned gathered;

static void set_up(struct remote_link *link) {
    if (link->kind == REMOTE_LINK_RINGS) {
        link->yields = yields;
    }
}

static int echo(struct remote_link *link) {
    size_t size;
    enum remote_taken result;

    set_up(link);
    for (uint64_t index = 0; (result = remote_link_take(link, taken, &size, -1)) == REMOTE_TAKEN;
         index++) {
        sides_check(taken, size, index);
        CHECK(remote_link_put(link, taken, size, NULL, 0));
        if (index % gathered == gathered - 1) {
            remote_link_flush(link);
        }
    }
    CHECK_EQUAL(result, REMOTE_ENDED);
    return 7;
}

static void *put_all(void *argument) {
    static struct sides_frame frame;
    struct remote_link *link = argument;

    for (uint64_t index = 0; index < FRAMES; index++) {
        sides_frame(&frame, index);
        CHECK(remote_link_put(link, &frame.head, sizeof frame.head, frame.pieces, frame.count));
        if (index % gathered == gathered - 1) {
            remote_link_flush(link);
        }
    }
    return NULL;
}

/* Both directions at once: rings fill up, wrap around and run empty. */
static void check_exchange(enum remote_link_kind kind, unsigned times, unsigned together) {
    pid_t process;
    pthread_t thread;
    size_t size;

    yields = times;
    gathered = together;
    struct remote_link *link = sides_start(kind, echo, &process);
    set_up(link);
    CHECK(pthread_create(&thread, NULL, put_all, link) == 0);
    for (uint64_t index = 0; index < FRAMES; index++) {
        CHECK_EQUAL(remote_link_take(link, taken, &size, -1), REMOTE_TAKEN);
        sides_check(taken, size, index);
    }
    CHECK(pthread_join(thread, NULL) == 0);
    CHECK_EQUAL(remote_link_take(link, taken, &size, 0), REMOTE_NOTHING_YET);
    CHECK(!remote_link_ended(link) && !remote_link_why(link));
    remote_link_free(link);
    CHECK_EQUAL(sides_wait(process), 7);
}

/* Passes for a time that is another each time, about as long as the other side needs to fall asleep. */
static void dawdle(uint64_t *state) {
    *state = *state * UINT64_C(6364136223846793005) + 1;
    for (uint64_t i = *state >> 54; i; i--) {
        __asm__ volatile("");
    }
}

static int answer_each(struct remote_link *link) {
    uint64_t state = 1;
    size_t size;

    sides_run_on(1);
    set_up(link);
    while (remote_link_take(link, taken, &size, -1) == REMOTE_TAKEN) {
        dawdle(&state);
        CHECK(remote_link_put(link, taken, size, NULL, 0));
        remote_link_flush(link);
    }
    return 7;
}

/* One frame at a time, which wakes a side that is about to sleep: were that lost, both would sleep for ever. */
static void check_wakes(void) {
    struct remote_head head = {.size = sizeof head};
    uint64_t state = 2;
    pid_t process;
    cpu_set_t before;
    size_t size;

    yields = 0;
    struct remote_link *link = sides_start(REMOTE_LINK_RINGS, answer_each, &process);
    CHECK(sched_getaffinity(0, sizeof before, &before) == 0);
    sides_run_on(0);
    set_up(link);
    for (; head.sequence < FRAMES / 4; head.sequence++) {
        dawdle(&state);
        link->in.unspun = link->out.unspun = UINT_MAX;
        CHECK(remote_link_put(link, &head, sizeof head, NULL, 0));
        remote_link_flush(link);
        CHECK_EQUAL(remote_link_take(link, taken, &size, -1), REMOTE_TAKEN);
        CHECK(size == sizeof head && memcmp(taken, &head, size) == 0);
    }
    remote_link_free(link);
    CHECK_EQUAL(sides_wait(process), 7);
    CHECK(sched_setaffinity(0, sizeof before, &before) == 0);
}

/* Waits until a thread of this process sleeps. */
static void await_sleep(pid_t thread) {
    char path[64], line[256], state = 0;

    snprintf(path, sizeof path, "/proc/self/task/%d/stat", thread);
    while (state != 'S') {
        FILE *file = fopen(path, "r");
        CHECK(file && fgets(line, sizeof line, file));
        fclose(file);
        CHECK(sscanf(strrchr(line, ')'), ") %c", &state) == 1);
        sched_yield();
    }
}

/* Once the main thread sleeps, does one of these. */
struct later {
    struct remote_link *link; /* ends it, or */
    pid_t kill;               /* kills this process */
};

static void *do_later(void *argument) {
    const struct later *later = argument;

    await_sleep(getpid());
    if (later->link) {
        remote_link_end(later->link);
    } else {
        CHECK(kill(later->kill, SIGKILL) == 0);
    }
    return NULL;
}

static int never_take(struct remote_link *link) {
    while (!remote_link_why(link)) {
        pause();
    }
    return 1;
}

static bool put_small(struct remote_link *link, uint64_t sequence) {
    struct remote_head head = {.size = sizeof head, .sequence = sequence};

    return remote_link_put(link, &head, sizeof head, NULL, 0);
}

/* Who sleeps hears that the other side was killed, or that this side ended it, whichever it waits for. */
static void check_end(enum remote_link_kind kind, bool killed, bool full) {
    pid_t process;
    pthread_t thread;
    size_t size;
    struct remote_link *link = sides_start(kind, never_take, &process);
    struct later later = {.link = killed ? NULL : link, .kill = process};

    CHECK(pthread_create(&thread, NULL, do_later, &later) == 0);
    if (full) {
        for (uint64_t i = 0; put_small(link, i); i++) {
        }
    } else {
        CHECK_EQUAL(remote_link_take(link, taken, &size, -1), REMOTE_ENDED);
    }
    CHECK(pthread_join(thread, NULL) == 0);
    const char *why = remote_link_why(link);
    CHECK(remote_link_ended(link) && (why != NULL) == killed);
    CHECK(!why || strcmp(why, "the worker is gone") == 0);
    CHECK(!put_small(link, 0));
    CHECK_EQUAL(remote_link_take(link, taken, &size, -1), REMOTE_ENDED);
    remote_link_await_end(link);
    remote_link_end(link);
    if (!killed) {
        kill(process, SIGKILL);
    }
    remote_link_free(link);
    CHECK_EQUAL(sides_wait(process), 256 + SIGKILL);
}

static int put_three_and_die(struct remote_link *link) {
    unsigned char half[32] = {64};

    for (uint64_t i = 0; i < 3; i++) {
        CHECK(put_small(link, i));
    }
    remote_link_flush(link);
    /* A half of a fourth one. */
    if (link->kind == REMOTE_LINK_STREAM) {
        CHECK_EQUAL(send(link->socket, half, sizeof half, 0), sizeof half);
    } else {
        memcpy(link->out.bytes + link->out.at, half, sizeof half);
    }
    return raise(SIGKILL);
}

/* What was whole when the other side died is still there, and nothing more. */
static void check_last_words(enum remote_link_kind kind) {
    pid_t process;
    size_t size;
    struct remote_link *link = sides_start(kind, put_three_and_die, &process);

    CHECK_EQUAL(sides_wait(process), 256 + SIGKILL);
    remote_link_await_end(link);
    CHECK(remote_link_ended(link));
    for (uint64_t i = 0; i < 3; i++) {
        CHECK_EQUAL(remote_link_take(link, taken, &size, -1), REMOTE_TAKEN);
        CHECK_EQUAL(((struct remote_head *)(void *)taken)->sequence, i);
    }
    CHECK_EQUAL(remote_link_take(link, taken, &size, -1), REMOTE_ENDED);
    remote_link_free(link);
}

static void round_trips(struct remote_link *link, uint64_t from, uint64_t to) {
    static struct sides_frame frame;
    size_t size;

    for (uint64_t index = from; index < to; index++) {
        sides_frame(&frame, index);
        CHECK(remote_link_put(link, &frame.head, sizeof frame.head, frame.pieces, frame.count));
        remote_link_flush(link);
        CHECK_EQUAL(remote_link_take(link, taken, &size, -1), REMOTE_TAKEN);
        sides_check(taken, size, index);
    }
}

/* A child after fork forgets the link, and neither side notices. */
static void check_abandon(enum remote_link_kind kind) {
    pid_t process, child;
    size_t before = sides_descriptors();

    yields = 10;
    gathered = 1;
    struct remote_link *link = sides_start(kind, echo, &process);
    round_trips(link, 0, 100);
    child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        remote_link_abandon(link);
        _exit(sides_descriptors() == before ? 5 : 6);
    }
    CHECK_EQUAL(sides_wait(child), 5);
    round_trips(link, 100, 200);
    CHECK(!remote_link_ended(link));
    remote_link_free(link);
    CHECK_EQUAL(sides_wait(process), 7);
    CHECK_EQUAL(sides_descriptors(), before);
}

/* In the working directory, so that its path may be longer than an address. */
static int listen_here(void) {
    struct sockaddr_un address = {.sun_family = AF_UNIX, .sun_path = "worker.sock"};
    int listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

    CHECK(bind(listener, (struct sockaddr *)&address, sizeof address) == 0);
    CHECK(listen(listener, 1) == 0);
    return listener;
}

/* By its path, in a folder whose name has so many characters. */
static void check_connect(int characters) {
    char base[] = "/tmp/divvy-link-XXXXXX", folder[512], path[600], why[REMOTE_WHY_BYTES] = "";
    char *from = getcwd(NULL, 0);
    pid_t process;

    CHECK(from && mkdtemp(base));
    snprintf(folder, sizeof folder, "%s/%0*d", base, characters, 0);
    snprintf(path, sizeof path, "%s/worker.sock", folder);
    CHECK(!remote_link_connect(path, why) && strstr(why, "No such file"));
    CHECK(mkdir(folder, 0700) == 0 && chdir(folder) == 0);
    int listener = listen_here();
    CHECK(chdir(from) == 0);
    free(from);
    process = fork();
    CHECK(process >= 0);
    if (process == 0) {
        struct remote_link *link = remote_link_accept(accept(listener, NULL, NULL), why);
        CHECK(link);
        _exit(echo(link));
    }
    close(listener);
    struct remote_link *link = remote_link_connect(path, why);
    CHECK(link);
    round_trips(link, 0, 100);
    remote_link_free(link);
    CHECK_EQUAL(sides_wait(process), 7);
    CHECK(!remote_link_connect(path, why) && strstr(why, "refused"));
    CHECK(unlink(path) == 0 && rmdir(folder) == 0 && rmdir(base) == 0);
}

static void check_ends(enum remote_link_kind kind) {
    check_end(kind, true, false);
    check_end(kind, true, true);
    check_end(kind, false, false);
    check_end(kind, false, true);
    check_last_words(kind);
    check_abandon(kind);
}

int main(void) {
    alarm(600); /* a wake-up that is lost would wait for ever */
    check_exchange(REMOTE_LINK_RINGS, 50, 1);
    check_exchange(REMOTE_LINK_RINGS, 0, 10);
    check_exchange(REMOTE_LINK_STREAM, 0, 10);
    check_wakes();
    check_ends(REMOTE_LINK_RINGS);
    check_ends(REMOTE_LINK_STREAM);
    check_connect(1);
    check_connect(200);
    return 0;
}
