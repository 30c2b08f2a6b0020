/* A copy as records. Memory of the program that the worker does not see is copied in pieces of no more than a chunk, in
 * which the rows stand without gaps.
 *
 * The last piece goes first, and is waited for where the client cannot tell that the driver will take it: who takes the far
 * corner takes all the others, so that a copy which the driver refuses changes nothing. */
#include "remote/client/copies_cut.h"

#include <stdlib.h>
#include <string.h>

/* Copies a piece between the program's memory and a place without gaps. */
static void move(const struct remote_copying *copy, const struct piece *piece, unsigned char *host,
                 unsigned char *packed, bool in) {
    bool whole = piece->height == 1 || copy->pitch == piece->width;

    for (size_t z = 0; z < piece->depth; z++) {
        unsigned char *slice = host + (piece->z + z) * copy->slice;
        for (size_t y = 0; y < piece->height; y++) {
            unsigned char *row = slice + (piece->y + y) * copy->pitch + piece->x;
            size_t size = whole ? piece->width * piece->height : piece->width;

            memcpy(in ? packed : row, in ? row : packed, size);
            packed += size;
            if (whole) {
                break;
            }
        }
    }
}

static void write_side(struct remote_call *call, unsigned word, const struct remote_side *side) {
    call->words[word] = side->place;
    call->words[word + 1] = side->value;
    call->words[word + 2] = side->offset;
    if (side->place == REMOTE_PLACE_ARRAY) {
        remote_use(call, word + 1, REMOTE_KIND_CUarray, side->value);
    }
}

static bool is_host(const struct remote_side *side) {
    return side->place != REMOTE_PLACE_DEVICE && side->place != REMOTE_PLACE_ARRAY;
}

/* Writes a copy, or a piece of it, as a record. The structure has to outlive the record. */
static void write_record(struct remote_call *call, const struct remote_copying *copy,
                         const struct piece *piece, uint64_t chunk, uint64_t manner,
                         CUDA_MEMCPY3D_PEER *shape) {
    struct remote_side to = copy->to, from = copy->from;
    bool row = copy->call == REMOTE_cuMemcpyAsync;

    *shape = copy->shape;
    if (piece) {
        struct remote_side *host = is_host(&to) ? &to : &from, *other = host == &to ? &from : &to;

        host->offset = chunk;
        *(other->place == REMOTE_PLACE_ARRAY ? &other->offset : &other->value) +=
            row ? piece->x : 0;
        shape->WidthInBytes = piece->width;
        shape->Height = piece->height;
        shape->Depth = piece->depth;
        *(host == &to ? &shape->dstPitch : &shape->srcPitch) = piece->width;
        *(host == &to ? &shape->dstHeight : &shape->srcHeight) = piece->height;
        *(host == &to ? &shape->srcXInBytes : &shape->dstXInBytes) += piece->x;
        *(host == &to ? &shape->srcY : &shape->dstY) += piece->y;
        *(host == &to ? &shape->srcZ : &shape->dstZ) += piece->z;
    }
    remote_begin(call, copy->call, row ? (unsigned)REMOTE_ROW_WORDS : (unsigned)REMOTE_SHAPE_WORDS);
    write_side(call, REMOTE_COPY_TO, &to);
    write_side(call, REMOTE_COPY_FROM, &from);
    remote_use(call, REMOTE_COPY_STREAM, REMOTE_KIND_CUstream, (uint64_t)(uintptr_t)copy->stream);
    call->words[REMOTE_COPY_MANNER] = manner | (copy->waits ? REMOTE_COPY_BLOCKS : 0);
    if (row) {
        call->words[REMOTE_COPY_SIZE] = shape->WidthInBytes;
        return;
    }
    remote_use(call, REMOTE_COPY_TO_CONTEXT, REMOTE_KIND_CUcontext,
               (uint64_t)(uintptr_t)shape->dstContext);
    remote_use(call, REMOTE_COPY_FROM_CONTEXT, REMOTE_KIND_CUcontext,
               (uint64_t)(uintptr_t)shape->srcContext);
    /* No address of the program leaves it. */
    shape->dstHost = NULL;
    shape->srcHost = NULL;
    shape->dstArray = shape->srcArray = NULL;
    shape->dstContext = shape->srcContext = NULL;
    shape->dstDevice = shape->srcDevice = 0;
    remote_array(call, 0, shape, 1, sizeof *shape);
}

/* Whether the worker did what it was asked: a late error that the answer tells is of another call. */
static CUresult ask(struct remote_call *call, bool *taken) {
    struct remote_reply reply;

    remote_ask(call, &reply);
    *taken = !call->fault && !reply.garbled && reply.head.result == 0;
    return (CUresult)remote_end(call, &reply);
}

static CUresult lost(const struct remote_copying *copy) {
    int32_t gate = remote_gate(copy->call);

    return gate ? (CUresult)gate : CUDA_ERROR_DEVICE_UNAVAILABLE;
}

/* One record for all. A copy that the worker alone can judge, or that has nothing to do, is waited for. */
static CUresult whole(const struct remote_copying *copy) {
    bool shares = copy->to.place == REMOTE_PLACE_REGION || copy->from.place == REMOTE_PLACE_REGION;
    bool is_known = (copy->to.known || copy->to.place == REMOTE_PLACE_REGION) &&
                    (copy->from.known || copy->from.place == REMOTE_PLACE_REGION);
    CUDA_MEMCPY3D_PEER shape;
    struct remote_call call;
    bool taken;

    write_record(&call, copy, NULL, 0, copy->waits && shares ? REMOTE_COPY_DONE : 0, &shape);
    return is_known && !copy->waits ? (CUresult)remote_post(&call) : ask(&call, &taken);
}

/* The driver is asked what it says to a side that is not there. */
static CUresult nowhere(const struct remote_copying *copy, bool to) {
    struct remote_copying other = *copy;

    *(to ? &other.to : &other.from) = (struct remote_side){.place = REMOTE_PLACE_NONE};
    return whole(&other);
}

static CUresult fill(const struct remote_copying *copy, const struct piece *piece, uint64_t chunk) {
    unsigned char *seen = remote_area_seen();
    size_t size = cut_piece_size(piece);

    if (seen) {
        move(copy, piece, copy->from.host, seen + chunk, true);
        return CUDA_SUCCESS;
    }
    if (size == piece->width || copy->pitch == piece->width) {
        /* Without gaps already, as long as it is one slice. */
        if (piece->depth == 1) {
            return remote_chunk_write(
                chunk, copy->from.host + piece->z * copy->slice + piece->y * copy->pitch + piece->x,
                size);
        }
    }
    unsigned char *packed = malloc(size);
    if (!packed) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    move(copy, piece, copy->from.host, packed, true);
    CUresult result = remote_chunk_write(chunk, packed, size);
    free(packed);
    return result;
}

/* Whether the worker has taken the piece, or will tell of it late. */
static bool send_piece(const struct remote_copying *copy, const struct piece *piece, bool asks,
                       CUresult *result) {
    bool waits = remote_area_waits(), taken = true;
    CUDA_MEMCPY3D_PEER shape;
    struct remote_call call;
    uint64_t chunk;

    if (!remote_chunk_take(cut_piece_size(piece), true, &chunk)) {
        *result = lost(copy);
        return false;
    }
    write_record(&call, copy, piece, chunk, waits ? REMOTE_COPY_DONE : 0, &shape);
    *result = call.fault ? (CUresult)call.fault : fill(copy, piece, chunk);
    if (*result != CUDA_SUCCESS || waits) {
        taken = *result == CUDA_SUCCESS;
        *result = taken ? ask(&call, &taken) : *result;
        remote_chunk_give(chunk);
        return taken;
    }
    remote_chunk_sent(chunk);
    if (asks || remote_strict()) {
        *result = ask(&call, &taken);
    } else {
        *result = (CUresult)remote_post(&call);
        taken = *result == CUDA_SUCCESS;
    }
    if (!taken) {
        remote_chunk_unsent(chunk);
    }
    return taken;
}

static CUresult upload(const struct remote_copying *copy, const struct cut *cut) {
    bool asks = !copy->to.known || cut->count > 1, taken = true;
    CUresult result = CUDA_SUCCESS, one;

    if (!copy->to.known && !remote_side_is_there(copy->from.host, copy->extent)) {
        return nowhere(copy, false);
    }
    remote_landings_wait_for(copy->from.host, copy->extent);
    for (uint64_t i = 0; taken && i < cut->count; i++) {
        struct piece piece = cut_piece(&copy->shape, cut, (i ? i : cut->count) - 1);

        taken = send_piece(copy, &piece, asks && i == 0, &one);
        result = result == CUDA_SUCCESS ? one : result;
    }
    return result;
}

/* Pieces on their way to the program, the oldest first. */
struct flight {
    uint64_t begun, ended;
    bool failed; /* no more are sent, and none is written to the program's memory */
    CUresult result;
    struct {
        uint64_t sequence, chunk;
        struct piece piece;
    } list[REMOTE_MOST_UNANSWERED];
};

static bool send_next(const struct remote_copying *copy, const struct cut *cut,
                      struct flight *flight) {
    uint64_t i = flight->begun, slot = i % REMOTE_MOST_UNANSWERED, chunk;
    struct piece piece = cut_piece(&copy->shape, cut, (i ? i : cut->count) - 1);
    CUDA_MEMCPY3D_PEER shape;
    struct remote_call call;

    /* Chunks of our own come back if we wait for their answers, not here. */
    if (!remote_chunk_take(cut_piece_size(&piece), flight->begun == flight->ended, &chunk)) {
        if (flight->begun == flight->ended) {
            flight->failed = true;
            flight->result = lost(copy);
        }
        return false;
    }
    write_record(&call, copy, &piece, chunk,
                 REMOTE_COPY_DONE | (remote_area_seen() ? 0 : REMOTE_COPY_BYTES), &shape);
    call.pieces[0] = (struct remote_piece){call.words, 8u * call.word_count};
    uint64_t sequence = call.fault ? 0 : remote_send(&call.head, call.pieces, call.piece_count);
    if (!sequence) {
        remote_chunk_give(chunk);
        flight->failed = true;
        flight->result = call.fault ? (CUresult)call.fault : lost(copy);
        return false;
    }
    flight->list[slot].sequence = sequence;
    flight->list[slot].chunk = chunk;
    flight->list[slot].piece = piece;
    flight->begun++;
    return true;
}

static void fail(struct flight *flight, CUresult result) {
    flight->failed = true;
    flight->result = flight->result == CUDA_SUCCESS ? result : flight->result;
}

static void take_next(const struct remote_copying *copy, struct flight *flight) {
    uint64_t slot = flight->ended++ % REMOTE_MOST_UNANSWERED;
    const struct piece *piece = &flight->list[slot].piece;
    unsigned char *seen = remote_area_seen();
    struct remote_reply reply = {0};

    if (!remote_wait(flight->list[slot].sequence, &reply)) {
        fail(flight, lost(copy));
    } else if (reply.head.result != 0) {
        fail(flight, (CUresult)remote_late(reply.head.call, reply.head.result, reply.head.late));
    } else if (reply.size != (seen ? 0 : remote_padded(cut_piece_size(piece)))) {
        fail(flight, CUDA_ERROR_DEVICE_UNAVAILABLE);
    } else if (!flight->failed) {
        move(copy, piece, copy->to.host,
             seen ? seen + flight->list[slot].chunk : (unsigned char *)(uintptr_t)reply.body,
             false);
        CUresult late = (CUresult)remote_late(reply.head.call, 0, reply.head.late);
        flight->result = flight->result == CUDA_SUCCESS ? late : flight->result;
    }
    remote_chunk_give(flight->list[slot].chunk);
}

/* Posts a copy of one piece, if its bytes may come later. */
static bool land(const struct remote_copying *copy, const struct cut *cut, CUresult *result) {
    const struct piece piece = cut_piece(&copy->shape, cut, 0);
    CUDA_MEMCPY3D_PEER shape;
    struct remote_call call;
    uint64_t chunk;

    if (cut->count > 1 || !remote_landing_note(copy, &chunk)) {
        return false;
    }
    write_record(&call, copy, &piece, chunk, REMOTE_COPY_BYTES | REMOTE_COPY_LANDS, &shape);
    *result = remote_landing_post(&call, chunk);
    return true;
}

static CUresult download(const struct remote_copying *copy, const struct cut *cut) {
    struct flight flight = {.result = CUDA_SUCCESS};

    if (!copy->from.known && !remote_side_is_there(copy->to.host, copy->extent)) {
        return nowhere(copy, true);
    }
    if (land(copy, cut, &flight.result)) {
        return flight.result;
    }
    while (flight.ended < flight.begun || (!flight.failed && flight.begun < cut->count)) {
        /* The first, which is the far corner, is heard before any other is written. */
        while (!flight.failed && flight.begun < cut->count &&
               flight.begun - flight.ended < REMOTE_MOST_UNANSWERED &&
               send_next(copy, cut, &flight)) {
        }
        if (flight.ended < flight.begun) {
            take_next(copy, &flight);
        }
    }
    return flight.result;
}

/* Between memory of the program: it is done here, when the stream has come so far. The driver is asked what it says to all
 * but the memory. */
static CUresult within(const struct remote_copying *copy) {
    const CUDA_MEMCPY3D_PEER *s = &copy->shape;
    struct remote_copying nothing = *copy;

    nothing.to = nothing.from = (struct remote_side){.place = REMOTE_PLACE_NONE};
    nothing.shape.WidthInBytes = 0;
    CUresult result = whole(&nothing);
    result = result == CUDA_SUCCESS ? REMOTE_STUB(cuStreamSynchronize)(copy->stream) : result;

    for (size_t z = 0; result == CUDA_SUCCESS && z < s->Depth; z++) {
        for (size_t y = 0; y < s->Height; y++) {
            memmove(copy->to.host + z * copy->slice + y * copy->pitch,
                    copy->from.host + z * copy->other_slice + y * copy->other_pitch,
                    s->WidthInBytes);
        }
    }
    return result;
}

CUresult remote_copy(struct remote_copying *copy) {
    const CUDA_MEMCPY3D_PEER *s = &copy->shape;
    bool nothing = !s->WidthInBytes || !s->Height || !s->Depth;
    struct cut cut;

    if (nothing || !remote_current()) {
        copy->to = is_host(&copy->to) ? (struct remote_side){0} : copy->to;
        copy->from = is_host(&copy->from) ? (struct remote_side){0} : copy->from;
        return whole(copy);
    }
    if (copy->to.host && copy->from.host) {
        return within(copy);
    }
    if (is_host(&copy->to) && is_host(&copy->from)) {
        copy->to = copy->from = (struct remote_side){0};
        return whole(copy);
    }
    bool in = copy->to.place == REMOTE_PLACE_AREA;
    if (!in && copy->from.place != REMOTE_PLACE_AREA) {
        return whole(copy);
    }
    if ((in ? copy->to.host : copy->from.host) == NULL || !cut_of(s, &cut)) {
        return nowhere(copy, is_host(&copy->to));
    }
    CUresult result = remote_area_begin();
    if (result != CUDA_SUCCESS) {
        return result;
    }
    return in ? download(copy, &cut) : upload(copy, &cut);
}
