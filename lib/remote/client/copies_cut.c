#include "remote/client/copies_cut.h"

/* Of a side, as much as there is room for; none is empty. */
static size_t within(size_t side, size_t room) {
    size_t some = side < room ? side : room;
    return some > 0 ? some : 1;
}

static size_t parts(size_t whole, size_t part) {
    return (whole - 1) / part + 1;
}

bool cut_of(const CUDA_MEMCPY3D_PEER *shape, struct cut *cut) {
    cut->width = within(shape->WidthInBytes, REMOTE_CHUNK_BYTES);
    cut->height = cut->width < shape->WidthInBytes
                      ? 1
                      : within(shape->Height, REMOTE_CHUNK_BYTES / cut->width);
    cut->depth = cut->height < shape->Height
                     ? 1
                     : within(shape->Depth, REMOTE_CHUNK_BYTES / (cut->width * cut->height));
    cut->columns = parts(shape->WidthInBytes, cut->width);
    cut->rows = parts(shape->Height, cut->height);
    cut->slices = parts(shape->Depth, cut->depth);
    return !__builtin_mul_overflow(cut->columns, cut->rows, &cut->count) &&
           !__builtin_mul_overflow(cut->count, cut->slices, &cut->count);
}

struct piece cut_piece(const CUDA_MEMCPY3D_PEER *shape, const struct cut *cut, uint64_t i) {
    struct piece piece = {.x = i % cut->columns * cut->width,
                          .y = i / cut->columns % cut->rows * cut->height,
                          .z = i / cut->columns / cut->rows * cut->depth};

    piece.width = within(cut->width, shape->WidthInBytes - piece.x);
    piece.height = within(cut->height, shape->Height - piece.y);
    piece.depth = within(cut->depth, shape->Depth - piece.z);
    return piece;
}

size_t cut_piece_size(const struct piece *piece) {
    return piece->width * piece->height * piece->depth;
}
