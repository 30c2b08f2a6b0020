/* The inside of a share, for the files that implement share.h.
 *
 * Lock order: share->taking, then the OFD lock of a slot, then state->export_lock, then the gate
 * of one slot. Nothing is called while a gate is taken.
 *
 * How an operation survives the death of its process (ledger.c): it first writes what its slot will
 * hold into the intent that its id selects. Then one 16-byte swap changes the total and puts slot
 * and id into the tag; at that moment the operation happens. A process that overwrites the tag of
 * another slot first notes the id in applied[slot]. So the last operation of a slot is the one in
 * the tag, if the tag names the slot, and otherwise the one in applied[slot], which must be read
 * after the tag. The slot holds what the intent of that operation says. An operation that is
 * refused, or whose process dies before the swap, has no effect.
 *
 * The swap also decides races between threads of one process, which share a slot: it fails for all
 * but one, and the others start again from that one's intent. But two threads must not write an
 * intent at the same time. So each slot has two lanes of intents: the first belongs to the thread
 * that took the slot and needs no lock, the second to all other threads, one at a time, through a
 * gate.
 */
#ifndef DIVVY_SHARE_STATE_H
#define DIVVY_SHARE_STATE_H

#include "abi/generated/page_layout.h"
#include "share/mark.h"
#include "share/os.h"
#include "share/share.h"
#include "share/word.h"

#define DV_HERE __attribute__((visibility("hidden")))
#define SLOT_NONE (-1)
#define UNITS_MAX UINT32_MAX

/* The worker of this copy of the library on one GPU. */
typedef struct dv_own_worker {
    int number;     /* of the worker, + 1; 0 without one; atomic */
    uint64_t retry; /* CLOCK_MONOTONIC ns before which no other attempt is made */
} dv_own_worker;

/* A neighbour's pulse page, read through a descriptor that the program may close without our
 * knowledge. */
typedef struct dv_beat {
    int file; /* + 1; 0 without one */
    uint64_t inode, filesystem;
    uint64_t retry; /* CLOCK_MONOTONIC ns before which it is not opened again */
} dv_beat;

/* What was last seen of the neighbours' pulses on one GPU. */
typedef struct dv_beats {
    uint64_t seen;    /* CLOCK_MONOTONIC ns of that look, 0 before the first; atomic */
    uint64_t until;   /* its result; atomic */
    uint32_t changes; /* value of budget.pulse_changes at that look; atomic */
    uint32_t looking; /* set by the one thread that looks; what follows is that thread's */
    dv_beat page[DV_PAGE_PULSES];
} dv_beats;

/* What a sweep from the agent's pid namespace knows about processes in other ones. */
typedef struct dv_strangers {
    bool known;               /* false: nothing is known, because too many processes were exiting */
    bool dead[DV_PAGE_SLOTS]; /* whose locks were free before exiting was filled */
    os_exiting exiting;
} dv_strangers;

struct dv_share {
    const dv_page_config *config; /* read-only mapping */
    dv_page_state *state;
    dv_page_gpu *gpu;      /* the array behind state */
    unsigned device_count; /* with the kept parts */
    bool swap;
    bool writable;
    size_t config_size, state_size;
    uint64_t state_inode, state_filesystem; /* to recognise the file */
    uint64_t start_time, pid_namespace;     /* of this process */
    const void
        *owner; /* the thread that took the slot, known by the address of a thread-local variable */
    int slot;   /* SLOT_NONE until the first charge; atomic */
    uint32_t taking, waiting; /* lock of this process around taking a slot */
    int slot_file;            /* open while a slot is being taken, else -1 */
    void *pin;                /* mapping through which the slot's lock lives */
    bool pin_inheritable;     /* a fork at this moment would copy it */
    dv_own_worker worker[DV_PAGE_DEVICES];
    uint64_t turn_looked[DV_PAGE_DEVICES]; /* CLOCK_MONOTONIC ns at which the owner of a turn was
                                              last seen alive; atomic */
    dv_page_pulse *pulse[DV_PAGE_DEVICES]; /* our own, mapped when first needed; atomic */
    uint64_t pulse_retry[DV_PAGE_DEVICES]; /* CLOCK_MONOTONIC ns of the next attempt to map it */
    dv_beats beats[DV_PAGE_DEVICES];
    struct mark_file mark_file[MARK_FILES]; /* taking protects it */
    /* Of this process, where it is a holder; the export lock protects them. exported is the sum of
     * made, in units; atomic. */
    uint16_t holds[DV_PAGE_EXPORTS];
    uint32_t made[DV_PAGE_EXPORTS];
    uint64_t exported[DV_PAGE_DEVICES];
    char path[4096];
    uid_t owner_of_config;
    bool mps;
    bool mig;
    char mps_pipe[DV_PAGE_PIPE_BYTES]; /* empty without mps */
    dv_page_device device[DV_PAGE_DEVICES];
};

/* What an operation changes, in units. */
typedef struct ledger_change {
    int64_t charged, pending; /* of the slot and so of the totals, but no more than the slot has */
    int64_t shared;           /* of the total used alone: exported memory */
    uint64_t overhead;        /* of the slot from now on, or KEPT */
    uint64_t action;          /* in the slot's intent from now on, or KEPT */
    bool exact;               /* refuse rather than change less */
    bool moves;               /* what leaves charged becomes pending */
} ledger_change;
#define KEPT UINT64_MAX

/* When a reservation is refused, in units. */
typedef struct ledger_room {
    uint64_t limit;
    uint64_t wanted;
    uint64_t held; /* kept for a neighbour whose turn it is */
} ledger_room;

typedef enum ledger_result {
    LEDGER_DONE,
    LEDGER_FULL,    /* does not fit beside what is used */
    LEDGER_BLOCKED, /* fits beside what is used, not beside what is pending */
    LEDGER_RACED,   /* another changed the word in between: try again */
    LEDGER_BROKEN,  /* others kept changing the word, or it holds an impossible slot */
} ledger_result;

/* How a request takes what the agent measured before something of it ended. */
typedef struct overhead_since {
    uint64_t after; /* CLOCK_MONOTONIC ns: only what was measured after it is certain */
    bool waited;    /* nobody told in time: what is not certain no longer counts */
} overhead_since;

/* What a sweep over all slots found. */
typedef struct dv_sweep {
    unsigned live, reaped;
    unsigned unfinished; /* dead, but still exiting, or another process held the export lock */
} dv_sweep;

/* What the agent's reaper adds to a sweep, in which others pass NULL. */
typedef struct dv_reaper {
    void (*visit)(void *arg, unsigned slot, uint32_t pid, uint64_t bytes); /* of each reaped */
    void *arg;
    dv_strangers strangers; /* filled by the sweep */
} dv_reaper;

static inline uint64_t units_of(uint64_t bytes) {
    return bytes / DV_PAGE_UNIT + (bytes % DV_PAGE_UNIT != 0);
}

/* The present limit in bytes. The page is read each time, and may have been damaged since the share
 * was opened. No share has more of a GPU than there is, so a page that says so allows nothing. Only
 * memory that has turns may be more. */
static inline uint64_t present_limit(const dv_share *share, unsigned device) {
    uint64_t limit = load64(&share->config->device[device].limit);
    uint64_t total = share->device[device].total; /* our copy; 0 if nobody told */
    if (__builtin_expect(total == 0 || limit <= total, 1)) {
        return limit;
    }
    return share->swap && device < share->device_count / 2 ? limit : 0;
}

static inline uint64_t limit_units(const dv_share *share, unsigned device) {
    return present_limit(share, device) / DV_PAGE_UNIT;
}

/* Bytes charged, overhead included. */
static inline uint64_t held_bytes(balance held) {
    return ((uint64_t)amounts_used(held.amounts) + (uint32_t)held.rest) * DV_PAGE_UNIT;
}

static inline int own_slot(const dv_share *share) {
    return __atomic_load_n(&share->slot, __ATOMIC_ACQUIRE);
}

/* How many slots may be in use, whatever the page says. */
static inline unsigned slot_count(const dv_share *share) {
    uint32_t count = load32(&share->state->slot_count);
    return count < DV_PAGE_SLOTS ? count : DV_PAGE_SLOTS;
}

/* ledger.c: a living process enters a lane. A reaper of a dead process uses LANE_GATED without
 * entering it. */
#define LANE_GATED 1
DV_HERE int lane_enter(dv_share *share, dv_page_gpu *gpu, unsigned slot); /* -1: not to be had */
DV_HERE void lane_leave(dv_page_gpu *gpu, unsigned slot, int lane);
DV_HERE ledger_result ledger_commit(dv_page_gpu *gpu, unsigned slot, int lane,
                                    const ledger_change *change);
DV_HERE void ledger_wake(dv_page_gpu *gpu);
DV_HERE const void *this_thread(void);

/* What the slot holds. For a slot that works on, journal_read: figures of one moment if
   possible. */
DV_HERE balance journal_balance(const dv_page_gpu *gpu, unsigned slot);
DV_HERE balance journal_read(const dv_page_gpu *gpu, unsigned slot);
/* The slot's last operation. */
DV_HERE uint64_t journal_last(const dv_page_gpu *gpu, unsigned slot);

/* room.c: waits until a refused reservation fits, or is known not to. */
DV_HERE dv_status wait_for_room(dv_share *share, unsigned device, uint32_t units);
DV_HERE ledger_result reserve_once(dv_share *share, unsigned device, uint32_t units,
                                   const overhead_since *since);
DV_HERE uint64_t turn_of_others(dv_share *share, dv_page_gpu *gpu);

/* overhead.c: what the agent measured beside the ledger. */
DV_HERE overhead_since overhead_now(const dv_share *share, unsigned device);
DV_HERE uint64_t overhead_counted(const dv_share *share, unsigned device,
                                  const overhead_since *since, uint64_t *doubtful);
DV_HERE void overhead_eased(dv_page_gpu *gpu);

/* open.c: a share that is not writable can only be looked at. */
DV_HERE dv_status open_share(const char *dir, bool writable, dv_share **out, dv_reason *reason);

/* slot.c and reap.c */
DV_HERE int open_state(const dv_share *share, int flags);
DV_HERE dv_status ensure_slot(dv_share *share);
DV_HERE void leave_slot(dv_share *share);
enum found { FOUND_LIVE, FOUND_EMPTY, FOUND_DEAD, FOUND_REAPING };
DV_HERE enum found look_at(const dv_share *share, int file, unsigned slot);
DV_HERE void look_at_strangers(const dv_share *share, int file, dv_strangers *strangers);
DV_HERE bool slot_exiting(const dv_share *share, unsigned slot, const dv_strangers *strangers);
/* strangers may be NULL: nothing is known of them then. */
DV_HERE bool reap_slot(dv_share *share, unsigned slot, const dv_strangers *strangers,
                       uint64_t *bytes);
DV_HERE bool slot_vacant(dv_share *share, unsigned slot);
DV_HERE bool reap_one(dv_share *share, unsigned slot);
DV_HERE dv_sweep reap_all(dv_share *share, dv_reaper *reaper);

/* worker.c: how a page names a process, by slot and generation. */
DV_HERE unsigned owner_slot(uint32_t owner);
DV_HERE uint32_t name_owner(const dv_share *share, unsigned slot);
/* True if the page alone tells that the owner is gone or was never valid. */
DV_HERE bool abandoned(const dv_share *share, uint32_t owner);

/* How many exports may be in use, whatever the page says. */
static inline unsigned export_count(const dv_share *share) {
    uint32_t count = load32(&share->state->export_count);
    return count < DV_PAGE_EXPORTS ? count : DV_PAGE_EXPORTS;
}

/* export.c: slot is the process in whose name the table is changed. */
DV_HERE bool lock_exports(dv_share *share, unsigned slot, bool dead);
DV_HERE void unlock_exports(dv_share *share);
DV_HERE void export_replay(dv_share *share, unsigned slot, uint32_t action);
DV_HERE bool export_leave(dv_share *share, unsigned slot);
/* With the lock; export_enter takes it, and a slot, or returns why it cannot. */
DV_HERE dv_status export_enter(dv_share *share);
DV_HERE dv_page_export *export_find(dv_share *share, const void *key);
DV_HERE bool export_has_holders(const dv_page_export *export);
DV_HERE ledger_result export_end(dv_share *share, unsigned slot, int lane, dv_page_export *export);

/* descriptor.c: dv_export_settle of the entries from `from` up to `end`. */
DV_HERE uint64_t exports_settle(dv_share *share, unsigned from, unsigned end);
/* Whether dv_export_settle would free something. Changes nothing. */
DV_HERE bool exports_gone(dv_share *share);

#endif
