#include "remote/worker/hand.h"

#define REMOTE_HAND_hand(name) [REMOTE_##name - FIRST] = remote_hand_##name,
#define CUDA_BY_HAND(name, manner, subject) REMOTE_HAND_##manner(name)
#define NVML_BY_HAND(name, manner, subject) REMOTE_HAND_##manner(name)

#define FIRST 0
static remote_decode_one *const cuda[] = {
#include "remote/generated/cuda_by_hand.inc"
};
#undef FIRST

#define FIRST REMOTE_NVML
static remote_decode_one *const nvml[] = {
#include "remote/generated/nvml_by_hand.inc"
};
#undef FIRST

#define OWN(number, name) [REMOTE_##number - REMOTE_SNAPSHOT] = remote_hand_##name,
static remote_decode_one *const own[] = {REMOTE_OWN_CALLS(OWN)};

static remote_decode_one *at(remote_decode_one *const *table, size_t size, size_t place) {
    return place < size / sizeof *table ? table[place] : NULL;
}

remote_decode_one *remote_hand_decoder(uint16_t call) {
    if (call >= REMOTE_SNAPSHOT) {
        return at(own, sizeof own, call - REMOTE_SNAPSHOT);
    }
    if (call >= REMOTE_NVML) {
        return at(nvml, sizeof nvml, call - REMOTE_NVML);
    }
    return at(cuda, sizeof cuda, call);
}
