/* How large blocks of a kernel had best be, where no function of the program has to be asked. */
#include "remote/occupancy.h"

#include "remote/worker/hand.h"

/* What the record asks; both results NULL where the program gave no room. */
struct asked {
    int *grid;
    int *block;
    CUfunction function;
    size_t shared;
    int limit;
    unsigned flags;
};

static enum remote_outcome decode(struct remote_decoder *decoder, bool has_function,
                                  CUresult (*call)(const struct remote_cuda_driver *cuda,
                                                   const struct asked *a)) {
    int grid = 0, block = 0;

    if (!remote_words(decoder, OCCUPANCY_WORDS)) {
        return REMOTE_GARBLED;
    }
    const struct asked asked = {
        .grid = remote_is_given(decoder, 0) ? &grid : NULL,
        .block = remote_is_given(decoder, 1) ? &block : NULL,
        .function = (CUfunction)remote_handle(decoder, OCCUPANCY_FUNCTION, REMOTE_KIND_CUfunction),
        .shared = decoder->words[OCCUPANCY_SHARED],
        .limit = (int)(uint32_t)decoder->words[OCCUPANCY_LIMIT],
        .flags = (unsigned)decoder->words[OCCUPANCY_FLAGS],
    };
    if (!remote_taken(decoder, has_function)) {
        return remote_not_called(decoder);
    }
    remote_answer(decoder, (int32_t)call(decoder->cuda, &asked));
    remote_give(decoder, 0, &grid, sizeof grid, false);
    remote_give(decoder, 1, &block, sizeof block, false);
    return remote_finish(decoder);
}

#define BLOCKS(name, ...)                                                                          \
    static CUresult call_##name(const struct remote_cuda_driver *cuda, const struct asked *a) {    \
        return cuda->name(a->grid, a->block, a->function, NULL, a->shared, a->limit __VA_ARGS__);  \
    }                                                                                              \
    enum remote_outcome remote_hand_##name(struct remote_decoder *decoder) {                       \
        return decode(decoder, decoder->cuda->name != NULL, call_##name);                          \
    }

BLOCKS(cuOccupancyMaxPotentialBlockSize, )
BLOCKS(cuOccupancyMaxPotentialBlockSizeWithFlags, , a->flags)
