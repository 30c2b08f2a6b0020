/* How a copy is cut into pieces of no more than a chunk, in which the rows stand without gaps. */
#ifndef DIVVY_REMOTE_CLIENT_COPIES_CUT_H
#define DIVVY_REMOTE_CLIENT_COPIES_CUT_H

#include "remote/client/copies.h"

struct piece {
    size_t x, y, z, width, height, depth;
};

/* How a copy is cut: parts of rows, or rows of a slice, or slices. */
struct cut {
    size_t width, height, depth;  /* of a piece, at most */
    size_t columns, rows, slices; /* pieces */
    uint64_t count;
};

/* False where there are more pieces than anybody can have memory for. */
bool cut_of(const CUDA_MEMCPY3D_PEER *shape, struct cut *cut);
struct piece cut_piece(const CUDA_MEMCPY3D_PEER *shape, const struct cut *cut, uint64_t i);
/* Bytes. */
size_t cut_piece_size(const struct piece *piece);

#endif
