/* Frames through rings in memory of both processes. */
#define _GNU_SOURCE /* F_ADD_SEALS, POLLRDHUP */
#include <errno.h>
#include <fcntl.h>
#include <linux/memfd.h>
#include <poll.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "libc/cancel.h"
#include "libc/kernel.h"
#include "remote/link_inside.h"

/* Who waits looks at the ring with pauses between, then lets other threads in between, then sleeps. Pauses help where both
 * sides have a core of their own, and only delay the other side where they share one, as after a wake-up they often do. So
 * they are left out after they were in vain, but for one wait in so many. */
#define SPINS 50u
#define SPIN_AGAIN 64u
/* Letting others in costs less than sleep where the other side runs next, and milliseconds where somebody else does. After
 * it took so long, it is left out for a number of waits. */
#define YIELDS 50u
#define YIELD_LONG_NS 50000
#define YIELD_AGAIN 1000u

#define SEALS (F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL)

static bool map(struct remote_link *link, int memory, char why[REMOTE_WHY_BYTES]) {
    void *shared = mmap(NULL, sizeof *link->shared, PROT_READ | PROT_WRITE, MAP_SHARED, memory, 0);

    if (shared == MAP_FAILED) {
        snprintf(why, REMOTE_WHY_BYTES, "mapping the rings: %s", strerror(errno));
        return false;
    }
    link->shared = shared;
    link->yields = YIELDS;
    return true;
}

static struct remote_ring view(struct remote_ring_words *words, unsigned char *bytes, size_t size,
                               int wake) {
    return (struct remote_ring){.words = words, .bytes = bytes, .size = size, .wake = wake};
}

bool remote_rings_make(struct remote_link *link, int descriptors[REMOTE_HELLO_DESCRIPTORS],
                       char why[REMOTE_WHY_BYTES]) {
    int commands[2] = {-1, -1}, answers[2] = {-1, -1};
    int memory = kernel_memfd_create("divvy-link", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    bool good = memory >= 0 && ftruncate(memory, (off_t)sizeof *link->shared) == 0 &&
                fcntl(memory, F_ADD_SEALS, SEALS) == 0 &&
                socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, commands) == 0 &&
                socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, answers) == 0;

    descriptors[REMOTE_HELLO_MEMORY] = memory;
    descriptors[REMOTE_HELLO_COMMANDS] = commands[0];
    descriptors[REMOTE_HELLO_ANSWERS] = answers[0];
    link->in.wake = commands[1];
    link->out.wake = answers[1];
    if (!good) {
        snprintf(why, REMOTE_WHY_BYTES, "making the rings: %s", strerror(errno));
        return false;
    }
    if (!map(link, memory, why)) {
        return false;
    }
    link->in = view(&link->shared->commands, link->shared->command_bytes, REMOTE_COMMANDS_BYTES,
                    commands[1]);
    link->out =
        view(&link->shared->answers, link->shared->answer_bytes, REMOTE_ANSWERS_BYTES, answers[1]);
    return true;
}

bool remote_rings_join(struct remote_link *link, const int descriptors[REMOTE_HELLO_DESCRIPTORS],
                       char why[REMOTE_WHY_BYTES]) {
    int memory = descriptors[REMOTE_HELLO_MEMORY];
    struct stat status;

    /* Memory that somebody could cut would end this process by SIGBUS. Only memory of this kind has seals. */
    int seals = fcntl(memory, F_GET_SEALS);
    if (seals < 0 || (seals & SEALS) != SEALS || kernel_fstat(memory, &status) != 0 ||
        status.st_size != (off_t)sizeof *link->shared) {
        snprintf(why, REMOTE_WHY_BYTES, "the worker's rings are not sealed, or of another size");
        return false;
    }
    if (!map(link, memory, why)) {
        return false;
    }
    close(memory);
    link->out = view(&link->shared->commands, link->shared->command_bytes, REMOTE_COMMANDS_BYTES,
                     descriptors[REMOTE_HELLO_COMMANDS]);
    link->in = view(&link->shared->answers, link->shared->answer_bytes, REMOTE_ANSWERS_BYTES,
                    descriptors[REMOTE_HELLO_ANSWERS]);
    return true;
}

static void wake(struct remote_link *link, int socket) {
    UNCANCELLED;
    int saved = errno;

    /* If the socket is full of such bytes, one more says nothing new. */
    if (send(socket, "", 1, MSG_DONTWAIT | MSG_NOSIGNAL) < 0 && errno != EAGAIN && errno != EINTR) {
        remote_link_broken(link, errno);
    }
    errno = saved;
}

/* `room` is 0 for who takes, otherwise what who puts needs. */
static enum remote_ring_state look(struct remote_ring *ring, size_t room) {
    return room ? remote_ring_room(ring, room) : remote_ring_filled(ring);
}

static void sleep_on(struct remote_link *link, struct remote_ring *ring, size_t room,
                     int64_t deadline) {
    UNCANCELLED;
    char bytes[64];

    remote_ring_will_sleep(ring, room);
    if (look(ring, room) == REMOTE_RING_NOT_YET &&
        (deadline == INT64_MAX || remote_link_poll(link, ring->wake, POLLIN, deadline))) {
        int saved = errno;
        ssize_t got =
            recv(ring->wake, bytes, sizeof bytes, deadline == INT64_MAX ? 0 : MSG_DONTWAIT);
        if (got == 0) {
            remote_link_gone(link, REMOTE_OTHER(link, "is gone"));
        } else if (got < 0 && errno != EAGAIN && errno != EINTR) {
            remote_link_broken(link, errno);
        }
        errno = saved;
    }
    remote_ring_awake(ring, room);
}

static enum remote_ring_state spin(struct remote_ring *ring, size_t room) {
    enum remote_ring_state state = look(ring, room);

    if (state != REMOTE_RING_NOT_YET || ring->unspun) {
        ring->unspun -= ring->unspun > 0;
        return state;
    }
    for (unsigned i = 0; i < SPINS && state == REMOTE_RING_NOT_YET; i++) {
        remote_pause();
        state = look(ring, room);
    }
    ring->unspun = state == REMOTE_RING_NOT_YET ? SPIN_AGAIN : 0;
    return state;
}

static enum remote_ring_state yield(struct remote_ring *ring, size_t room, unsigned times) {
    enum remote_ring_state state = REMOTE_RING_NOT_YET;

    if (ring->unyielded) {
        ring->unyielded--;
        return state;
    }
    int64_t before = remote_now();
    for (unsigned i = 0; i < times && state == REMOTE_RING_NOT_YET; i++) {
        sched_yield();
        state = look(ring, room);
        int64_t after = remote_now();
        if (after - before > YIELD_LONG_NS) {
            ring->unyielded = YIELD_AGAIN;
            break;
        }
        before = after;
    }
    return state;
}

static enum remote_ring_state await(struct remote_link *link, struct remote_ring *ring, size_t room,
                                    int64_t nanoseconds) {
    enum remote_ring_state state = spin(ring, room);
    int64_t deadline;

    if (state != REMOTE_RING_NOT_YET) {
        return state;
    }
    deadline = remote_deadline(nanoseconds);
    if (nanoseconds) {
        state = yield(ring, room, link->yields);
    }
    while (state == REMOTE_RING_NOT_YET && !remote_link_ended(link)) {
        /* Also where no time is left: so the end of the other side is noticed by who only looks. */
        sleep_on(link, ring, room, deadline);
        state = look(ring, room);
        if (deadline != INT64_MAX && remote_now() >= deadline) {
            return state;
        }
    }
    /* What was put before the other side ended is there, but may have been put after the last look. */
    return state == REMOTE_RING_NOT_YET ? look(ring, room) : state;
}

/* How many bytes of commands wait for the worker before the client does, if no frame needs more: about as many launches as
 * the driver takes before it lets a program wait. A program that launches for a second would otherwise fill the ring with
 * work of many, and be held up for so long when it ends. */
#define REMOTE_COMMANDS_AHEAD (96u << 10)

/* The room for which a frame waits, so that no more than this is ahead of it. */
static size_t room_for(const struct remote_ring *ring, size_t size, size_t ahead) {
    size_t room = (size_t)ring->size - ahead;

    return ring->size != REMOTE_COMMANDS_BYTES || size > room ? size : room;
}

bool remote_rings_put(struct remote_link *link, const void *head, size_t head_size,
                      const struct remote_piece *pieces, size_t count, size_t size) {
    enum remote_ring_state state =
        remote_ring_room(&link->out, room_for(&link->out, size, REMOTE_COMMANDS_AHEAD));

    if (state == REMOTE_RING_NOT_YET) {
        /* Who sleeps makes no room. Half is waited for, so that not every frame that is taken ends the wait. */
        remote_rings_flush(link);
        state = await(link, &link->out, room_for(&link->out, size, REMOTE_COMMANDS_AHEAD / 2), -1);
    }
    if (state == REMOTE_RING_WRONG) {
        remote_link_fault(link, REMOTE_OTHER(link, "took more than there was"));
    }
    if (state != REMOTE_RING_READY) {
        return false;
    }
    remote_ring_put(&link->out, head, head_size, pieces, count);
    return true;
}

void remote_rings_flush(struct remote_link *link) {
    if (remote_ring_flush(&link->out)) {
        wake(link, link->out.wake);
    }
}

enum remote_taken remote_rings_take(struct remote_link *link, void *to, size_t *size,
                                    int64_t nanoseconds) {
    enum remote_ring_state state = await(link, &link->in, 0, nanoseconds);

    if (state == REMOTE_RING_READY) {
        state = remote_ring_take(&link->in, to, size);
    }
    if (state == REMOTE_RING_WRONG) {
        remote_link_fault(link, REMOTE_OTHER(link, "put a frame that is none"));
        return REMOTE_ENDED;
    }
    if (state == REMOTE_RING_NOT_YET) {
        return remote_link_ended(link) ? REMOTE_ENDED : REMOTE_NOTHING_YET;
    }
    if (remote_ring_freed(&link->in)) {
        wake(link, link->in.wake);
    }
    return REMOTE_TAKEN;
}
