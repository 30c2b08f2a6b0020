/* What records of copies say: where each side is, and when the copy is answered. Both sides of the wire read this. */
#ifndef DIVVY_REMOTE_PLACES_H
#define DIVVY_REMOTE_PLACES_H

#include "remote/record.h"

/* Where one side of a copy is. In a record it is three words: one of these, and two whose meaning follows. */
enum remote_place {
    REMOTE_PLACE_NONE,   /* NULL as memory of the host: the driver says what it thinks of that */
    REMOTE_PLACE_DEVICE, /* an address */
    REMOTE_PLACE_ARRAY,  /* a number; from which byte of its row on */
    REMOTE_PLACE_REGION, /* a number of memory that both sides see; from which byte on */
    REMOTE_PLACE_AREA, /* from which byte of the area on; its chunk is not used otherwise until it is told to be free */
};

/* When a copy is answered, and with what. Otherwise it is answered when the driver has taken it. */
enum remote_manner {
    REMOTE_COPY_DONE = 1,  /* when it is done; its chunk belongs to the client again then */
    REMOTE_COPY_BYTES = 2, /* and with the bytes that came to its chunk */
    REMOTE_COPY_BLOCKS =
        4, /* the program's call is one that blocks, which captures of streams forbid */
    REMOTE_COPY_LANDS = 8, /* not at all: the copy is posted, and its bytes come in a frame of their
                              own, REMOTE_LANDED, before any answer that is sent when it is done */
};

/* Copies whose bytes the worker has not sent yet, and blocks of the area that they may have: a quarter of it. */
#define REMOTE_MOST_LANDINGS 64u
#define REMOTE_MOST_LANDING_BLOCKS 128u

/* The words of a copy of one row, REMOTE_cuMemcpyAsync, and of one with a shape: REMOTE_cuMemcpy2DAsync_v2,
 * REMOTE_cuMemcpy3DAsync_v2 and REMOTE_cuMemcpy3DPeerAsync. The latter have a CUDA_MEMCPY3D_PEER as their piece, in
 * which memory of the host begins at the place, at 0 in each dimension. */
enum remote_copy_word {
    REMOTE_COPY_TO,
    REMOTE_COPY_FROM = 3,
    REMOTE_COPY_STREAM = 6,
    REMOTE_COPY_MANNER,
    REMOTE_COPY_SIZE,
    REMOTE_ROW_WORDS,
    REMOTE_COPY_TO_CONTEXT = 8,
    REMOTE_COPY_FROM_CONTEXT,
    REMOTE_SHAPE_WORDS,
};

/* The first word of REMOTE_REGION. The others are a number or an offset, a size, and flags. */
enum remote_region_call {
    REMOTE_AREA_OPEN, /* answers a struct remote_area_facts */
    REMOTE_AREA_WRITE, /* puts the bytes that follow to an offset, where both sides share no memory */
    REMOTE_AREA_FREED, /* answers which chunks have been used up, as numbers of their first blocks */
    REMOTE_REGION_ADD, /* takes the descriptor that was given under the number; answers the device's address */
    REMOTE_REGION_MOVE, /* maps it elsewhere, because the client cannot have it at that address: in place of a size the
                           one that is free in the client; answers the new one */
    REMOTE_REGION_END,
};
#define REMOTE_REGION_WORDS 4u

struct remote_area_facts {
    uint64_t size;
    uint64_t
        pinned; /* whether the driver knows it: otherwise each copy is answered when it is done */
};

/* The area is handed out in blocks. A chunk is a number of them, and with its head fits into a record. */
#define REMOTE_BLOCK_BYTES (1u << 16)
#define REMOTE_CHUNK_BLOCKS 15u
#define REMOTE_CHUNK_BYTES (REMOTE_CHUNK_BLOCKS * REMOTE_BLOCK_BYTES)
#define REMOTE_MOST_BLOCKS 1024u

/* Regions are numbered from 1. */
#define REMOTE_MOST_REGIONS 32768u

/* Bytes beside the stream: the words are their number, how many they are in all, and from which one on they follow. */
#define REMOTE_BULK_WORDS 3u
#define REMOTE_BULK_BYTES (1u << 19) /* in one record */
#define REMOTE_MOST_BULK (UINT64_C(1) << 30)

_Static_assert(REMOTE_CHUNK_BYTES + 4096 <= REMOTE_RECORD_BYTES, "a chunk fits into a record");

#endif
