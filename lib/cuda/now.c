#include "cuda/now.h"

#define SPAN_NS 1000000u
#define LEAST_NS 200000u /* between two readings from which the scale is taken */
#define MOST_NS 1000000000u

_Thread_local struct now_guess now_guess;

uint64_t now_set_right(uint64_t ticks) {
    struct now_guess *guess = &now_guess;
    uint64_t ns = now_ns(), passed = ns - guess->ns, counted = ticks - guess->ticks;
    if (guess->ns == 0 || passed > MOST_NS) {
        guess->span = 0;
    } else if (passed < LEAST_NS) {
        return ns; /* the scale is not known yet, or the counter has jumped */
    } else if (counted < (uint64_t)1 << 40 && counted > passed >> 8) {
        uint64_t scale = (passed << 24) / counted, span = counted * SPAN_NS / passed;
        guess->scale = scale < UINT32_MAX ? (uint32_t)scale : 0;
        guess->span = guess->scale != 0 && span < UINT32_MAX ? (uint32_t)span : 0;
    } else {
        guess->span = 0;
    }
    guess->ticks = ticks;
    guess->ns = ns;
    return ns;
}
