#include "cuda/linear.h"

#include "common/share.h"
#include "cuda/blocks.h"
#include "cuda/ipc.h"

static table allocations; /* by address: bytes as asked for, owner, device */

/* Forgets which blocks an allocation touched; returns the bytes that this process is to give back. */
static uint64_t own_bytes_left(uint64_t address, record note) {
    uint64_t left = blocks_leave(address, note.bytes);
    return note.flags & LINEAR_EXPORTED ? left - blocks_whole(address, note.bytes) : left;
}

bool linear_keep(struct claim *claim, uint64_t address, uint64_t bytes) {
    record old, note = {
        .bytes = bytes, .owner = claim->place.owner, .device = (uint16_t)claim->place.device};
    uint64_t added;
    bool had;
    if (!blocks_touch(address, bytes, &added)) {
        claim_settle(claim, 0);
        return false;
    }
    if (!table_put(&allocations, address, note, &old, &had)) {
        blocks_leave(address, bytes);
        claim_settle(claim, 0);
        return false;
    }
    claim_settle(claim, added);
    if (had) {
        /* The driver gave an address that we still have: what was there ended without our seeing it,
         * by the end of a context that we were not told of. */
        linear_release(address, old);
    }
    return true;
}

bool linear_take(uint64_t address, record *note) {
    return address != 0 && table_take(&allocations, address, note);
}

void linear_put_back(uint64_t address, record note) {
    table_put(&allocations, address, note, NULL, NULL);
}

void linear_release(uint64_t address, record note) {
    if (note.flags & LINEAR_EXPORTED) {
        ipc_freed(address);
    }
    claim_release(note.device, own_bytes_left(address, note));
}

bool linear_mark_exported(uint64_t address, record *note) {
    if (!linear_take(address, note)) {
        return false;
    }
    bool fresh = (note->flags & LINEAR_EXPORTED) == 0;
    note->flags |= LINEAR_EXPORTED;
    linear_put_back(address, *note);
    return fresh;
}

void linear_unmark_exported(uint64_t address) {
    record note;
    if (linear_take(address, &note)) {
        note.flags = (uint16_t)(note.flags & ~LINEAR_EXPORTED);
        linear_put_back(address, note);
    }
}

/* What one context leaves behind, per GPU. */
struct legacy {
    uint32_t owner;
    uint64_t bytes[DV_DEVICES_MAX];
};

static bool leave_with_context(uint64_t address, record *note, void *arg) {
    struct legacy *legacy = arg;
    if (note->owner != legacy->owner) {
        return false;
    }
    legacy->bytes[note->device] += own_bytes_left(address, *note);
    return true;
}

void linear_context_ended(uint32_t owner) {
    struct legacy legacy = {.owner = owner};
    table_sweep(&allocations, leave_with_context, &legacy);
    for (unsigned device = 0; device < DV_DEVICES_MAX; device++) {
        claim_release(device, legacy.bytes[device]);
    }
}

void linear_forked(void) {
    table_forget(&allocations);
    blocks_forget();
}
