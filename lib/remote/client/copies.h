/* What the client's files about copies share: where a side of a copy is, its shape, and the chunks of the area through
 * which memory of the program goes that the worker does not see. */
#ifndef DIVVY_REMOTE_CLIENT_COPIES_H
#define DIVVY_REMOTE_CLIENT_COPIES_H

#include "remote/client/client.h"
#include "remote/generated/cuda_stubs.h"
#include "remote/places.h"

/* ---- copies_side.c ---- */

/* One side of a copy. */
struct remote_side {
    enum remote_place place; /* AREA: `host` is memory that the worker does not see */
    uint64_t value, offset;  /* as places.h has them */
    unsigned char *host;     /* of the program: the first byte that is copied; NULL for none */
    bool known;              /* memory of a device which the client knows to reach far enough */
};

/* Where so many bytes are, by a parameter that is an address of the host, of a device, or of either. */
struct remote_side remote_side_host(const void *at, uint64_t extent);
struct remote_side remote_side_device(CUdeviceptr at, uint64_t extent);
struct remote_side remote_side_unified(CUdeviceptr at, uint64_t extent);
struct remote_side remote_side_array(CUarray array, uint64_t offset);
/* Whether the program can read all of it. */
bool remote_side_is_there(const unsigned char *at, uint64_t extent);

/* ---- copies_pieces.c ---- */

/* A copy that a record can tell, if memory that the worker does not see is cut into pieces. */
struct remote_copying {
    enum remote_number call; /* one of those that places.h names */
    bool
        waits; /* until the copy is done, where memory of the host takes part that it can be read from */
    struct remote_side to, from;
    CUDA_MEMCPY3D_PEER shape; /* of one row: WidthInBytes, Height and Depth alone */
    size_t pitch, slice; /* of the side that is memory of the program; the first, if both are */
    size_t other_pitch, other_slice; /* of the second then */
    uint64_t extent;                 /* of the same: from its first byte to its last */
    CUstream stream;
};
CUresult remote_copy(struct remote_copying *copy);

/* ---- copies_land.c ---- */

/* Notes a copy that is one piece, to memory of the program, and takes a chunk for it. False if it has to be waited for. */
bool remote_landing_note(const struct remote_copying *copy, uint64_t *chunk);
/* Posts its record. */
CUresult remote_landing_post(struct remote_call *call, uint64_t chunk);
/* Waits until the bytes have come that are due in this memory: before the client reads it. */
void remote_landings_wait_for(const unsigned char *at, uint64_t size);
/* No byte is written to this memory any more, which is about to end. */
void remote_landings_drop(const unsigned char *at, uint64_t size);

/* ---- copies_shape.c ---- */

/* Where rows and slices begin, and how far they reach. False where that is more than there can be. */
bool remote_shape_extent(const CUDA_MEMCPY3D_PEER *shape, size_t pitch, size_t slice,
                         uint64_t *extent);
/* Finds where the sides of a copy with a shape are, and copies. */
CUresult remote_copy_shaped(enum remote_number call, CUDA_MEMCPY3D_PEER *shape, CUstream stream,
                            bool waits);

/* ---- bulk.c: the area ---- */

/* Finds the area; a context has to be current. */
CUresult remote_area_begin(void);
/* Whether copies have to be waited for, because the worker's driver does not know the area. */
bool remote_area_waits(void);
/* Where the client sees the area; NULL where only records fill it. */
unsigned char *remote_area_seen(void);
/* Takes a chunk for so many bytes, no more than REMOTE_CHUNK_BYTES. Where there is none: waits if it is told to, while the
 * link lives. False if there is none. */
bool remote_chunk_take(size_t bytes, bool wait, uint64_t *offset);
/* Asks which chunks are free; false when the link has ended. */
bool remote_chunks_ask(bool *any);
/* Gives a chunk back that no copy uses. */
void remote_chunk_give(uint64_t offset);
/* A record that names the chunk is about to be sent: the worker tells when the chunk is free again. */
void remote_chunk_sent(uint64_t offset);
/* It was not. */
void remote_chunk_unsent(uint64_t offset);
/* One chunk more, or less, is given back by whoever takes answers: then it is worth it to ask. */
void remote_chunk_lands(bool begins);
/* Puts bytes into a chunk which the client does not see. */
CUresult remote_chunk_write(uint64_t offset, const void *bytes, size_t size);

/* Posts a record with this piece behind its words, which may be longer than arrays are. */
CUresult remote_post_piece(struct remote_call *call, const void *bytes, size_t size);

/* ---- copies.c ---- */

/* One row between unified addresses, in stream order. */
CUresult remote_copy_row(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream);

#endif
