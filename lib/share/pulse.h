/* Pulses: how an online share tells the shares that give way to it that it has work.
 *
 * A share with the flag DV_PAGE_BUDGET_BEAT writes into pulse.<dev> of its own directory until when
 * it has work; the agent links that file into the directories of its neighbours as beat.<dev>.<k>,
 * and a neighbour with the flag DV_PAGE_BUDGET_YIELD launches nothing while one of them beats.
 *
 * Threads and errno: as in time.h, everywhere.
 */
#ifndef DIVVY_SHARE_PULSE_H
#define DIVVY_SHARE_PULSE_H

#include "share/share.h"

#define DV_PULSE_AHEAD_NS 1000000000u /* most that a pulse can be ahead of the present */
#define DV_PULSE_FRESH_NS 50000u      /* age up to which an answer is used again */

/* Says that this process has, or soon will have, work on device dev until then (CLOCK_MONOTONIC ns,
 * at most DV_PULSE_AHEAD_NS from now). Never shortens what was said before. Does nothing without a
 * worker, which it takes, or without the page; a page that cannot be mapped is tried again
 * after 100 ms. A few nanoseconds but for the first call. */
void dv_pulse_until(dv_share *share, unsigned dev, uint64_t now, uint64_t until);

/* Says that this process has no work on device dev. */
void dv_pulse_clear(dv_share *share, unsigned dev);

/* Until when (CLOCK_MONOTONIC ns) some neighbour that the share gives way to has work on device
 * dev; 0 if none has now. At most DV_PULSE_AHEAD_NS from now, whatever the neighbour wrote, and at
 * most DV_PULSE_FRESH_NS old. Pages that are missing, truncated or damaged do not beat. */
uint64_t dv_pulse_beating(dv_share *share, unsigned dev, uint64_t now);

#endif
