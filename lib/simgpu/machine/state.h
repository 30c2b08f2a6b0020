/* The shared file of one simulated machine: who uses it, who has which memory, and who computes
 * when.
 *
 * Every process that opens the simulated driver maps D/state. Its rules:
 *
 *  - The block tables, the objects and the clients' slots are the truth. Counters (bytes per
 *    client, per tenant, free blocks) are derived from them. Whoever takes the lock over from a
 *    holder that died counts them anew, so a process may be killed between any two stores.
 *  - A process owns one client slot for its life. It is alive as long as it holds the open file
 *    description lock (fcntl(2), F_OFD_SETLK) on byte SG_LOCK_BASE + slot of D/state. The kernel
 *    drops it at death, whatever the pid namespace.
 *  - Only the holder of the state lock writes block tables, objects, tags and counters. Lock order:
 *    state lock before a GPU's schedule lock before the lock of pages; none is held while a system call may sleep.
 *
 * All functions return 0 or a negative errno unless they say otherwise. Sizes are bytes, times are
 * nanoseconds of the instance's clock (sg_time), sizes of device memory are multiples of
 * SG_BLOCK_BYTES.
 */
#ifndef SIMGPU_MACHINE_STATE_H
#define SIMGPU_MACHINE_STATE_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "simgpu/machine/checkpoint.h"
#include "simgpu/machine/clock.h"
#include "simgpu/machine/engines.h"
#include "simgpu/machine/mig.h"
#include "simgpu/machine/modes.h"
#include "simgpu/machine/pages.h"
#include "simgpu/machine/pids.h"
#include "simgpu/machine/schedule.h"
#include "simgpu/machine/servers.h"

#define SG_PATH_BYTES 4096u
#define SG_MAGIC 0x5550474d49534744ull /* "DGSIMGPU" read as little-endian bytes */
#define SG_LAYOUT 15u                  /* changes with every change of this file's structures */
#define SG_VISITORS_MAX 1024u          /* openers without: NVML, simgpuctl */
#define SG_TAGS_MAX 512u
#define SG_OBJECTS_MAX 16384u
#define SG_EVENTS_MAX 1024u
#define SG_TAG_BYTES 64u
#define SG_COMM_BYTES 16u
#define SG_CALL_BYTES 64u
#define SG_CALL_FAULTS 16u
#define SG_FAULT_FOREVER UINT64_MAX
#define SG_MACHINE_BYTES (256u << 10)
#define SG_BLOCK_BYTES (2ull << 20)
#define SG_LOCK_BASE (1ll << 40)

/* What device memory is used for. */
enum sg_category {
    SG_CONTEXT, /* a context's own needs: code and its variables, stacks, page tables */
    SG_LINEAR,  /* cuMemAlloc, cuMemAllocPitch */
    SG_POOL,    /* memory pools, used or kept */
    SG_VMM,     /* cuMemCreate */
    SG_ARRAY,   /* arrays and mipmapped arrays */
    SG_MANAGED, /* managed memory that is resident on the device */
    SG_GRAPH,   /* reserved for memory nodes of graphs */
    SG_CATEGORIES,
};

/* One 2 MiB block: 0 is free. A private block belongs to a client, a shared one to an object. */
typedef uint64_t sg_block;
#define SG_BLOCK_PRIVATE (1ull << 63)
#define SG_BLOCK_SHARED (1ull << 62)
#define SG_BLOCK_DIRTY (1ull << 61) /* contents may differ from zero */
/* bits 56..59 category, 32..55 owner (client slot or object), 0..31 number within the object */
static inline enum sg_category sg_block_category(sg_block b) {
    return (enum sg_category)((b >> 56) & 15);
}
static inline uint32_t sg_block_owner(sg_block b) {
    return (uint32_t)((b >> 32) & 0xffffff);
}
static inline uint32_t sg_block_place(sg_block b) {
    return (uint32_t)b;
}

/* Survives the death of its holder; word = owner + 1 in the low 12 bits, a count above. */
struct sg_lock {
    uint32_t word;
    uint32_t contended; /* somebody may sleep on word */
};

struct sg_client {
    uint32_t generation; /* counts the owners of this slot */
    uint32_t tag;
    uint32_t place;    /* the compute instance that it uses, see mig.h; 0 is none */
    uint32_t pages;    /* whether it ever had managed memory: its pagers are there */
    struct sg_who who; /* information only */
    uint64_t started;  /* CLOCK_BOOTTIME ns */
    char comm[SG_COMM_BYTES];
    uint32_t contexts[SG_GPUS_MAX];             /* live contexts of this process per GPU */
    uint64_t bytes[SG_GPUS_MAX][SG_CATEGORIES]; /* derived; what it created and holds */
    uint64_t imported[SG_GPUS_MAX]; /* derived; others' objects it holds, not in bytes */
    uint64_t told[SG_GPUS_MAX];     /* what NVML tells of it, where that is late */
    struct sg_membership membership;
    struct sg_checkpoint checkpoint;
};

/* The processes of one tenant directory. bytes includes objects that outlive their creator. */
struct sg_tag {
    char name[SG_TAG_BYTES]; /* "" is the tag of processes outside any tenant directory: index 0 */
    uint64_t bytes[SG_GPUS_MAX];  /* derived; without managed memory */
    uint64_t peak[SG_GPUS_MAX];   /* the most it ever had at once, managed memory included */
    uint64_t gpu_ns[SG_GPUS_MAX]; /* work done by processes that have ended */
    uint64_t sm_ns[SG_GPUS_MAX];  /* likewise, of all multiprocessors */
    struct sg_page_account pages[SG_GPUS_MAX]; /* of its processes, also those that have ended */
};

/* Device memory that more than one process may hold. Lives while a holder bit is set or a
 * descriptor that stands for it is open. */
struct sg_object {
    uint32_t in_use;
    uint32_t gpu;
    uint32_t category;
    uint32_t blocks;
    uint32_t creator;            /* client slot, meaningful while creator_generation matches */
    uint32_t creator_generation; /* 0 once the creator has let go */
    uint32_t tag;                /* who is charged, also after the creator's death */
    uint32_t place, pad;         /* of the creator: whose instance's memory it is */
    uint32_t descriptors;        /* whether a descriptor was ever made that may keep it alive */
    uint64_t bytes;
    uint64_t key; /* random; a handle must show it */
    uint64_t holders[SG_CLIENTS_MAX / 64];
};

/* A fault of the calls with one exported name. */
struct sg_call_fault {
    char call[SG_CALL_BYTES];
    uint64_t left; /* calls that are still to fail; SG_FAULT_FOREVER: all */
    uint32_t result;
    uint32_t delay_us;
};

/* The last record of an event that several processes know. It lives as long as its owner, and
 * counts as done when its recorder is dead. */
struct sg_event {
    uint64_t key; /* random; a handle must show it; 0 is free */
    uint32_t owner, owner_generation;
    uint32_t recorder, recorder_generation; /* whose channel the position is of */
    uint32_t gpu;
    uint32_t pending; /* recorded in a stream that has not reached it */
    uint64_t position;
};

/* Faults on demand; written by simgpuctl, read by the libraries at every call. */
struct sg_faults {
    uint32_t armed;         /* 0 while no other member is set: all that a healthy machine reads */
    uint32_t cuda_result;   /* every launch, copy and synchronisation answers it; 0 = none */
    uint32_t alloc_result;  /* every allocation of device memory answers it */
    uint32_t nvml_result;   /* every NVML device query answers it */
    uint32_t call_delay_us; /* added to every call that enters the driver */
    uint32_t silence;       /* which NVML calls never return while it stands: enum sg_silence */
    uint32_t
        unresettable; /* the driver cannot reset the GPU, as in a virtual machine that was given it */
    uint32_t pad;
    uint64_t xid;    /* last injected Xid; information for event readers */
    uint64_t resets; /* of the GPU so far: who has NVML open from before lost it */
    struct sg_call_fault calls[SG_CALL_FAULTS];
};

struct sg_gpu {
    uint64_t total_bytes;    /* physical memory */
    uint64_t reserved_bytes; /* held by the driver itself, never for clients */
    uint32_t block_count;    /* (total - reserved) / SG_BLOCK_BYTES */
    uint32_t free_blocks; /* derived; those that managed memory is in count as free: it gives way */
    uint32_t search_from; /* hint: no free block below it */
    uint32_t compute_mode;  /* enum sg_compute_mode */
    uint64_t peak_bytes;    /* most bytes ever used by clients at once */
    uint64_t blocks_offset; /* of this GPU's sg_block table in the file */
    struct sg_lock schedule_lock;
    uint64_t told_at;     /* when NVML last took what processes have, where that is late */
    uint64_t clock;       /* the schedule is decided up to here */
    uint64_t slice_left;  /* of the current channel */
    uint64_t checked;     /* when the runnable clients were last seen alive */
    uint32_t current;     /* party whose slice it is */
    uint32_t slice_level; /* enum sg_slice_level */
    uint64_t busy_ns;     /* time ever spent executing anything */
    uint64_t sm_ns;       /* the same of all multiprocessors */
    struct sg_step step;
    uint64_t runnable[SG_CLIENTS_MAX / 64]; /* clients with work */
    uint64_t turns[SG_CLIENTS_MAX / 64];    /* derived; parties of which a member has work */
    uint64_t samples[SG_SAMPLES]; /* busy_ns at sample boundary k, at index k % SG_SAMPLES */
    struct sg_faults faults;
    struct sg_mig mig;
    struct sg_gpu_pages pages;
};

/* The hand-over of a dead process's GPU time to its tag; finished by whoever takes the state lock
 * over while it is under way. */
struct sg_hand_over {
    uint32_t under_way;
    uint32_t client, gpu, tag;
    uint64_t gpu_ns, sm_ns; /* the tag's in the end */
};

struct sg_state {
    uint64_t magic;
    uint32_t layout;
    uint32_t gpu_count;
    uint64_t file_bytes;
    uint64_t slice_ns; /* default time slice */
    uint64_t time;     /* of a virtual clock */
    uint32_t is_virtual;
    uint32_t moves; /* counts the moves of a virtual clock; those who wait for one sleep on it */
    uint64_t key_seed;
    struct sg_lock lock;
    uint64_t channels_offset; /* of struct sg_channel [SG_CLIENTS_MAX][gpu_count] in the file */
    uint64_t clients_used[SG_CLIENTS_MAX / 64]; /* slots in use: the last store when one is taken */
    struct sg_hand_over hand_over;
    struct sg_lock pages_lock;
    struct sg_pages pages;
    struct sg_server servers[SG_SERVERS_MAX];
    uint32_t objects_end;  /* no object was ever made at or above this number */
    uint32_t dead_handles; /* passed by programs after they had ended */
    uint32_t servers_made; /* ever: the last one's number */
    uint32_t pad;
    uint64_t machine_bytes;
    unsigned char machine[SG_MACHINE_BYTES];
    struct sg_gpu gpus[SG_GPUS_MAX];
    struct sg_tag tags[SG_TAGS_MAX];
    struct sg_object objects[SG_OBJECTS_MAX];
    struct sg_event events[SG_EVENTS_MAX];
    struct sg_client clients[SG_CLIENTS_MAX];
};

/* One opening of a state file by this process. */
struct sg_instance {
    struct sg_state *state;
    size_t mapped;
    int fd;                      /* holds the locks; CLOEXEC */
    int who_fd;                  /* holds the flock of sg_who; CLOEXEC, -1 without */
    uint32_t id;                 /* client slot, or SG_CLIENTS_MAX + visitor number */
    int memory_fds[SG_GPUS_MAX]; /* of D/memory-<i>, -1 until needed; written under the state
    lock */
    pthread_mutex_t
        state_threads; /* taken before the state lock, which excludes processes, not threads */
    pthread_mutex_t schedule_threads[SG_GPUS_MAX];
    pthread_mutex_t pages_threads;
    uint64_t displaced; /* when what the last blocks taken displaced has left; 0: nothing had to */
    char dir[SG_PATH_BYTES]; /* instance directory D */
};

struct sg_create_gpu {
    uint64_t total_bytes;
    uint64_t reserved_bytes;
    bool mig; /* begins in MIG mode */
};

struct sg_create {
    uint32_t gpu_count;
    struct sg_create_gpu gpus[SG_GPUS_MAX];
    uint64_t slice_ns; /* 0 takes 1024 us, the default of Volta and later */
    bool virtual_clock;
    struct sg_page_costs pages;
    const void *machine;
    size_t machine_bytes;
};

/* state.c: the file. */
/* Makes dir/state and one sparse dir/memory-<i> per GPU; dir must exist. -EEXIST if there is
   one. */
int sg_state_create(const char *dir, const struct sg_create *spec);
/* Maps dir/state and takes an identity: a client slot (as_client) or a visitor's number.
 * -ENOENT no such instance, -EINVAL not a state file, -ESTALE another layout, -EUSERS none free,
 * -ENOSPC no room for what a client needs. */
int sg_open(struct sg_instance *in, const char *dir, const char *tag, bool as_client);
/* Frees everything that this opening holds, as the death of the process would. */
void sg_close(struct sg_instance *in);
/* For the child of fork: drops the parent's identity without ending it. */
void sg_abandon(struct sg_instance *in);
/* The description handed to sg_state_create. */
const void *sg_state_machine(const struct sg_instance *in, size_t *bytes);
static inline sg_block *sg_blocks(const struct sg_instance *in, uint32_t gpu) {
    return (sg_block *)((char *)in->state + in->state->gpus[gpu].blocks_offset);
}

/* Whether anybody has managed memory. */
static inline bool sg_paging(const struct sg_instance *in) {
    return __atomic_load_n(&in->state->pages.used, __ATOMIC_ACQUIRE) != 0;
}

/* find.c: finding D. Writes the instance directory and the tenant tag for a library whose own file
 * (or anything in it) is at `self`: a `simgpu` link beside it, that directory itself, or the
 * environment's DIVVY_SIMGPU. -ENOENT when there is none. */
int sg_find(const void *self, char dir[SG_PATH_BYTES], char tag[SG_TAG_BYTES]);

static inline struct sg_channel *sg_channel(const struct sg_instance *in, uint32_t client,
                                            uint32_t gpu) {
    struct sg_channel *first =
        (struct sg_channel *)((char *)in->state + in->state->channels_offset);

    return first + (size_t)client * in->state->gpu_count + gpu;
}
/* The file of a GPU's contents; a negative errno when it cannot be opened. */
int sg_memory_fd(struct sg_instance *in, uint32_t gpu);

/* lock.c */
/* Takes a lock of the file; true when its holder had died and what it protects may be half changed. */
bool sg_acquire(struct sg_instance *in, struct sg_lock *lock);
void sg_release(struct sg_lock *lock);
/* Takes it over if a dead process held it under the number that is now ours. */
bool sg_inherited(struct sg_instance *in, struct sg_lock *lock);
/* The state lock; recovers from a dead holder before it returns. */
void sg_state_lock(struct sg_instance *in);
void sg_state_unlock(struct sg_instance *in);
/* The lock of one GPU's schedule. */
void sg_schedule_lock(struct sg_instance *in, uint32_t gpu);
void sg_schedule_unlock(struct sg_instance *in, uint32_t gpu);
/* Gives up the lock if a dead process held it under the number that is now ours. */
void sg_schedule_inherited(struct sg_instance *in, uint32_t gpu);
/* Whether another opening with this identity lives; true for one's own. */
bool sg_alive(const struct sg_instance *in, uint32_t id);

/* reap.c; the state lock is held. */
/* Frees everything of dead clients; returns how many there were. */
unsigned sg_reap(struct sg_instance *in);
/* The same of those clients alone that have something on a GPU. */
void sg_reap_gpu(struct sg_instance *in, uint32_t gpu);
/* Whether somebody but this process has the machine open, also for NVML alone; the state lock is held. Frees what dead
 * processes had on the GPU. */
bool sg_opened_elsewhere(struct sg_instance *in, uint32_t gpu);
/* Finishes the hand-over that a holder of the state lock died in. */
void sg_reap_repair(struct sg_instance *in);
/* Frees everything of one client and its slot. */
void sg_reap_client(struct sg_instance *in, uint32_t client);
/* Derives all counters anew from block tables, objects and slots. */
void sg_recount(struct sg_instance *in);
/* The next client: for (i = 0; (i = sg_next_client(in, i)) < SG_CLIENTS_MAX; i++) */
uint32_t sg_next_client(const struct sg_instance *in, uint32_t from);
/* Bytes of GPU gpu used by all clients together and by one, managed memory included. */
uint64_t sg_gpu_used(const struct sg_instance *in, uint32_t gpu);
uint64_t sg_client_used(const struct sg_instance *in, uint32_t client, uint32_t gpu);
/* blocks.c: the same of a tenant, and its peak and the GPU's raised to what is used now. */
uint64_t sg_tag_used(const struct sg_instance *in, uint32_t tag, uint32_t gpu);
void sg_note_peak(struct sg_instance *in, uint32_t gpu, uint32_t tag);

/* blocks.c; the state lock is held. */
/* Gives the caller's client n blocks and writes their numbers. -ENOMEM when fewer are free even
 * after reaping; nothing is taken then. */
int sg_blocks_take(struct sg_instance *in, uint32_t gpu, enum sg_category category, uint32_t n,
                   uint32_t *numbers);
/* Makes the contents of private blocks of the caller read as zero; needs no lock. Worth doing
 * before the lock is taken for sg_blocks_return, which would do it with everybody waiting. */
void sg_blocks_clean(struct sg_instance *in, uint32_t gpu, uint32_t n, const uint32_t *numbers);
/* Returns private blocks of the caller. */
void sg_blocks_return(struct sg_instance *in, uint32_t gpu, uint32_t n, const uint32_t *numbers);
/* Turns private blocks of the caller into an object with the caller as holder. -ENOSPC table
   full. */
int sg_object_create(struct sg_instance *in, uint32_t gpu, uint32_t n, const uint32_t *numbers,
                     uint64_t bytes, uint32_t *object);
/* Makes the caller a holder and writes the object's block numbers (at most capacity; in order).
 * -ENOENT when there is no such object with that key. */
int sg_object_hold(struct sg_instance *in, uint32_t object, uint64_t key, uint32_t *numbers,
                   uint32_t capacity);
/* A number that cannot be guessed. */
uint64_t sg_new_key(struct sg_instance *in);
/* The key of an object of the caller's. */
uint64_t sg_object_key(const struct sg_instance *in, uint32_t object);
/* Ends the caller's hold; frees the object with its last holder. */
void sg_object_drop(struct sg_instance *in, uint32_t object);
/* Frees an object that has neither holder nor descriptor. */
void sg_object_settle(struct sg_instance *in, uint32_t object);
/* The same as dropping for any client: for reaping. */
void sg_object_drop_for(struct sg_instance *in, uint32_t object, uint32_t client);

/* export.c */
/* A descriptor that stands for the object and keeps it alive while it is open anywhere. */
int sg_export(struct sg_instance *in, uint32_t object);
/* Lets such a descriptor keep one more object alive. */
int sg_export_more(struct sg_instance *in, uint32_t object, int fd);
/* Which object a descriptor stands for. -EINVAL none of this machine, -ENOENT it is gone. */
int sg_exported(struct sg_instance *in, int fd, uint32_t *object, uint64_t *key);
bool sg_export_open(struct sg_instance *in, uint32_t object);

#endif
