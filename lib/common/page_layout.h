/* Written by go run ./abi/gen from abi/pages.yaml; do not edit. */
#ifndef DIVVY_DV_PAGE_LAYOUT_H
#define DIVVY_DV_PAGE_LAYOUT_H

#include <stddef.h>
#include <stdint.h>

/* First word of a config page, the text DVVYCFG1. */
#define DV_PAGE_CONFIG_MAGIC UINT64_C(0x3147464359565644)

/* First word of a state page, the text DVVYSAT1. */
#define DV_PAGE_STATE_MAGIC UINT64_C(0x3154415359565644)

/* Version of this layout; a reader refuses any other. */
#define DV_PAGE_VERSION UINT32_C(3)

/* Most GPUs of one tenant. */
#define DV_PAGE_DEVICES UINT32_C(16)

/* Most living processes of one tenant. */
#define DV_PAGE_SLOTS UINT32_C(1024)

/* Most exported allocations of one tenant. */
#define DV_PAGE_EXPORTS UINT32_C(512)

/* Words of 64 holder bits, one bit per slot. */
#define DV_PAGE_HOLDER_WORDS UINT32_C(16)

/* Bytes of an export's key, an IPC handle. */
#define DV_PAGE_KEY_BYTES UINT32_C(64)

/* Bytes in which the ledger counts. */
#define DV_PAGE_UNIT UINT32_C(512)

/* Offset in the state file of slot 0's lock byte. */
#define DV_PAGE_LOCK_BASE UINT64_C(0x10000000000)

/* Low bits of a ledger's tag that hold the slot; the others hold the operation's id. */
#define DV_PAGE_SLOT_BITS UINT32_C(16)

/* The limits of all tenants may exceed the GPU. */
#define DV_PAGE_FLAG_OVERCOMMIT UINT32_C(1)

/* Our library is put in front by the environment alone. */
#define DV_PAGE_FLAG_ENV UINT32_C(2)

/* Work-conserving, by weight. */
#define DV_PAGE_POLICY_WEIGHTED UINT32_C(0)

/* Hard cap of GPU time. */
#define DV_PAGE_POLICY_FIXED UINT32_C(1)

/* Guaranteed cores, idle time above them. */
#define DV_PAGE_POLICY_BURST UINT32_C(2)

/* Takes what is left, gives way at once. */
#define DV_PAGE_CLASS_OFFLINE UINT32_C(0)

/* Latency first. */
#define DV_PAGE_CLASS_ONLINE UINT32_C(1)

/* An unused place of the export table. */
#define DV_PAGE_EXPORT_FREE UINT32_C(0)

/* Exported memory that has holders. */
#define DV_PAGE_EXPORT_LIVE UINT32_C(1)

/* The operation concerns no export. */
#define DV_PAGE_ACTION_NONE UINT32_C(0)

/* Makes export (action >> action_bits) - 1 live, held by the slot alone. */
#define DV_PAGE_ACTION_PUBLISH UINT32_C(1)

/* Makes export (action >> action_bits) - 1 free. */
#define DV_PAGE_ACTION_FREE UINT32_C(2)

/* Low bits of an intent's action that hold the kind. */
#define DV_PAGE_ACTION_BITS UINT32_C(2)

/* All of a GPU's time, and a factor of one, in the parts per million of struct budget. */
#define DV_PAGE_WHOLE UINT32_C(0xf4240)

/* Launches are charged to the bucket and wait for it; without this flag nothing is counted. */
#define DV_PAGE_BUDGET_LIMITED UINT32_C(1)

/* Some neighbour gives way to this share: its work is to be told in the pulse page. */
#define DV_PAGE_BUDGET_BEAT UINT32_C(2)

/* This share gives way while a pulse page of budget.pulses beats. */
#define DV_PAGE_BUDGET_YIELD UINT32_C(4)

/* Age of budget.tick from which no arbiter is taken to live, and base stands for rate. */
#define DV_PAGE_STALE_NS UINT64_C(0x5f5e100)

/* Most by which budget.tick may lie ahead: what was decided for a GPU on which nobody does anything holds until then. */
#define DV_PAGE_LEASE_NS UINT64_C(0x1dcd6500)

/* After so long without a charge or a wait the next one is told by a new mtime of the state page, which the arbiter gets from inotify(7). Less than an arbiter takes to rest. */
#define DV_PAGE_SILENCE_NS UINT64_C(0xee6b280)

/* Most processes of one tenant on one GPU whose intervals the arbiter sees. */
#define DV_PAGE_WORKERS UINT32_C(64)

/* Latest busy intervals kept of each. */
#define DV_PAGE_INTERVALS UINT32_C(32)

/* Low bits of a worker's owner that hold the slot + 1. */
#define DV_PAGE_OWNER_BITS UINT32_C(11)

/* Bit of a worker's owner, set while the rest of the record is not yet that owner's. */
#define DV_PAGE_OWNER_CLAIMING UINT32_C(32768)

/* First word of a pulse page, the text DVVYPLS1. */
#define DV_PAGE_PULSE_MAGIC UINT64_C(0x31534c5059565644)

/* Words of a pulse page, one per worker. */
#define DV_PAGE_PULSE_WORDS UINT32_C(64)

/* Most pulse pages that one share gives way to. */
#define DV_PAGE_PULSES UINT32_C(16)

/* How every page begins. */
typedef struct dv_page_header {
    /* config_magic or state_magic. */
    uint64_t magic;
    /* Always version. */
    uint32_t version;
    /* Bytes of the whole page. */
    uint32_t size;
} dv_page_header;
_Static_assert(sizeof(dv_page_header) == 16, "dv_page_header");
_Static_assert(_Alignof(dv_page_header) == 8, "dv_page_header");
_Static_assert(offsetof(dv_page_header, magic) == 0, "dv_page_header.magic");
_Static_assert(offsetof(dv_page_header, version) == 8, "dv_page_header.version");
_Static_assert(offsetof(dv_page_header, size) == 12, "dv_page_header.size");

/* What the arbiter grants of one GPU's time. Each word is read on its own, without the seqlock, and makes sense beside any earlier or later value of the others. */
typedef struct dv_page_budget {
    /* CLOCK_MONOTONIC ns of the arbiter's last decision, or until when it holds at least; 0 before the first. */
    _Alignas(64) uint64_t tick;
    /* budget_limited, budget_beat, budget_yield. */
    uint32_t flags;
    /* What the bucket gains, in parts per million of real time. */
    uint32_t rate;
    /* The same while no arbiter lives. */
    uint32_t base;
    /* Parts per million: the share's own GPU time for each ns that it charged lately; 1000000 where nothing is known. */
    uint32_t stretch;
    /* ns, up to which rate fills the bucket. */
    uint64_t burst;
    /* ns of estimated work that a process may have on the GPU and not finished; one launch is always allowed. */
    uint64_t depth;
    /* ns to be added to the bucket, the sum since the share began: what was charged beyond the share's own time. */
    int64_t correction;
    /* Bit k is set while the page beat.<device>.<k> is one to give way to. */
    uint32_t pulses;
    /* Raised when the set of those pages changes. */
    uint32_t pulse_changes;
    uint8_t pad_56[72];
} dv_page_budget;
_Static_assert(sizeof(dv_page_budget) == 128, "dv_page_budget");
_Static_assert(_Alignof(dv_page_budget) == 64, "dv_page_budget");
_Static_assert(offsetof(dv_page_budget, tick) == 0, "dv_page_budget.tick");
_Static_assert(offsetof(dv_page_budget, flags) == 8, "dv_page_budget.flags");
_Static_assert(offsetof(dv_page_budget, rate) == 12, "dv_page_budget.rate");
_Static_assert(offsetof(dv_page_budget, base) == 16, "dv_page_budget.base");
_Static_assert(offsetof(dv_page_budget, stretch) == 20, "dv_page_budget.stretch");
_Static_assert(offsetof(dv_page_budget, burst) == 24, "dv_page_budget.burst");
_Static_assert(offsetof(dv_page_budget, depth) == 32, "dv_page_budget.depth");
_Static_assert(offsetof(dv_page_budget, correction) == 40, "dv_page_budget.correction");
_Static_assert(offsetof(dv_page_budget, pulses) == 48, "dv_page_budget.pulses");
_Static_assert(offsetof(dv_page_budget, pulse_changes) == 52, "dv_page_budget.pulse_changes");

/* A pulse page, by which a share tells those that give way to it of its work. The tenant maps and writes it; neighbours read it with pread(2), because a tenant that truncates its page would end whoever maps it with SIGBUS. */
typedef struct dv_page_pulse {
    _Alignas(64) dv_page_header header;
    /* Words from here on were never used. */
    uint32_t words;
    uint8_t pad_20[44];
    /* Per worker the CLOCK_MONOTONIC ns until which it has, or soon will have, work on the GPU; 0 without any. */
    _Alignas(64) uint64_t until[DV_PAGE_PULSE_WORDS];
} dv_page_pulse;
_Static_assert(sizeof(dv_page_pulse) == 576, "dv_page_pulse");
_Static_assert(_Alignof(dv_page_pulse) == 64, "dv_page_pulse");
_Static_assert(offsetof(dv_page_pulse, header) == 0, "dv_page_pulse.header");
_Static_assert(offsetof(dv_page_pulse, words) == 16, "dv_page_pulse.words");
_Static_assert(offsetof(dv_page_pulse, until) == 64, "dv_page_pulse.until");

/* One GPU of a config page. */
typedef struct dv_page_device {
    _Alignas(64) uint8_t uuid[16];
    /* Ends with a zero byte; empty if unknown. */
    char pci_bus_id[32];
    /* Bytes the tenant may hold. The one field read without the seqlock. */
    uint64_t limit;
    /* Bytes of the GPU. */
    uint64_t total;
    /* Estimate of what the first context of a process takes. */
    uint64_t context_bytes;
    /* Bytes by which the driver grows a memory pool. */
    uint64_t pool_chunk;
    /* Percent of GPU time, 1 to 100; 0 guarantees nothing. */
    uint32_t cores;
    /* Percent of GPU time up to which a share with policy_burst takes idle time, 1 to 100; 0 with any other policy. */
    uint32_t max_cores;
    uint32_t policy;
    /* 1 or more. */
    uint32_t weight;
    uint32_t class;
    uint8_t pad_100[28];
    dv_page_budget budget;
    uint8_t pad_256[256];
} dv_page_device;
_Static_assert(sizeof(dv_page_device) == 512, "dv_page_device");
_Static_assert(_Alignof(dv_page_device) == 64, "dv_page_device");
_Static_assert(offsetof(dv_page_device, uuid) == 0, "dv_page_device.uuid");
_Static_assert(offsetof(dv_page_device, pci_bus_id) == 16, "dv_page_device.pci_bus_id");
_Static_assert(offsetof(dv_page_device, limit) == 48, "dv_page_device.limit");
_Static_assert(offsetof(dv_page_device, total) == 56, "dv_page_device.total");
_Static_assert(offsetof(dv_page_device, context_bytes) == 64, "dv_page_device.context_bytes");
_Static_assert(offsetof(dv_page_device, pool_chunk) == 72, "dv_page_device.pool_chunk");
_Static_assert(offsetof(dv_page_device, cores) == 80, "dv_page_device.cores");
_Static_assert(offsetof(dv_page_device, max_cores) == 84, "dv_page_device.max_cores");
_Static_assert(offsetof(dv_page_device, policy) == 88, "dv_page_device.policy");
_Static_assert(offsetof(dv_page_device, weight) == 92, "dv_page_device.weight");
_Static_assert(offsetof(dv_page_device, class) == 96, "dv_page_device.class");
_Static_assert(offsetof(dv_page_device, budget) == 128, "dv_page_device.budget");

/* The config page. */
typedef struct dv_page_config {
    _Alignas(64) dv_page_header header;
    /* Seqlock: odd while the agent writes. */
    uint32_t sequence;
    /* 1 to devices. */
    uint32_t device_count;
    uint32_t flags;
    uint8_t pad_28[4];
    /* Inode of the agent's pid namespace. */
    uint64_t pid_namespace;
    /* The tenant, ends with a zero byte. */
    char id[64];
    /* What users call the tenant, ends with a zero byte. */
    char name[64];
    uint8_t pad_168[24];
    dv_page_device device[DV_PAGE_DEVICES];
} dv_page_config;
_Static_assert(sizeof(dv_page_config) == 8384, "dv_page_config");
_Static_assert(_Alignof(dv_page_config) == 64, "dv_page_config");
_Static_assert(offsetof(dv_page_config, header) == 0, "dv_page_config.header");
_Static_assert(offsetof(dv_page_config, sequence) == 16, "dv_page_config.sequence");
_Static_assert(offsetof(dv_page_config, device_count) == 20, "dv_page_config.device_count");
_Static_assert(offsetof(dv_page_config, flags) == 24, "dv_page_config.flags");
_Static_assert(offsetof(dv_page_config, pid_namespace) == 32, "dv_page_config.pid_namespace");
_Static_assert(offsetof(dv_page_config, id) == 40, "dv_page_config.id");
_Static_assert(offsetof(dv_page_config, name) == 104, "dv_page_config.name");
_Static_assert(offsetof(dv_page_config, device) == 192, "dv_page_config.device");

/* One process. All but the lock on its byte is information; pid 0 means that nothing is charged here. */
typedef struct dv_page_slot {
    /* In the process's own pid namespace. */
    _Alignas(64) uint32_t pid;
    /* In the agent's pid namespace, 0 if unknown. */
    uint32_t host_pid;
    /* Clock ticks after boot at which the process started. */
    uint64_t start_time;
    /* Inode of the process's pid namespace. */
    uint64_t pid_namespace;
    /* Counts the processes that took this slot. */
    uint64_t generation;
    /* Differs between the programs that one process becomes by execve. */
    uint64_t image;
    /* Generation last found dead; while that is the present one, a lock on the byte is its reaper's. */
    uint64_t reaping;
    uint8_t pad_48[16];
} dv_page_slot;
_Static_assert(sizeof(dv_page_slot) == 64, "dv_page_slot");
_Static_assert(_Alignof(dv_page_slot) == 64, "dv_page_slot");
_Static_assert(offsetof(dv_page_slot, pid) == 0, "dv_page_slot.pid");
_Static_assert(offsetof(dv_page_slot, host_pid) == 4, "dv_page_slot.host_pid");
_Static_assert(offsetof(dv_page_slot, start_time) == 8, "dv_page_slot.start_time");
_Static_assert(offsetof(dv_page_slot, pid_namespace) == 16, "dv_page_slot.pid_namespace");
_Static_assert(offsetof(dv_page_slot, generation) == 24, "dv_page_slot.generation");
_Static_assert(offsetof(dv_page_slot, image) == 32, "dv_page_slot.image");
_Static_assert(offsetof(dv_page_slot, reaping) == 40, "dv_page_slot.reaping");

/* Exported memory, which belongs to the share until no process holds it. */
typedef struct dv_page_export {
    /* export_free or export_live; the rest counts only when live. */
    _Alignas(64) uint32_t state;
    uint32_t device;
    uint32_t units;
    uint8_t pad_12[52];
    _Alignas(64) uint8_t key[DV_PAGE_KEY_BYTES];
    /* Bit s is set while the process in slot s holds the memory. */
    uint64_t holders[DV_PAGE_HOLDER_WORDS];
} dv_page_export;
_Static_assert(sizeof(dv_page_export) == 256, "dv_page_export");
_Static_assert(_Alignof(dv_page_export) == 64, "dv_page_export");
_Static_assert(offsetof(dv_page_export, state) == 0, "dv_page_export.state");
_Static_assert(offsetof(dv_page_export, device) == 4, "dv_page_export.device");
_Static_assert(offsetof(dv_page_export, units) == 8, "dv_page_export.units");
_Static_assert(offsetof(dv_page_export, key) == 64, "dv_page_export.key");
_Static_assert(offsetof(dv_page_export, holders) == 128, "dv_page_export.holders");

/* The state page up to its GPUs. */
typedef struct dv_page_state {
    _Alignas(64) dv_page_header header;
    /* That of the config page; so many struct gpu follow. */
    uint32_t device_count;
    /* Slots from here on were never used. */
    uint32_t slot_count;
    uint8_t pad_24[40];
    /* 0 or slot + 1 of the process that changes the export table. */
    _Alignas(64) uint32_t export_lock;
    /* Set by who waits for export_lock. */
    uint32_t export_waiters;
    /* Counts slots whose balance was taken out of the totals. */
    uint32_t reaps;
    uint8_t pad_76[52];
    dv_page_slot slot[DV_PAGE_SLOTS];
    dv_page_export export[DV_PAGE_EXPORTS];
} dv_page_state;
_Static_assert(sizeof(dv_page_state) == 196736, "dv_page_state");
_Static_assert(_Alignof(dv_page_state) == 64, "dv_page_state");
_Static_assert(offsetof(dv_page_state, header) == 0, "dv_page_state.header");
_Static_assert(offsetof(dv_page_state, device_count) == 16, "dv_page_state.device_count");
_Static_assert(offsetof(dv_page_state, slot_count) == 20, "dv_page_state.slot_count");
_Static_assert(offsetof(dv_page_state, export_lock) == 64, "dv_page_state.export_lock");
_Static_assert(offsetof(dv_page_state, export_waiters) == 68, "dv_page_state.export_waiters");
_Static_assert(offsetof(dv_page_state, reaps) == 72, "dv_page_state.reaps");
_Static_assert(offsetof(dv_page_state, slot) == 128, "dv_page_state.slot");
_Static_assert(offsetof(dv_page_state, export) == 65664, "dv_page_state.export");

/* What a process holds on a GPU after an operation, in units. */
typedef struct dv_page_intent {
    uint32_t charged;
    /* Reserved for driver calls under way. */
    uint32_t pending;
    /* What only measurement shows. */
    uint32_t overhead;
    /* What becomes of an export with this operation, see action_none. */
    uint32_t action;
} dv_page_intent;
_Static_assert(sizeof(dv_page_intent) == 16, "dv_page_intent");
_Static_assert(_Alignof(dv_page_intent) == 4, "dv_page_intent");
_Static_assert(offsetof(dv_page_intent, charged) == 0, "dv_page_intent.charged");
_Static_assert(offsetof(dv_page_intent, pending) == 4, "dv_page_intent.pending");
_Static_assert(offsetof(dv_page_intent, overhead) == 8, "dv_page_intent.overhead");
_Static_assert(offsetof(dv_page_intent, action) == 12, "dv_page_intent.action");

/* The log of one process on one GPU; operation i is described by intent[i & 3]. */
typedef struct dv_page_record {
    _Alignas(64) dv_page_intent intent[4];
} dv_page_record;
_Static_assert(sizeof(dv_page_record) == 64, "dv_page_record");
_Static_assert(_Alignof(dv_page_record) == 64, "dv_page_record");
_Static_assert(offsetof(dv_page_record, intent) == 0, "dv_page_record.intent");

/* GPU time that a share may still spend, for all its processes together, and what it spent. */
typedef struct dv_page_bucket {
    /* ns; launches wait while it is negative. */
    _Alignas(64) int64_t balance;
    /* CLOCK_MONOTONIC ns up to which budget.rate has been added; 0 before the first time. */
    uint64_t refilled;
    /* ns, the part of budget.correction that has been added. */
    int64_t corrected;
    /* ns ever charged for launches, after budget.stretch. */
    uint64_t charged;
    /* Launches ever charged, in batches. */
    uint64_t launches;
    /* CLOCK_MONOTONIC ns at which a launch last had to wait for the balance or for budget.depth. */
    uint64_t wanted;
    /* ns that launches have waited, all threads together. */
    uint64_t waited;
    /* Launches admitted on debt because they had waited for the longest time. */
    uint64_t overdrawn;
    /* CLOCK_MONOTONIC ns at which something was last charged, to a millisecond. */
    uint64_t used;
    uint8_t pad_72[56];
} dv_page_bucket;
_Static_assert(sizeof(dv_page_bucket) == 128, "dv_page_bucket");
_Static_assert(_Alignof(dv_page_bucket) == 64, "dv_page_bucket");
_Static_assert(offsetof(dv_page_bucket, balance) == 0, "dv_page_bucket.balance");
_Static_assert(offsetof(dv_page_bucket, refilled) == 8, "dv_page_bucket.refilled");
_Static_assert(offsetof(dv_page_bucket, corrected) == 16, "dv_page_bucket.corrected");
_Static_assert(offsetof(dv_page_bucket, charged) == 24, "dv_page_bucket.charged");
_Static_assert(offsetof(dv_page_bucket, launches) == 32, "dv_page_bucket.launches");
_Static_assert(offsetof(dv_page_bucket, wanted) == 40, "dv_page_bucket.wanted");
_Static_assert(offsetof(dv_page_bucket, waited) == 48, "dv_page_bucket.waited");
_Static_assert(offsetof(dv_page_bucket, overdrawn) == 56, "dv_page_bucket.overdrawn");
_Static_assert(offsetof(dv_page_bucket, used) == 64, "dv_page_bucket.used");

/* A stretch in which a process had measured work on the GPU without a gap. */
typedef struct dv_page_interval {
    /* CLOCK_MONOTONIC ns at which the GPU came to its first launch. */
    uint64_t begin;
    /* And at which the last one ended. */
    uint64_t end;
    /* ns charged for these launches, after budget.stretch. */
    uint64_t charged;
} dv_page_interval;
_Static_assert(sizeof(dv_page_interval) == 24, "dv_page_interval");
_Static_assert(_Alignof(dv_page_interval) == 8, "dv_page_interval");
_Static_assert(offsetof(dv_page_interval, begin) == 0, "dv_page_interval.begin");
_Static_assert(offsetof(dv_page_interval, end) == 8, "dv_page_interval.end");
_Static_assert(offsetof(dv_page_interval, charged) == 16, "dv_page_interval.charged");

/* What one process tells the arbiter of its work on one GPU. An interval is written before count says so. */
typedef struct dv_page_worker {
    /* Whose it is: slot + 1 of the process (low owner_bits), owner_claiming, and above 16 bits the generation of the slot; 0 while nobody's. One whose process died may be taken over: every other field then begins at 0. */
    _Alignas(64) uint32_t owner;
    /* Intervals ever written; the last is interval[(count - 1) % intervals]. */
    uint32_t count;
    /* CLOCK_MONOTONIC ns since which there is work whose interval is not written yet; 0 without any. */
    uint64_t open_since;
    /* And when that is expected to end. */
    uint64_t open_until;
    /* ns ever charged for launches that no interval covers. */
    uint64_t unmeasured;
    dv_page_interval interval[DV_PAGE_INTERVALS];
    uint8_t pad_800[32];
} dv_page_worker;
_Static_assert(sizeof(dv_page_worker) == 832, "dv_page_worker");
_Static_assert(_Alignof(dv_page_worker) == 64, "dv_page_worker");
_Static_assert(offsetof(dv_page_worker, owner) == 0, "dv_page_worker.owner");
_Static_assert(offsetof(dv_page_worker, count) == 4, "dv_page_worker.count");
_Static_assert(offsetof(dv_page_worker, open_since) == 8, "dv_page_worker.open_since");
_Static_assert(offsetof(dv_page_worker, open_until) == 16, "dv_page_worker.open_until");
_Static_assert(offsetof(dv_page_worker, unmeasured) == 24, "dv_page_worker.unmeasured");
_Static_assert(offsetof(dv_page_worker, interval) == 32, "dv_page_worker.interval");

/* Lets one thread of a process at a time write its second lane of intents. */
typedef struct dv_page_gate {
    uint32_t lock;
    /* Set by threads that wait for the lock. */
    uint32_t waiters;
} dv_page_gate;
_Static_assert(sizeof(dv_page_gate) == 8, "dv_page_gate");
_Static_assert(_Alignof(dv_page_gate) == 4, "dv_page_gate");
_Static_assert(offsetof(dv_page_gate, lock) == 0, "dv_page_gate.lock");
_Static_assert(offsetof(dv_page_gate, waiters) == 4, "dv_page_gate.waiters");

/* The ledger of one GPU, and how its processes wait for each other. */
typedef struct dv_page_gpu {
    /* Units used (low 32 bits) and pending; changed only together with tag, as one 16-byte word. */
    _Alignas(64) uint64_t amounts;
    /* Slot (low slot_bits) and id of the operation that wrote the word last. */
    uint64_t tag;
    uint8_t pad_16[48];
    /* Futex word, counts wake-ups. */
    _Alignas(64) uint32_t wake;
    /* Set while somebody may wait on wake. */
    uint32_t waiting;
    /* Whose reservation goes next: slot + 1 (low slot_bits) and the millisecond at which that ends; or 0. */
    uint64_t turn;
    /* How much that reservation needs. */
    uint32_t turn_units;
    /* Counts refused reservations. */
    uint32_t refused;
    uint8_t pad_88[40];
    dv_page_bucket bucket;
    /* Per slot its last operation, unless that is the one in tag. */
    uint64_t applied[DV_PAGE_SLOTS];
    dv_page_gate gate[DV_PAGE_SLOTS];
    dv_page_record record[DV_PAGE_SLOTS];
    dv_page_worker worker[DV_PAGE_WORKERS];
} dv_page_gpu;
_Static_assert(sizeof(dv_page_gpu) == 135424, "dv_page_gpu");
_Static_assert(_Alignof(dv_page_gpu) == 64, "dv_page_gpu");
_Static_assert(offsetof(dv_page_gpu, amounts) == 0, "dv_page_gpu.amounts");
_Static_assert(offsetof(dv_page_gpu, tag) == 8, "dv_page_gpu.tag");
_Static_assert(offsetof(dv_page_gpu, wake) == 64, "dv_page_gpu.wake");
_Static_assert(offsetof(dv_page_gpu, waiting) == 68, "dv_page_gpu.waiting");
_Static_assert(offsetof(dv_page_gpu, turn) == 72, "dv_page_gpu.turn");
_Static_assert(offsetof(dv_page_gpu, turn_units) == 80, "dv_page_gpu.turn_units");
_Static_assert(offsetof(dv_page_gpu, refused) == 84, "dv_page_gpu.refused");
_Static_assert(offsetof(dv_page_gpu, bucket) == 128, "dv_page_gpu.bucket");
_Static_assert(offsetof(dv_page_gpu, applied) == 256, "dv_page_gpu.applied");
_Static_assert(offsetof(dv_page_gpu, gate) == 8448, "dv_page_gpu.gate");
_Static_assert(offsetof(dv_page_gpu, record) == 16640, "dv_page_gpu.record");
_Static_assert(offsetof(dv_page_gpu, worker) == 82176, "dv_page_gpu.worker");

#endif
