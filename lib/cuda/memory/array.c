#include "cuda/memory/array.h"

#include "cuda/memory/blocks.h"

/* Block-linear memory consists of pieces of 64 bytes by 8 rows (NVIDIA's open GPU
   documentation). */
#define PIECE_BYTES 64u
#define PIECE_ROWS 8u

/* Bytes of one texel times 16, because block-compressed formats have half bytes. A format that is
 * not listed counts as four bytes a channel, the most that any format has. */
static unsigned texel_sixteenths(unsigned format, unsigned channels) {
    if (format >= 0x91 && format <= 0x9e) {
        /* 4x4 texels in 8 bytes (BC1, BC4) or 16. */
        return format <= 0x92 || format == 0x97 || format == 0x98 ? 8 : 16;
    }
    switch (format) {
    case CU_AD_FORMAT_UNSIGNED_INT8:
    case CU_AD_FORMAT_SIGNED_INT8:
        return 16 * channels;
    case CU_AD_FORMAT_UNSIGNED_INT16:
    case CU_AD_FORMAT_SIGNED_INT16:
    case CU_AD_FORMAT_HALF:
        return 32 * channels;
    default:
        return 64 * channels;
    }
}

static size_t at_least_one(size_t n) {
    return n > 0 ? n : 1;
}

/* Product and sum that become UINT64_MAX instead of overflowing. */
static uint64_t times(uint64_t a, uint64_t b) {
    uint64_t product;
    return __builtin_mul_overflow(a, b, &product) ? UINT64_MAX : product;
}

static uint64_t plus(uint64_t a, uint64_t b) {
    return a > UINT64_MAX - b ? UINT64_MAX : a + b;
}

static uint64_t round_up(uint64_t n, uint64_t unit) {
    return n > UINT64_MAX - unit ? UINT64_MAX : (n + unit - 1) / unit * unit;
}

/* One level; a one-dimensional array has no rows to pad. */
static uint64_t level_bytes(size_t width, size_t height, size_t depth, unsigned sixteenths) {
    uint64_t row = times(width, sixteenths);
    uint64_t rows = height > 0 ? round_up(height, PIECE_ROWS) : 1;
    row = row == UINT64_MAX ? row : round_up(round_up(row, 16) / 16, PIECE_BYTES);
    return times(times(row, rows), depth);
}

uint64_t array_bytes(const CUDA_ARRAY3D_DESCRIPTOR *what, unsigned levels) {
    unsigned sixteenths = texel_sixteenths(what->Format, what->NumChannels);
    bool layered = what->Flags & (CUDA_ARRAY3D_LAYERED | CUDA_ARRAY3D_CUBEMAP);
    size_t width = what->Width, height = what->Height, depth = at_least_one(what->Depth);
    uint64_t bytes = 0;
    if (what->Flags & (CUDA_ARRAY3D_SPARSE | CUDA_ARRAY3D_DEFERRED_MAPPING)) {
        return 0;
    }
    for (unsigned level = 0; level < levels && level < 64; level++) {
        bytes = plus(bytes, level_bytes(width, height, depth, sixteenths));
        width = at_least_one(width / 2);
        height = height > 0 ? at_least_one(height / 2) : 0;
        depth = layered ? depth : at_least_one(depth / 2);
    }
    return blocks_worst(bytes);
}
