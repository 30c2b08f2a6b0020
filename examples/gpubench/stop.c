#include "stop.h"

#include <signal.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <time.h>

static volatile sig_atomic_t told;

static void tell(int number) {
    (void)number;
    told = 1;
}

void stop_on_signals(void) {
    /* Without SA_RESTART a signal ends a sleep. One that comes just before the sleep does not, so
     * sleeps are bounded. */
    struct sigaction action = {.sa_handler = tell};
    sigemptyset(&action.sa_mask);
    sigaction(SIGTERM, &action, NULL);
    sigaction(SIGINT, &action, NULL);
    prctl(PR_SET_TIMERSLACK, 1, 0, 0, 0);
}

int stopped(void) {
    return told;
}

void sleep_until(uint64_t moment) {
    enum { AT_MOST_NS = 100000000 };
    struct timespec now;
    while (!told) {
        clock_gettime(CLOCK_MONOTONIC, &now);
        uint64_t present = (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
        if (present >= moment) {
            return;
        }
        uint64_t until = moment - present > AT_MOST_NS ? present + AT_MOST_NS : moment;
        struct timespec wake = {.tv_sec = (time_t)(until / 1000000000u),
                                .tv_nsec = (long)(until % 1000000000u)};
        clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &wake, NULL);
    }
}
