/* Records of copies: of one row, and with a shape. */
#include "remote/worker/copies.h"

#include <string.h>

/* One row. */
enum remote_outcome remote_hand_cuMemcpyAsync(struct remote_decoder *decoder) {
    struct remote_copy copy = {0};
    struct remote_end to, from;

    if (!remote_words(decoder, REMOTE_ROW_WORDS)) {
        return REMOTE_GARBLED;
    }
    remote_end_read(decoder, REMOTE_COPY_TO, &to);
    remote_end_read(decoder, REMOTE_COPY_FROM, &from);
    copy.stream = (CUstream)remote_handle(decoder, REMOTE_COPY_STREAM, REMOTE_KIND_CUstream);
    uint64_t bytes = decoder->words[REMOTE_COPY_SIZE];
    copy.shape = (CUDA_MEMCPY3D_PEER){.WidthInBytes = bytes, .Height = 1, .Depth = 1};
    remote_copy_ends(&copy.shape, &to, &from);
    copy.shape.dstXInBytes = to.place == REMOTE_PLACE_ARRAY ? to.offset : 0;
    copy.shape.srcXInBytes = from.place == REMOTE_PLACE_ARRAY ? from.offset : 0;
    return remote_copy_give(decoder, &copy, &to, bytes, &from, bytes);
}

/* From the first byte to the last; false where that is more than there can be. */
static bool extent_of(const CUDA_MEMCPY3D_PEER *shape, uint64_t pitch, uint64_t height,
                      uint64_t *extent) {
    uint64_t slice, slices, rows;

    *extent = 0;
    if (!shape->WidthInBytes || !shape->Height || !shape->Depth) {
        return true;
    }
    pitch = pitch ? pitch : shape->WidthInBytes;
    /* How far it is to the next slice matters only where there is one. */
    if (__builtin_mul_overflow(pitch, height ? height : shape->Height, &slice)) {
        slice = UINT64_MAX;
    }
    return !__builtin_mul_overflow(slice, shape->Depth - 1, &slices) &&
           !__builtin_mul_overflow(pitch, shape->Height - 1, &rows) &&
           !__builtin_add_overflow(slices, rows, extent) &&
           !__builtin_add_overflow(*extent, shape->WidthInBytes, extent);
}

/* Of memory that both sides see the client knows how far the copy reaches. Of memory that is none the driver says itself what
 * it thinks of the shape. */
static bool is_ours(const struct remote_end *end) {
    return end->place == REMOTE_PLACE_AREA || end->place == REMOTE_PLACE_REGION;
}

static enum remote_outcome decode(struct remote_decoder *decoder) {
    struct remote_copy copy = {0};
    struct remote_end to, from;
    uint64_t to_extent = 0, from_extent = 0;

    if (!remote_words(decoder, REMOTE_SHAPE_WORDS)) {
        return REMOTE_GARBLED;
    }
    remote_end_read(decoder, REMOTE_COPY_TO, &to);
    remote_end_read(decoder, REMOTE_COPY_FROM, &from);
    copy.stream = (CUstream)remote_handle(decoder, REMOTE_COPY_STREAM, REMOTE_KIND_CUstream);
    uint64_t to_context = remote_handle(decoder, REMOTE_COPY_TO_CONTEXT, REMOTE_KIND_CUcontext);
    uint64_t from_context = remote_handle(decoder, REMOTE_COPY_FROM_CONTEXT, REMOTE_KIND_CUcontext);
    const void *shape = remote_in(decoder, 0, 1, sizeof copy.shape);
    if (!shape) {
        return REMOTE_GARBLED;
    }
    memcpy(&copy.shape, shape, sizeof copy.shape);
    remote_copy_ends(&copy.shape, &to, &from);
    copy.shape.dstContext = (CUcontext)to_context;
    copy.shape.srcContext = (CUcontext)from_context;
    /* A copy in two dimensions knows no height of a slice, and one slice alone. */
    if (decoder->head.call == REMOTE_cuMemcpy2DAsync_v2) {
        copy.shape.Depth = 1;
    }
    if (!extent_of(&copy.shape, copy.shape.dstPitch, copy.shape.dstHeight, &to_extent) &&
        is_ours(&to)) {
        return REMOTE_GARBLED;
    }
    if (!extent_of(&copy.shape, copy.shape.srcPitch, copy.shape.srcHeight, &from_extent) &&
        is_ours(&from)) {
        return REMOTE_GARBLED;
    }
    return remote_copy_give(decoder, &copy, &to, to_extent, &from, from_extent);
}

enum remote_outcome remote_hand_cuMemcpy2DAsync_v2(struct remote_decoder *decoder) {
    return decode(decoder);
}

enum remote_outcome remote_hand_cuMemcpy3DAsync_v2(struct remote_decoder *decoder) {
    return decode(decoder);
}

enum remote_outcome remote_hand_cuMemcpy3DPeerAsync(struct remote_decoder *decoder) {
    return decode(decoder);
}
