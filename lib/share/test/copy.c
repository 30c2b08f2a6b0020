/* One copy of the library, to be loaded twice into one process. */
#include "share/test/copy.h"

#include "share/state.h"

static dv_share *share;

__attribute__((visibility("default"))) int copy_charge(const char *dir, uint64_t bytes) {
    if (share == NULL && dv_share_open(dir, &share, NULL) != DV_OK) {
        return -1;
    }
    if (dv_reserve(share, 0, bytes) != DV_OK) {
        return -1;
    }
    dv_settle(share, 0, bytes, bytes);
    return own_slot(share);
}
