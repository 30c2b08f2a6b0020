/* Waits of commands that go on until SIGTERM, SIGINT or a moment. */
#ifndef GPUBENCH_STOP_H
#define GPUBENCH_STOP_H

#include <stdint.h>

/* From now on SIGTERM and SIGINT end the waits below, and let `stopped` say 1. */
void stop_on_signals(void);
int stopped(void);

/* Sleeps until that moment of CLOCK_MONOTONIC, in ns; returns early when stopped. */
void sleep_until(uint64_t moment);

#endif
