/* A tenant's share of its GPUs: its limits from the config page, its charges in the state page.
 *
 * One dv_share stands for a tenant directory T holding T/config (the agent writes it, we map it
 * read-only) and T/state (all processes of the tenant write it). Limits come from T/config alone.
 *
 * How to charge memory. Never hold a lock of your own across any of these calls or the driver's:
 *
 *     dv_reserve(s, dev, worst_case)     before the driver call; refuses if it does not fit
 *     ...driver call...
 *     dv_settle(s, dev, worst_case, n)   after it: n bytes were really taken (0 if it failed)
 *     ...
 *     dv_release(s, dev, n)              after the driver has taken the memory back
 *
 * Every amount is rounded up to DV_PAGE_UNIT on its own, so give amounts back in the pieces in
 * which they were charged. Check and charge are one compare-and-swap; a process that dies at any
 * instruction leaves a state from which its balance, no more and no less, is taken out of the
 * total.
 *
 * Threads: every function may be called by any thread at any time; none is safe in a signal
 * handler. Nothing here calls malloc, prints, exits or touches signals.
 * Time: dv_reserve, dv_settle and dv_release take tens of nanoseconds uncontended. Each wait is
 * bounded (DV_WAIT_NS) whatever other processes write into the state page.
 */
#ifndef DIVVY_SHARE_SHARE_H
#define DIVVY_SHARE_SHARE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "abi/generated/page_layout.h"

#define DV_WAIT_NS 2000000000u /* longest wait for a neighbour's driver call or lock */

typedef enum dv_status {
    DV_OK = 0,
    DV_NO_MEMORY, /* the amount does not fit into the limit */
    DV_NO_SHARE,  /* the pages are missing or cannot be opened */
    DV_CORRUPT,   /* a page is truncated or holds impossible values */
    DV_OLD_PAGE,  /* a page has another layout version */
    DV_NO_SLOT,   /* the table of processes or of exports is full */
    DV_BUSY,      /* a neighbour kept a lock or the ledger for longer than DV_WAIT_NS */
    DV_NO_EXPORT, /* no exported memory has this key */
    DV_NO_DEVICE, /* the device number is not one of the share */
} dv_status;

typedef struct dv_share dv_share; /* opaque; lives until the process ends */

/* Why opening failed, in one line that names the cause and the next step. "" on success. */
typedef struct dv_reason {
    char text[256];
} dv_reason;

typedef struct dv_usage_t {
    uint64_t limit;   /* bytes, present value */
    uint64_t used;    /* bytes charged, overhead and exported memory included; may pass the limit */
    uint64_t pending; /* bytes reserved for driver calls under way */
    uint64_t overhead; /* part of used that dv_overhead reported or the agent measured */
} dv_usage_t;

typedef struct dv_process {
    pid_t pid;      /* in its own pid namespace; information only */
    pid_t host_pid; /* in the agent's pid namespace, 0 if not known */
    bool self;      /* the calling process */
    /* bytes charged to this process, overhead included, pending not */
    uint64_t used[DV_PAGE_DEVICES];
} dv_process;

/* What the ledger has for the calling process on one device, in bytes. */
typedef struct dv_own_t {
    uint64_t charged;  /* without overhead */
    uint64_t exported; /* made by this copy of the library, charged to the share, and held here */
    uint64_t pending;
    uint64_t overhead;
    uint64_t operation; /* another one after each change of the process */
} dv_own_t;

/* Opens the share in directory dir and validates both pages. Takes no slot and waits for nobody.
 * On failure *out is NULL, the status says which kind of failure and reason (may be NULL) why. The
 * caller then refuses every allocation: without a share nothing is allowed. */
dv_status dv_share_open(const char *dir, dv_share **out, dv_reason *reason);

/* Name of a status for logs; never NULL. */
const char *dv_status_name(dv_status status);

/* Call in the child after fork (pthread_atfork), before anything else here: the parent's slot stays
 * the parent's, the child takes one of its own with its first charge. Async-signal-safe, keeps the
 * mappings, frees nothing the parent holds. What the parent charged is not the child's to release.
 */
void dv_share_forked(dv_share *share);

/* Number of GPUs or MIG instances, 1..DV_PAGE_DEVICES. Devices are numbered in this order everywhere below. Behind them a swap
 * share has as many kept parts, see dv_share_kept. */
unsigned dv_share_device_count(const dv_share *share);

/* Whether linear memory of the share is managed and has turns on the GPU. */
bool dv_share_swap(const dv_share *share);

/* The number under which what never leaves device dev is charged: another one in a swap share, dev itself in any other. */
unsigned dv_share_kept(const dv_share *share, unsigned dev);

/* Device dev as it was configured when the share was opened, or NULL if there is no such device.
 * Valid while the process lives. What the agent changes later is told by dv_share_limit and
 * dv_usage (the limit) and by time.h (the budget). */
const dv_page_device *dv_share_device(const dv_share *share, unsigned dev);

/* The pipe directory of the control daemon whose clients this share's processes are, an absolute
 * path; NULL if they are none. Such a share has one GPU. */
const char *dv_share_mps_pipe(const dv_share *share);

/* Whether the devices are MIG instances: their UUIDs are the instances', their parents' the GPUs'. */
bool dv_share_mig(const dv_share *share);

/* The user who made the share: the owner of its config page, as this process's user namespace shows
 * it. */
uid_t dv_share_owner(const dv_share *share);

/* Number of the device with this UUID, -1 if it is not in the share. */
int dv_share_find(const dv_share *share, const uint8_t uuid[16]);

/* Present limit of device dev in bytes; 0 if there is no such device, and if the page has been
 * damaged so that it allows more than the GPU has. A single load of the page. Memory that leaves the
 * GPU may be more than it has. */
uint64_t dv_share_limit(const dv_share *share, unsigned dev);

/* Reserves bytes on device dev. Refuses (DV_NO_MEMORY) only if the bytes do not fit beside what is
 * really used: dead neighbours are reaped first, and an amount that fits but for neighbours' driver
 * calls under way waits for them, DV_WAIT_NS at most. The first reservation of a process takes its
 * slot. 0 bytes is DV_OK and needs no settling. Any status but DV_OK: nothing is reserved, refuse
 * the allocation. */
dv_status dv_reserve(dv_share *share, unsigned dev, uint64_t bytes);

/* Ends a reservation: reserved as given to dv_reserve, charged what is now really held. charged may
 * be more than reserved where the truth is known only afterwards; it is then charged even past the
 * limit. */
void dv_settle(dv_share *share, unsigned dev, uint64_t reserved, uint64_t charged);

/* Counts an allocation of the program's that was refused: by the driver (by_gpu) although it fits
 * into the share, or else by dv_reserve. bytes is what it could have taken. dv_reserve does not
 * count, because its caller may try again with less. */
void dv_refused(dv_share *share, unsigned dev, uint64_t bytes, bool by_gpu);

/* Tells that charged bytes are about to be freed. They are pending until dv_settle(s, dev, bytes,
 * 0) after the driver has freed them, or dv_settle(s, dev, bytes, bytes) if it refused. A
 * reservation that does not fit only because of them waits instead of being refused. More bytes
 * than this process was charged count as all that it was charged. */
void dv_retire(dv_share *share, unsigned dev, uint64_t bytes);

/* Gives charged bytes back. More bytes than this process was charged count as all that it was
 * charged. */
void dv_release(dv_share *share, unsigned dev, uint64_t bytes);

/* Sets the overhead of this process on device dev: bytes that only measurement shows (modules,
 * local memory, fragmentation). They count as used at once, even past the limit; later reservations
 * are refused then. A process that has no slot and reports 0 takes none. */
void dv_overhead(dv_share *share, unsigned dev, uint64_t bytes_now);

/* Tells that memory is gone that no call had announced, such as a context's or a module's, after the
 * driver has freed it. What the agent measured before may count it: from now on a reservation that
 * does not fit beside that figure waits for the next one. */
void dv_eased(dv_share *share, unsigned dev);

/* True while the agent measures the overhead of the share's processes on device dev. *bytes is what
 * it found beyond the pages, 0 if that no longer counts. */
bool dv_measured(const dv_share *share, unsigned dev, uint64_t *bytes);

/* Figures of the share on device dev. Processes that died since the last reap are still included;
 * call dv_reap first where that matters. false if there is no such device. */
bool dv_usage(dv_share *share, unsigned dev, dv_usage_t *usage);

/* Figures of the calling process on device dev, those of other copies of the library in it
 * included. false if there is no such device. */
bool dv_own(dv_share *share, unsigned dev, dv_own_t *own);

/* Calls visit for every living process that has a slot, until it returns false. */
void dv_processes(dv_share *share, bool (*visit)(const dv_process *process, void *arg), void *arg);

/* Takes the balances of dead processes out of the totals. Returns how many were reaped. Costs one
 * open and a system call per slot in use; dv_reserve does it by itself before it refuses. */
unsigned dv_reap(dv_share *share);

/* Memory that other processes can open by a handle or a descriptor belongs to the share, not to the
 * process that made it. The key is the 64-byte IPC handle, or that of a mark (dv_mark_key).
 *
 * dv_export_publish moves bytes already charged to this process on device dev to the share and
 * makes this process its first holder; publishing a key again is DV_OK and changes nothing. From
 * then on never release those bytes: drop the key when the driver's memory is freed. If it fails
 * (DV_NO_SLOT, DV_BUSY, DV_CORRUPT) the charge stays with the process as before.
 * dv_export_hold makes this process a holder; DV_OK means the import is free of charge, any other
 * status that the importer has to be charged like for an allocation of its own.
 * dv_export_drop ends a hold. Holds are counted: one drop for each hold, and one for the first
 * publish. The charge ends when no process holds the memory and no descriptor of it is open. */
dv_status dv_export_publish(dv_share *share, unsigned dev, const void *key, uint64_t bytes);
dv_status dv_export_hold(dv_share *share, const void *key);
dv_status dv_export_drop(dv_share *share, const void *key);

/* Imported memory of others, whose size only mappings tell. dv_export_join makes this process a
 * holder, of an entry of 0 bytes if there was none. dv_export_lacks tells how many bytes have to be
 * reserved so that the share is charged for `bytes`; dv_export_grow, after they were settled as
 * charged to this process, moves them to the share, and releases what it has been charged for
 * meanwhile. */
dv_status dv_export_join(dv_share *share, unsigned dev, const void *key);
uint64_t dv_export_lacks(dv_share *share, const void *key, uint64_t bytes);
void dv_export_grow(dv_share *share, unsigned dev, const void *key, uint64_t bytes,
                    uint64_t charged);

/* File descriptors of exported memory, see mark.h. A mark is a number that every descriptor of the
 * memory bears; 0 is none.
 *
 * dv_export_carry marks a new descriptor of memory that this process holds, before anybody else can
 * have it. On any status but DV_OK close it. One that cannot be marked keeps the charge until the
 * share ends.
 * dv_export_settle looks for memory that no process holds and whose descriptors are closed, frees
 * its charge, and returns the bytes. Costs nothing while descriptors keep nothing. */
dv_status dv_export_carry(dv_share *share, const void *key, int fd);
uint64_t dv_export_settle(dv_share *share);
uint64_t dv_mark_new(void);
uint64_t dv_mark_of(int fd);
bool dv_mark_put(int fd, uint64_t mark);
void dv_mark_key(uint64_t mark, uint8_t key[DV_PAGE_EXPORT_KEY_BYTES]);

#endif
