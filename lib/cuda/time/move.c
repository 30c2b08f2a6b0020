#include "cuda/time/move.h"

#include "cuda/time/now.h"
#include "share/residence.h"

#define CHUNK ((uint64_t)2 << 20)         /* the driver's unit of eviction */
#define PIECE_BYTES ((uint64_t)128 << 20) /* about 10 ms at the rate of a link */
#define PIECE_PARTS 1024u                 /* small allocations in a piece */

void move_begin(struct move *move, dv_share *share, unsigned number, enum move_way direction,
                uint64_t bytes, uint64_t since) {
    *move = (struct move){.share = share,
                          .number = number,
                          .direction = direction,
                          .rest = bytes,
                          .since = since,
                          .ended = ways_ended(),
                          .began = now_ns()};
    move->last = move->began;
    uint64_t there = direction == MOVE_IN ? swapped_there(number) : 0;
    if (there > 0) {
        move->rest = bytes > there ? bytes - there : 0;
        move->doubted = bytes;
    }
    if (bytes == 0 ||
        !swapped_list(&move->list, number,
                      direction == MOVE_OUT ? SWAPPED_OLDEST_FIRST : SWAPPED_NEWEST_FIRST)) {
        move->rest = move->doubted = 0;
    }
}

/* A part of an allocation that is to be moved. */
struct part {
    uint64_t address, bytes;
};

/* The next part of one allocation, `most` bytes or a chunk at most; none has 0 bytes. Notes it as
 * moved. */
static struct part take(const struct move *move, struct swapped *memory, uint64_t most) {
    struct part part = {.address = memory->address};
    uint64_t lacks = memory->bytes - memory->there;
    most = (most + CHUNK - 1) / CHUNK * CHUNK;
    bool out = move->direction == MOVE_OUT;
    if (!out && (memory->turn == 0 || memory->turn < move->since)) {
        return part;
    }
    if (out && move->again) {
        /* All of it at once: nobody knows which part is there. */
        part.bytes = memory->turn == 0 && memory->there == 0 ? memory->bytes : 0;
        memory->turn = 1;
    } else if (out || move->again) {
        part.address += lacks;
        part.bytes = memory->there < most ? memory->there : most;
        memory->there -= part.bytes;
    } else {
        part.bytes = lacks < most ? lacks : most;
        part.address += lacks - part.bytes;
        memory->there += part.bytes;
    }
    return part;
}

/* What is next; no bytes at the end. */
static struct part next(struct move *move, uint64_t most) {
    struct part part = {.bytes = 0};
    while (part.bytes == 0 && move->at < move->list.count) {
        struct swapped *memory = &move->list.at[move->at];
        part = take(move, memory, most);
        if (part.bytes == 0) {
            move->at++;
        }
    }
    if (part.bytes == 0 && move->direction == MOVE_OUT && !move->again) {
        move->again = true;
        move->at = 0;
        return next(move, most);
    }
    return part;
}

static CUresult prefetch(const struct way *way, const struct part *part, bool out) {
    if (DV_LACKS(cuMemPrefetchAsync_v2)) {
        return DV_CALL(cuMemPrefetchAsync, part->address, part->bytes,
                       out ? CU_DEVICE_CPU : way->device, way->stream);
    }
    CUmemLocation to = {.type = CU_MEM_LOCATION_TYPE_HOST};
    if (!out) {
        to = (CUmemLocation){.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = way->device};
    }
    return DV_CALL(cuMemPrefetchAsync_v2, part->address, part->bytes, to, 0, way->stream);
}

/* Whether the driver can be given more. */
static bool has_more(struct move *move) {
    if (move->rest == 0 && move->doubted > 0) {
        move->rest = move->doubted;
        move->doubted = 0;
        move->again = true;
        move->at = 0;
    }
    return move->rest > 0;
}

/* Gives the driver one part: adds its bytes, and to `moved` those that count. What the program has
 * freed meanwhile is not there any more. */
static void give(struct move *move, const struct way *way, uint64_t *bytes, uint64_t *moved) {
    bool out = move->direction == MOVE_OUT;
    uint64_t most = PIECE_BYTES - *bytes < move->rest ? PIECE_BYTES - *bytes : move->rest;
    struct part part = next(move, most);
    if (part.bytes == 0) {
        move->rest = 0;
        return;
    }
    move->rest -= part.bytes < move->rest ? part.bytes : move->rest;
    const struct swapped *memory = &move->list.at[move->at];
    if (prefetch(way, &part, out) != CUDA_SUCCESS) {
        return;
    }
    *bytes += out && move->again ? 0 : part.bytes;
    if (!move->again) {
        *moved += part.bytes;
        swapped_moved(memory->address, memory->there);
    }
}

/* Gives the driver a piece, and marks its end. */
static bool give_piece(struct move *move, const struct way *way) {
    unsigned place = (move->first + move->count) % WAY_MARKS;
    uint64_t bytes = 0, moved = 0;
    for (unsigned i = 0; i < PIECE_PARTS && bytes < PIECE_BYTES && has_more(move); i++) {
        give(move, way, &bytes, &moved);
    }
    if (DV_CALL(cuEventRecord, way->marks[place], way->stream) != CUDA_SUCCESS) {
        return false;
    }
    move->bytes[place] = moved;
    move->count++;
    return true;
}

/* Tells what has been moved since the last time: the agent measures the rate by it, and whether the
 * share is still waited for or moves. */
static void tell(struct move *move) {
    if (move->moved > 0) {
        bool out = move->direction == MOVE_OUT;
        dv_residence_moved(move->share, move->number, out ? 0 : move->moved, out ? move->moved : 0,
                           move->last - move->began);
        move->moved = 0;
        move->began = move->last;
    }
    dv_present_there(move->share, move->number, swapped_there(move->number));
}

/* Looks at the pieces that are under way. False if the driver has none of them any more. */
static bool look(struct move *move, const struct way *way) {
    while (move->count > 0) {
        CUresult result = DV_CALL(cuEventQuery, way->marks[move->first]);
        if (result != CUDA_SUCCESS) {
            return result == CUDA_ERROR_NOT_READY;
        }
        if (move->bytes[move->first] > 0) {
            move->moved += move->bytes[move->first];
            move->last = now_ns();
            tell(move);
        } else {
            move->began = now_ns();
        }
        move->first = (move->first + 1) % WAY_MARKS;
        move->count--;
    }
    return true;
}

bool move_go_on(struct move *move, bool stop) {
    if (stop) {
        move->rest = move->doubted = 0;
    }
    if (move->count == 0 && !has_more(move)) {
        return true;
    }
    struct way *way = way_enter(move->number);
    if (way == NULL) {
        return true;
    }
    bool goes = move->ended == ways_ended() && look(move, way);
    while (goes && has_more(move) && move->count < WAY_MARKS) {
        goes = give_piece(move, way);
    }
    way_leave(way);
    return !goes || (move->count == 0 && !has_more(move));
}

void move_end(struct move *move) {
    swapped_list_end(&move->list);
    tell(move);
}
