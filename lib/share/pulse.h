/* Pulses, by which an online share tells the shares that give way to it that it has work.
 *
 * A share with the flag DV_PAGE_BUDGET_BEAT writes into pulse.<dev> of its own directory until when
 * it has work. The agent links that file into the directories of its neighbours as beat.<dev>.<k>.
 * A neighbour with the flag DV_PAGE_BUDGET_YIELD launches nothing while one of these files tells of
 * work.
 *
 * Threads and errno: as in time.h, everywhere.
 */
#ifndef DIVVY_SHARE_PULSE_H
#define DIVVY_SHARE_PULSE_H

#include "share/share.h"

#define DV_PULSE_AHEAD_NS 1000000000u /* furthest that a pulse can be in the future */
#define DV_PULSE_FRESH_NS 50000u      /* an answer is used again up to this age */

/* Says that this process has, or soon will have, work on device dev until then (CLOCK_MONOTONIC ns,
 * at most DV_PULSE_AHEAD_NS from now). Never shortens what was said before. Does nothing if no
 * worker is to be had or the page cannot be mapped, which is tried again after 100 ms. Takes a few
 * nanoseconds, except in the first call. */
void dv_pulse_until(dv_share *share, unsigned dev, uint64_t now, uint64_t until);

/* Says that this process has no work on device dev. */
void dv_pulse_clear(dv_share *share, unsigned dev);

/* Until when (CLOCK_MONOTONIC ns) some neighbour that the share gives way to has work on device
 * dev; 0 if none has now. At most DV_PULSE_AHEAD_NS from now, whatever the neighbour wrote, and at
 * most DV_PULSE_FRESH_NS old. A page that is missing, truncated or damaged tells of no work. */
uint64_t dv_pulse_beating(dv_share *share, unsigned dev, uint64_t now);

#endif
