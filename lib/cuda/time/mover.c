/*
 * The thread of a process of a swap share that carries out the agent's orders: it moves memory to
 * the host when the share leaves the GPU, and back when it enters.
 *
 * It starts with the first call that passes the turn gate, has every signal blocked, is nobody's to
 * cancel, and holds nothing that another thread waits for but a context, for one call of the driver.
 * A fork child has none until its own first call. It never keeps a process from ending: it leaves
 * the driver alone from exit on, and ends when the first thread has.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "cuda/attach.h"
#include "cuda/fork.h"
#include "cuda/lock.h"
#include "cuda/memory/swapped.h"
#include "cuda/time/capture.h"
#include "cuda/time/launch.h"
#include "cuda/time/move.h"
#include "cuda/time/notes.h"
#include "cuda/time/now.h"
#include "cuda/time/turns.h"
#include "cuda/time/uses.h"
#include "libc/cancel.h"

#define SHORT_NS 500000u        /* between two looks at what is about to be done */
#define LOOK_NS 4000000u        /* between two looks at the order while there are turns */
#define REST_NS 100000000u      /* the same while there are none */
#define PERIOD_NS 250000000u    /* of uses */
#define BUSY_NS 50000000u       /* between two looks at whether work is under way */
#define FAREWELL_NS 2000000000u /* exit waits so long for a call of the driver's to end */
#define RETRY_NS 1000000000u    /* before another attempt to make the thread */

static uint64_t retry; /* starting protects it */
static lock starting;
static uint32_t leaving; /* the process ends; atomic */
static uint32_t asking;  /* the thread may be in the driver; atomic */
static bool farewell_known;

/* Of the thread alone. */
static uint64_t carried; /* the order that was carried out last */
/* The period in which the last turn began, and that in which the next one begins. That is fixed while
 * the gate is closed, so that no use is taken for one of the turn before. And that in which the last
 * turn began which used something. */
static uint64_t turn_since, next_since, used_since;
static uint64_t period_began, looked;
static bool works;

/* Before and after whatever calls the driver. False once the process ends. */
static bool ask(void) {
    __atomic_store_n(&asking, 1, __ATOMIC_SEQ_CST);
    if (__atomic_load_n(&leaving, __ATOMIC_SEQ_CST) == 0) {
        return true;
    }
    __atomic_store_n(&asking, 0, __ATOMIC_RELEASE);
    return false;
}

static void asked(void) {
    __atomic_store_n(&asking, 0, __ATOMIC_RELEASE);
}

/* The driver's own handlers run after this one, because they were there before. */
static void farewell(void) {
    __atomic_store_n(&leaving, 1, __ATOMIC_SEQ_CST);
    uint64_t end = now_ns() + FAREWELL_NS;
    while (__atomic_load_n(&asking, __ATOMIC_SEQ_CST) != 0 && now_ns() < end) {
        dv_time_nap(SHORT_NS);
    }
}

/* Whether the order is still to be carried out: it is the present one and its gate is closed. */
static bool stands(const dv_share *share, uint64_t order) {
    return dv_turn_order(share, 0) == order && dv_turn_closed(share, 0, now_ns()) &&
           __atomic_load_n(&leaving, __ATOMIC_RELAXED) == 0;
}

/* Whether any work of the program is under way, as far as streams tell. */
static bool is_busy(void) {
    bool busy = false;
    if (ask()) {
        busy = flights_busy();
        asked();
    }
    return busy;
}

/* Waits until no call is between gate and driver, and the work that was given has ended. */
static bool await_work(const dv_share *share, uint64_t order) {
    while (stands(share, order)) {
        if (!notes_inside() && !is_busy()) {
            return true;
        }
        dv_time_nap(SHORT_NS);
    }
    return false;
}

static uint64_t amount(const dv_share *share, unsigned number, enum move_way direction) {
    if (direction == MOVE_OUT) {
        return dv_turn_part(share, number, dv_turn_give(share, number));
    }
    return dv_turn_part(share, number, dv_turn_room(share, number));
}

/* Moves on all GPUs at the same time. */
static void move_all(dv_share *share, uint64_t order, enum move_way direction) {
    static struct move moves[DV_PAGE_DEVICES];
    bool done[DV_PAGE_DEVICES] = {false};
    unsigned gpus = dv_share_device_count(share), left = gpus;
    for (unsigned i = 0; i < gpus; i++) {
        move_begin(&moves[i], share, i, direction, amount(share, i, direction), used_since);
    }
    while (left > 0 && ask()) {
        bool stop = !stands(share, order);
        for (unsigned i = 0; i < gpus; i++) {
            if (!done[i] && move_go_on(&moves[i], stop)) {
                done[i] = true;
                left--;
            }
        }
        asked();
        if (left > 0) {
            dv_time_nap(SHORT_NS);
        }
    }
    for (unsigned i = 0; i < gpus; i++) {
        move_end(&moves[i]);
    }
}

static bool same_everywhere(const dv_share *share, uint64_t order) {
    for (unsigned i = 1; i < dv_share_device_count(share); i++) {
        if (dv_turn_order(share, i) != order) {
            return false; /* the agent is about to write it there, too */
        }
    }
    return true;
}

/* A turn without use is passed over: what the program goes on with is what it used before. */
static void note_use(void) {
    if (swapped_used_since(turn_since)) {
        used_since = turn_since;
    }
}

/* Whether the order was carried out, and not withdrawn meanwhile. */
static bool carry_out(dv_share *share, uint64_t order) {
    switch (dv_turn_state(order)) {
    case DV_PAGE_TURN_LEAVING:
        if (!await_work(share, order)) {
            return false;
        }
        move_all(share, order, MOVE_OUT);
        if (!stands(share, order)) {
            return false;
        }
        uses_next();
        next_since = uses_period();
        return true;
    case DV_PAGE_TURN_ENTERING:
        note_use();
        move_all(share, order, MOVE_IN);
        return stands(share, order);
    case DV_PAGE_TURN_RESIDENT:
        uses_next();
        note_use();
        turn_since = next_since;
        return true;
    default:
        return true;
    }
}

static void tell_done(dv_share *share, uint64_t order) {
    carried = order;
    for (unsigned i = 0; i < dv_share_device_count(share); i++) {
        dv_present_there(share, i, swapped_there(i));
        dv_present_done(share, i, order);
    }
}

/* While the gate is open: what is used counts for the present period, and work that goes on is told
 * like a call. */
static void attend(dv_share *share) {
    uint64_t now = now_ns();
    if (now - period_began >= PERIOD_NS) {
        period_began = now;
        uses_next();
        for (unsigned i = 0; i < dv_share_device_count(share); i++) {
            dv_present_there(share, i, swapped_there(i));
        }
    }
    if (now - looked < BUSY_NS) {
        return;
    }
    looked = now;
    works = __atomic_exchange_n(&turns_passed, 0, __ATOMIC_RELAXED) != 0 || works;
    if (works) {
        works = is_busy();
        for (unsigned i = 0; works && i < dv_share_device_count(share); i++) {
            dv_present_called(share, i, now);
        }
    }
}

/* Looks at the order. Returns for how long to sleep. */
static uint64_t look(dv_share *share) {
    uint64_t order = dv_turn_order(share, 0);
    if (order != carried && same_everywhere(share, order) && carry_out(share, order)) {
        tell_done(share, order);
        return SHORT_NS;
    }
    attend(share);
    bool rests = dv_turn_state(order) == DV_PAGE_TURN_OPEN && order == carried;
    return rests ? REST_NS : LOOK_NS;
}

/* A process lives until its last thread ends, which must not be this one. */
static bool first_has_ended(void) {
    char text[512];
    int file = open("/proc/self/stat", O_RDONLY | O_CLOEXEC);
    ssize_t size = file >= 0 ? read(file, text, sizeof text - 1) : 0;
    if (file >= 0) {
        close(file);
    }
    text[size > 0 ? size : 0] = '\0';
    const char *state = strrchr(text, ')');
    return state != NULL && state[1] == ' ' && state[2] == 'Z';
}

static void take_part(dv_share *share, bool takes_part) {
    for (unsigned i = 0; i < dv_share_device_count(share); i++) {
        dv_present_takes_part(share, i, takes_part);
    }
}

static void *work(void *arg) {
    dv_share *share = arg;
    uint64_t checked = now_ns();
    prctl(PR_SET_NAME, "divvy-turns", 0, 0, 0);
    if (ask()) {
        capture_relax();
        asked();
    }
    take_part(share, true);
    while (__atomic_load_n(&leaving, __ATOMIC_RELAXED) == 0) {
        dv_time_nap(look(share));
        if (now_ns() - checked >= RETRY_NS) {
            checked = now_ns();
            if (first_has_ended()) {
                break;
            }
        }
    }
    take_part(share, false);
    return NULL;
}

/* The thread is detached, so nothing of it is left when it ends. */
static bool begin_thread(dv_share *share) {
    pthread_t thread;
    pthread_attr_t attributes;
    sigset_t all, before;
    if (pthread_attr_init(&attributes) != 0) {
        return false;
    }
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    bool begun = pthread_create(&thread, &attributes, work, share) == 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&attributes);
    return begun;
}

static void mover_wanted(dv_share *share) {
    UNCANCELLED;
    uint64_t now = now_ns();
    int saved = errno;
    lock_take(&starting);
    bool mine = turns_served == 0 && now >= retry && !__atomic_load_n(&leaving, __ATOMIC_RELAXED);
    bool registers = mine && !farewell_known;
    farewell_known = farewell_known || mine;
    __atomic_store_n(&turns_served, turns_served | mine, __ATOMIC_RELEASE);
    lock_give(&starting);
    if (registers) {
        atexit(farewell);
    }
    if (mine && !begin_thread(share)) {
        lock_take(&starting);
        retry = now + RETRY_NS;
        __atomic_store_n(&turns_served, 0, __ATOMIC_RELEASE);
        lock_give(&starting);
    }
    errno = saved;
}
ON(turns_unserved, mover_wanted);

static void mover_attached(const dv_share *share) {
    if (dv_share_swap(share)) {
        uses_next();
    }
}
ON(attached, mover_attached);

static void mover_forked(void) {
    starting = (lock){0};
    asking = leaving = 0;
    retry = carried = turn_since = next_since = used_since = 0;
    works = false;
}
ON(forked, mover_forked);
