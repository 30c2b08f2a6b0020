/* Frames between two processes: each arrives, whole and in order, however the sides wait for each other; and what ends a
 * link is noticed by whoever waits. `link bench` prints how long a round trip and a put take. */
#define _GNU_SOURCE
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

static void patience(struct remote_link *link) {
    if (link->kind == REMOTE_LINK_RINGS) {
        link->yields = yields;
    }
}

static int echo(struct remote_link *link) {
    size_t size;
    enum remote_taken result;

    patience(link);
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
static void check_exchange(enum remote_link_kind kind, unsigned patient, unsigned together) {
    pid_t process;
    pthread_t thread;
    size_t size;

    yields = patient;
    gathered = together;
    struct remote_link *link = sides_start(kind, echo, &process);
    patience(link);
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

int main(void) {
    alarm(600); /* a wake-up that is lost would wait for ever */
    check_exchange(REMOTE_LINK_RINGS, 200, 1);
    check_exchange(REMOTE_LINK_RINGS, 0, 10);
    check_exchange(REMOTE_LINK_STREAM, 0, 10);
    return 0;
}
