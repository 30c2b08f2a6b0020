#include "cuda/memory/ipc.h"

#include <string.h>

#include "cuda/attach.h"
#include "cuda/fork.h"
#include "cuda/memory/blocks.h"
#include "cuda/memory/linear.h"
#include "share/share.h"

#define EXPORTS_MAX DV_PAGE_EXPORTS /* of one process; a share has no more */

/* Memory of this process for which a handle was made. */
struct exported {
    uint64_t address; /* 0: unused */
    uint64_t bytes;   /* charged to the share */
    uint32_t owner;
    char key[DV_PAGE_EXPORT_KEY_BYTES];
};

/* Memory of another process that is open here. */
struct opened {
    uint64_t address; /* 0: unused, or being opened */
    uint32_t opens;   /* 0: unused */
    bool held;        /* free of charge, the share has it */
    uint64_t bytes;   /* charged if not held */
    unsigned device;
    uint32_t owner;
    char key[DV_PAGE_EXPORT_KEY_BYTES];
};

static lock guard; /* protects both; not held during a driver call */
static struct exported exports[EXPORTS_MAX];
static struct opened opens[EXPORTS_MAX];

static bool note_export(const struct exported *export) {
    struct exported *unused = NULL;
    lock_take(&guard);
    for (unsigned i = 0; i < EXPORTS_MAX && unused == NULL; i++) {
        unused = exports[i].address == 0 ? &exports[i] : NULL;
    }
    if (unused != NULL) {
        *unused = *export;
    }
    lock_give(&guard);
    return unused != NULL;
}

static bool take_export(uint64_t address, struct exported *export) {
    bool found = false;
    lock_take(&guard);
    for (unsigned i = 0; i < EXPORTS_MAX && !found; i++) {
        if (exports[i].address == address) {
            *export = exports[i];
            exports[i].address = 0;
            found = true;
        }
    }
    lock_give(&guard);
    return found;
}

/* Memory for which a handle was made is gone. */
static void ipc_freed(uint64_t address) {
    struct exported export;
    if (take_export(address, &export)) {
        dv_export_drop(attached_share(), export.key);
    }
}
ON(export_freed, ipc_freed);

/* Moves the charge of an allocation to the share, under the handle's key. A block that it has in
 * common with other allocations stays charged here for them and is charged to the share as well. */
static CUresult publish(uint64_t address, const struct entry *note, const void *key) {
    struct reservation reservation;
    struct span span = span_of(address, entry_bytes(*note));
    uint64_t common = span.edge_count * BLOCK_BYTES;
    struct exported export = {
        .address = address, .bytes = span.whole + common, .owner = note->owner};
    memcpy(export.key, key, sizeof export.key);
    CUresult result = reservation_open_account(&reservation, note->device, common);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    reservation_settle(&reservation, common);
    if (!note_export(&export)) {
        reservation_release_account(note->device, common);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    if (dv_export_publish(attached_share(), note->device, export.key, export.bytes) != DV_OK) {
        take_export(address, &export);
        reservation_release_account(note->device, common);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    return CUDA_SUCCESS;
}

CUresult cuIpcGetMemHandle(CUipcMemHandle *handle, CUdeviceptr address) {
    struct entry note;
    CUipcMemHandle got;
    CUdeviceptr base = address;
    size_t bytes = 0;
    if (DV_INNER() || handle == NULL) {
        return DV_REAL(cuIpcGetMemHandle)(handle, address);
    }
    CUresult result = DV_CALL(cuIpcGetMemHandle, &got, address);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    if (DV_CALL(cuMemGetAddressRange_v2, &base, &bytes, address) == CUDA_SUCCESS &&
        linear_mark_exported(base, bytes, &note)) {
        result = publish(base, &note, got.reserved);
        if (result != CUDA_SUCCESS) {
            linear_unmark_exported(base);
            return result;
        }
    }
    *handle = got;
    return CUDA_SUCCESS;
}

/* The key under which an allocation was exported already. */
static bool exported_key(uint64_t address, uint8_t key[DV_PAGE_EXPORT_KEY_BYTES]) {
    bool found = false;
    lock_take(&guard);
    for (unsigned i = 0; i < EXPORTS_MAX && !found; i++) {
        found = exports[i].address == address;
        if (found) {
            memcpy(key, exports[i].key, sizeof exports[i].key);
        }
    }
    lock_give(&guard);
    return found;
}

CUresult ipc_share(uint64_t address, uint8_t key[DV_PAGE_EXPORT_KEY_BYTES], bool *known) {
    struct entry note;
    CUdeviceptr base = 0;
    size_t bytes = 0;
    *known = false;
    if (DV_CALL(cuMemGetAddressRange_v2, &base, &bytes, address) != CUDA_SUCCESS) {
        return CUDA_SUCCESS;
    }
    *known = exported_key(base, key);
    if (*known || !linear_mark_exported(base, bytes, &note)) {
        return CUDA_SUCCESS;
    }
    uint64_t mark = dv_mark_new();
    dv_mark_key(mark, key);
    CUresult result = mark != 0 ? publish(base, &note, key) : CUDA_ERROR_OUT_OF_MEMORY;
    if (result != CUDA_SUCCESS) {
        linear_unmark_exported(base);
    }
    *known = result == CUDA_SUCCESS;
    return result;
}

static struct opened *find_open(const void *key, uint64_t address) {
    for (struct opened *o = opens; o < opens + EXPORTS_MAX; o++) {
        if (o->opens != 0 &&
            (key != NULL ? memcmp(o->key, key, sizeof o->key) == 0 : o->address == address)) {
            return o;
        }
    }
    return NULL;
}

/* Counts an opening of this handle. *fresh tells whether it is the only one of the process. NULL if
 * the table is full. Entries do not move. */
static struct opened *begin_open(const CUipcMemHandle *handle, bool *fresh) {
    lock_take(&guard);
    struct opened *open = find_open(handle->reserved, 0);
    *fresh = open == NULL;
    for (unsigned i = 0; i < EXPORTS_MAX && open == NULL; i++) {
        open = opens[i].opens == 0 ? &opens[i] : NULL;
    }
    if (open != NULL) {
        if (*fresh) {
            *open = (struct opened){0};
            memcpy(open->key, handle->reserved, sizeof open->key);
        }
        open->opens++;
    }
    lock_give(&guard);
    return open;
}

/* Takes back one opening. The last one drops the hold or gives back the charge. */
static void end_open(struct opened *open) {
    struct opened last;
    lock_take(&guard);
    last = *open;
    open->opens -= open->opens > 0;
    lock_give(&guard);
    if (last.opens != 1) {
        return;
    }
    if (last.held) {
        dv_export_drop(attached_share(), last.key);
    } else {
        reservation_release(last.device, last.bytes);
    }
}

/* Charges memory that the share does not hold, now that its size is known. */
static CUresult charge(struct opened *open, CUdeviceptr address) {
    struct reservation reservation;
    CUdeviceptr base;
    size_t bytes = 0;
    DV_CALL(cuMemGetAddressRange_v2, &base, &bytes, address);
    CUresult result = reservation_open_kept(&reservation, blocks_worst(bytes));
    if (result == CUDA_SUCCESS) {
        reservation_settle(&reservation, reservation.bytes);
        lock_take(&guard);
        open->bytes = reservation.bytes;
        open->device = reservation.home.device;
        lock_give(&guard);
    }
    return result;
}

/* Holds the export before the driver opens the handle, so that the process that made it cannot end
 * it in between. */
static CUresult open_handle(CUdeviceptr *address, CUipcMemHandle handle, unsigned flags,
                            CUresult (*driver)(CUdeviceptr *, CUipcMemHandle, unsigned)) {
    struct home home;
    CUdeviceptr got = 0;
    bool fresh;
    CUresult result = attach_share();
    if (result == CUDA_SUCCESS) {
        result = context_current(&home);
    }
    if (result == CUDA_ERROR_NOT_INITIALIZED) {
        /* It looks at the flags first. This thread has no context to open anything in. */
        return driver(address, handle, flags);
    }
    if (result != CUDA_SUCCESS) {
        return result;
    }
    struct opened *open = begin_open(&handle, &fresh);
    if (open == NULL) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    if (fresh) {
        open->held = dv_export_hold(attached_share(), handle.reserved) == DV_OK;
        open->owner = home.owner;
    }
    dv_depth++;
    result = driver(&got, handle, flags);
    dv_depth--;
    if (result == CUDA_SUCCESS && fresh && !open->held) {
        result = charge(open, got);
        if (result != CUDA_SUCCESS) {
            DV_CALL(cuIpcCloseMemHandle, got);
        }
    }
    if (result != CUDA_SUCCESS) {
        end_open(open);
        return result;
    }
    __atomic_store_n(&open->address, got, __ATOMIC_RELEASE);
    *address = got;
    return CUDA_SUCCESS;
}

CUresult cuIpcOpenMemHandle(CUdeviceptr *address, CUipcMemHandle handle, unsigned flags) {
    return DV_INNER() || address == NULL
               ? DV_REAL(cuIpcOpenMemHandle)(address, handle, flags)
               : open_handle(address, handle, flags, DV_REAL(cuIpcOpenMemHandle));
}

CUresult cuIpcOpenMemHandle_v2(CUdeviceptr *address, CUipcMemHandle handle, unsigned flags) {
    return DV_INNER() || address == NULL
               ? DV_REAL(cuIpcOpenMemHandle_v2)(address, handle, flags)
               : open_handle(address, handle, flags, DV_REAL(cuIpcOpenMemHandle_v2));
}

CUresult cuIpcCloseMemHandle(CUdeviceptr address) {
    CUresult result = DV_CALL(cuIpcCloseMemHandle, address);
    if (result == CUDA_SUCCESS && !DV_INNER()) {
        lock_take(&guard);
        struct opened *open = find_open(NULL, address);
        lock_give(&guard);
        if (open != NULL) {
            end_open(open);
        }
    }
    return result;
}

void ipc_context_ended(uint32_t owner) {
    for (unsigned i = 0; i < EXPORTS_MAX; i++) {
        uint64_t address = 0;
        lock_take(&guard);
        if (exports[i].address != 0 && exports[i].owner == owner) {
            address = exports[i].address;
        }
        bool opened = opens[i].opens != 0 && opens[i].owner == owner;
        if (opened) {
            opens[i].opens = 1;
        }
        lock_give(&guard);
        if (address != 0) {
            ipc_freed(address);
        }
        if (opened) {
            end_open(&opens[i]);
        }
    }
}

static void ipc_forked(void) {
    guard = (lock){0};
    memset(exports, 0, sizeof exports);
    memset(opens, 0, sizeof opens);
}
ON(forked, ipc_forked);
