/* The file of a simulated machine: creation, opening, identities. */
#define _GNU_SOURCE
#include "simgpu/machine/state.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "libc/kernel.h"

static uint64_t page_up(uint64_t n) {
    return (n + 4095) & ~UINT64_C(4095);
}

static int open_in(const char *dir, const char *name, int flags) {
    char path[SG_PATH_BYTES + 32];

    if (snprintf(path, sizeof path, "%s/%s", dir, name) >= (int)sizeof path) {
        return -ENAMETOOLONG;
    }
    int fd = open(path, flags | O_CLOEXEC, 0600);
    /* Files that root makes can be used by everybody, as the driver's devices can; the directory's
     * permissions keep others out. */
    if (fd >= 0 && (flags & O_CREAT) && geteuid() == 0) {
        fchmod(fd, 0666);
    }
    return fd < 0 ? -errno : fd;
}

static void memory_name(char name[32], uint32_t gpu) {
    snprintf(name, 32, "memory-%u", gpu);
}

static int create_file(const char *dir, const char *name, uint64_t bytes) {
    int result = 0;
    int fd = open_in(dir, name, O_RDWR | O_CREAT | O_TRUNC);

    if (fd < 0) {
        return fd;
    }
    if (ftruncate(fd, (off_t)bytes) != 0) {
        result = -errno;
    }
    close(fd);
    return result;
}

/* The tables of managed memory have pages once somebody has such memory. */
static uint64_t lay_out_pages(struct sg_state *st, const struct sg_create *spec, uint64_t at) {
    for (uint32_t i = 0; i < spec->gpu_count; i++) {
        struct sg_gpu_pages *pages = &st->gpus[i].pages;
        pages->arrivals_room = st->gpus[i].block_count + st->gpus[i].block_count / 4 + 16;
        pages->arrivals_offset = at;
        at += page_up(pages->arrivals_room * sizeof(uint64_t));
    }
    st->pages.chunks_offset = at;
    at += page_up(SG_CHUNKS_MAX * sizeof(struct sg_chunk));
    st->pages.pagers_offset = at;
    return at + page_up(sizeof(struct sg_pager) * SG_CLIENTS_MAX * spec->gpu_count);
}

static void set_costs(struct sg_state *st, const struct sg_create *spec) {
    struct sg_page_costs *costs = &st->pages.costs;

    *costs = spec->pages;
    costs->fault_ns = costs->fault_ns ? costs->fault_ns : SG_PAGE_FAULT_NS;
    costs->batch = costs->batch ? costs->batch : SG_PAGE_BATCH;
}

/* Lays the tables out behind the fixed part and returns the size of the file. */
static uint64_t lay_out(struct sg_state *st, const struct sg_create *spec) {
    uint64_t at = page_up(sizeof *st);

    for (uint32_t i = 0; i < spec->gpu_count; i++) {
        struct sg_gpu *gpu = &st->gpus[i];
        gpu->total_bytes = spec->gpus[i].total_bytes;
        gpu->reserved_bytes = spec->gpus[i].reserved_bytes;
        gpu->block_count = (uint32_t)((gpu->total_bytes - gpu->reserved_bytes) / SG_BLOCK_BYTES);
        gpu->free_blocks = gpu->block_count;
        gpu->mig.on = gpu->mig.pending = spec->gpus[i].mig;
        gpu->blocks_offset = at;
        gpu->clock = spec->virtual_clock ? 0 : sg_now();
        gpu->current = SG_CLIENTS_MAX - 1; /* the first turn is the first slot's */
        at += page_up(gpu->block_count * sizeof(sg_block));
    }
    st->channels_offset = at;
    at += page_up(sizeof(struct sg_channel) * SG_CLIENTS_MAX * spec->gpu_count);
    return lay_out_pages(st, spec, at);
}

static int check_spec(const struct sg_create *spec) {
    if (spec->gpu_count == 0 || spec->gpu_count > SG_GPUS_MAX ||
        spec->machine_bytes > SG_MACHINE_BYTES) {
        return -EINVAL;
    }
    for (uint32_t i = 0; i < spec->gpu_count; i++) {
        const struct sg_create_gpu *gpu = &spec->gpus[i];
        if (gpu->total_bytes < gpu->reserved_bytes + SG_BLOCK_BYTES ||
            gpu->total_bytes >= (UINT64_C(1) << 44)) {
            return -EINVAL;
        }
    }
    return 0;
}

/* Fills the mapped new file; the magic is stored last, so that a half-made file is not taken for
 * one. */
static void fill(struct sg_state *st, const struct sg_create *spec) {
    st->layout = SG_LAYOUT;
    st->gpu_count = spec->gpu_count;
    st->is_virtual = spec->virtual_clock;
    st->slice_ns = spec->slice_ns ? spec->slice_ns : 1024000;
    set_costs(st, spec);
    st->machine_bytes = spec->machine_bytes;
    if (spec->machine_bytes) {
        memcpy(st->machine, spec->machine, spec->machine_bytes);
    }
    if (kernel_getrandom(&st->key_seed, sizeof st->key_seed, GRND_NONBLOCK) < 0) {
        st->key_seed = sg_now();
    }
    __atomic_store_n(&st->magic, SG_MAGIC, __ATOMIC_RELEASE);
}

int sg_state_create(const char *dir, const struct sg_create *spec) {
    char name[32];
    int result = check_spec(spec);

    if (result) {
        return result;
    }
    int fd = open_in(dir, "state", O_RDWR | O_CREAT | O_EXCL);
    if (fd < 0) {
        return fd;
    }
    result = create_file(dir, "exports", 0);
    for (uint32_t i = 0; i < spec->gpu_count && !result; i++) {
        memory_name(name, i);
        result = create_file(dir, name, spec->gpus[i].total_bytes);
    }
    if (!result && ftruncate(fd, (off_t)page_up(sizeof(struct sg_state))) != 0) {
        result = -errno;
    }
    if (!result) {
        struct sg_state *st = mmap(NULL, sizeof *st, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        if (st == MAP_FAILED) {
            result = -errno;
        } else {
            st->file_bytes = lay_out(st, spec);
            if (ftruncate(fd, (off_t)st->file_bytes) != 0) {
                result = -errno;
            }
            /* Allocates the tables' pages now, so that a full file system is an error here and no
             * SIGBUS later.
             */
            if (!result && (result = posix_fallocate(fd, 0, (off_t)st->channels_offset)) != 0) {
                result = -result;
            }
            if (!result) {
                fill(st, spec);
            }
            munmap(st, sizeof *st);
        }
    }
    close(fd);
    return result;
}

static int check_header(const struct sg_state *st, uint64_t size) {
    if (__atomic_load_n(&st->magic, __ATOMIC_ACQUIRE) != SG_MAGIC) {
        return -EINVAL;
    }
    if (st->layout != SG_LAYOUT) {
        return -ESTALE;
    }
    if (st->file_bytes != size || st->gpu_count == 0 || st->gpu_count > SG_GPUS_MAX ||
        st->machine_bytes > SG_MACHINE_BYTES) {
        return -EINVAL;
    }
    return 0;
}

/* Maps the file through a description of its own: a mapping keeps its description alive in every
 * child of fork, and the locks must not live that long. */
static int map(struct sg_instance *in) {
    struct stat info;
    int result = 0;
    int fd = open_in(in->dir, "state", O_RDWR);

    if (fd < 0) {
        return fd;
    }
    if (kernel_fstat(fd, &info) != 0) {
        result = -errno;
    } else if (!S_ISREG(info.st_mode) || (uint64_t)info.st_size < sizeof(struct sg_state)) {
        result = -EINVAL;
    }
    if (!result) {
        in->mapped = (size_t)info.st_size;
        in->state =
            mmap(NULL, in->mapped, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd, 0);
        if (in->state == MAP_FAILED) {
            result = -errno;
        } else if ((result = check_header(in->state, in->mapped)) != 0) {
            munmap(in->state, in->mapped);
        }
    }
    if (result) {
        in->state = NULL;
    }
    close(fd);
    return result;
}

static int take_identity(struct sg_instance *in, bool as_client) {
    uint32_t first = as_client ? 0 : SG_CLIENTS_MAX;
    uint32_t count = as_client ? SG_CLIENTS_MAX : SG_VISITORS_MAX;

    for (uint32_t i = 0; i < count; i++) {
        struct flock lock = {.l_type = F_WRLCK,
                             .l_whence = SEEK_SET,
                             .l_start = SG_LOCK_BASE + first + i,
                             .l_len = 1};
        if (fcntl(in->fd, F_OFD_SETLK, &lock) == 0) {
            in->id = first + i;
            return 0;
        }
        if (errno != EAGAIN && errno != EACCES) {
            return -errno;
        }
    }
    return -EUSERS;
}

/* The tag's index in the table. A tag without members or bytes may be replaced. */
static uint32_t tag_place(struct sg_state *st, const char *name) {
    bool used[SG_TAGS_MAX] = {true};

    for (uint32_t i = 0; i < SG_TAGS_MAX && (i == 0 || st->tags[i].name[0]); i++) {
        if (strncmp(st->tags[i].name, name, SG_TAG_BYTES) == 0) {
            return i;
        }
    }
    for (uint32_t i = 0; i < SG_CLIENTS_MAX; i++) {
        if (st->clients_used[i / 64] >> (i % 64) & 1) {
            used[st->clients[i].tag % SG_TAGS_MAX] = true;
        }
    }
    for (int unnamed = 1; unnamed >= 0; unnamed--) {
        for (uint32_t i = 1; i < SG_TAGS_MAX; i++) {
            struct sg_tag *tag = &st->tags[i];
            uint64_t bytes = 0;
            for (uint32_t g = 0; g < st->gpu_count; g++) {
                bytes += tag->bytes[g];
            }
            if (used[i] || bytes || (unnamed && tag->name[0])) {
                continue;
            }
            memset(tag, 0, sizeof *tag);
            snprintf(tag->name, sizeof tag->name, "%s", name);
            return i;
        }
    }
    return 0;
}

static void claim(struct sg_instance *in, const struct sg_who *who, const char *tag) {
    struct sg_state *st = in->state;
    struct sg_client *client = &st->clients[in->id];
    struct timespec now;

    if (st->clients_used[in->id / 64] >> (in->id % 64) & 1) {
        sg_reap_client(in, in->id);
    }
    /* The generation only grows. It tells objects of the slot's dead owners from the new
       owner's. */
    __atomic_store_n(&client->generation, client->generation + 1, __ATOMIC_RELEASE);
    memset(&client->tag, 0, sizeof *client - offsetof(struct sg_client, tag));
    clock_gettime(CLOCK_BOOTTIME, &now);
    client->who = *who;
    client->tag = tag_place(st, tag);
    client->started = (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
    prctl(PR_GET_NAME, client->comm);
    __atomic_fetch_or(&st->clients_used[in->id / 64], UINT64_C(1) << (in->id % 64),
                      __ATOMIC_RELEASE);
}

/* Allocates the pages of the client's channels now, so that a full file system is an error here and
 * no SIGBUS later. */
static int back_channels(struct sg_instance *in) {
    uint64_t bytes = sizeof(struct sg_channel) * in->state->gpu_count;

    return -posix_fallocate(in->fd, (off_t)(in->state->channels_offset + in->id * bytes),
                            (off_t)bytes);
}

static void reset_threads(struct sg_instance *in) {
    pthread_mutex_init(&in->state_threads, NULL);
    pthread_mutex_init(&in->pages_threads, NULL);
    for (uint32_t i = 0; i < SG_GPUS_MAX; i++) {
        pthread_mutex_init(&in->schedule_threads[i], NULL);
    }
}

int sg_open(struct sg_instance *in, const char *dir, const char *tag, bool as_client) {
    struct sg_who who;

    memset(in, 0, sizeof *in);
    in->who_fd = -1;
    for (uint32_t i = 0; i < SG_GPUS_MAX; i++) {
        in->memory_fds[i] = -1;
    }
    if (snprintf(in->dir, sizeof in->dir, "%s", dir) >= (int)sizeof in->dir) {
        return -ENAMETOOLONG;
    }
    in->fd = open_in(dir, "state", O_RDWR);
    if (in->fd < 0) {
        return in->fd;
    }
    int result = map(in);
    if (!result && ((result = take_identity(in, as_client)) != 0 ||
                    (as_client && (result = back_channels(in)) != 0))) {
        munmap(in->state, in->mapped);
    }
    if (result) {
        close(in->fd);
        in->state = NULL;
        return result;
    }
    reset_threads(in);
    if (as_client) {
        in->who_fd = sg_who_describe(&who);
    }
    /* Also for visitors: the predecessor under this number may have died with locks in its name,
     * which counts as alive from now on. Who holds the state lock may be waiting for them: they go
     * before it is asked for. */
    for (uint32_t i = 0; i < in->state->gpu_count; i++) {
        sg_schedule_inherited(in, i);
    }
    sg_pages_inherited(in);
    sg_state_lock(in);
    if (as_client) {
        claim(in, &who, tag);
    }
    sg_state_unlock(in);
    return 0;
}

void sg_abandon(struct sg_instance *in) {
    if (!in->state) {
        return;
    }
    for (uint32_t i = 0; i < SG_GPUS_MAX; i++) {
        if (in->memory_fds[i] >= 0) {
            close(in->memory_fds[i]);
        }
    }
    if (in->who_fd >= 0) {
        close(in->who_fd);
    }
    close(in->fd);
    munmap(in->state, in->mapped);
    in->state = NULL;
    in->fd = in->who_fd = -1;
}

void sg_close(struct sg_instance *in) {
    if (!in->state) {
        return;
    }
    if (in->id < SG_CLIENTS_MAX) {
        sg_state_lock(in);
        sg_reap_client(in, in->id);
        sg_state_unlock(in);
    }
    sg_abandon(in);
}

const void *sg_state_machine(const struct sg_instance *in, size_t *bytes) {
    *bytes = in->state->machine_bytes;
    return in->state->machine;
}

int sg_memory_fd(struct sg_instance *in, uint32_t gpu) {
    char name[32];

    if (in->memory_fds[gpu] < 0) {
        memory_name(name, gpu);
        in->memory_fds[gpu] = open_in(in->dir, name, O_RDWR);
    }
    return in->memory_fds[gpu];
}
