#include "cuda/time/now.h"

#define SPAN_NS 1000000u
#define LEAST_NS 200000u /* least time between two readings from which the scale is computed */
#define MOST_NS 1000000000u

uint64_t now_set_right(struct notes *notes, uint64_t ticks) {
    uint64_t ns = now_ns(), passed = ns - notes->ns, counted = ticks - notes->ticks;
    if (notes->ns == 0 || passed > MOST_NS) {
        notes->span = 0;
    } else if (passed < LEAST_NS) {
        return ns; /* too soon for a new scale */
    } else if (counted < (uint64_t)1 << 40 && counted > passed >> 8) {
        uint64_t scale = (passed << 24) / counted, span = counted * SPAN_NS / passed;
        notes->scale = scale < UINT32_MAX ? (uint32_t)scale : 0;
        notes->span = notes->scale != 0 && span < UINT32_MAX ? (uint32_t)span : 0;
    } else {
        notes->span = 0;
    }
    notes->ticks = ticks;
    notes->ns = ns;
    return ns;
}
