/* Opens a share. Checks both pages before it uses anything in them. */
#define _GNU_SOURCE /* statx */
#include "share/state.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "libc/cancel.h"
#include "libc/kernel.h"

/* The agent writes a config page in microseconds. If it is killed while it writes, the sequence
 * number stays odd until the agent is back. */
#define SEQLOCK_TRIES 1000u

/* Limits are counted in units of 32 bits. With a limit above half of that, nothing could be charged
 * past the limit. */
#define LIMIT_MAX ((uint64_t)(UINT32_MAX / 2) * DV_PAGE_UNIT)

const char *dv_status_name(dv_status status) {
    switch (status) {
    case DV_OK:
        return "done";
    case DV_NO_MEMORY:
        return "the amount does not fit into the limit";
    case DV_NO_SHARE:
        return "the share's pages cannot be opened";
    case DV_CORRUPT:
        return "a page of the share is damaged";
    case DV_OLD_PAGE:
        return "a page of the share has another version";
    case DV_NO_SLOT:
        return "a table of the share is full";
    case DV_BUSY:
        return "a neighbour kept the ledger for too long";
    case DV_NO_EXPORT:
        return "no exported memory has this key";
    case DV_NO_DEVICE:
        return "the share has no such GPU";
    }
    return "unknown status";
}

__attribute__((format(printf, 3, 4))) static dv_status because(dv_reason *reason, dv_status status,
                                                               const char *format, ...) {
    va_list args;
    va_start(args, format);
    if (reason != NULL) {
        vsnprintf(reason->text, sizeof reason->text, format, args);
    }
    va_end(args);
    return status;
}

static dv_status check_header(const dv_page_header *header, uint64_t magic, size_t size,
                              size_t expected, const char *page, dv_reason *reason) {
    if (header->magic != magic) {
        return because(reason, DV_CORRUPT,
                       "the %s page is not a page of Divvy's; stop the share and start it again",
                       page);
    }
    if (header->version != DV_PAGE_VERSION) {
        return because(
            reason, DV_OLD_PAGE,
            "the %s page has version %u, this library reads %u; stop the share and start "
            "it with the divvy that the library belongs to",
            page, header->version, DV_PAGE_VERSION);
    }
    if (header->size != expected || size != expected) {
        return because(reason, DV_CORRUPT,
                       "the %s page has %zu bytes, says %u and should have %zu; stop the share and "
                       "start it again",
                       page, size, header->size, expected);
    }
    return DV_OK;
}

/* Whether an open page is the file that lies in the share's directory. It is not where a function
 * before libc's returned another file, which the inode tells, or where a file is mounted over it in
 * a mount namespace of the program's own, which the mount tells: not that of the state page, which
 * is mounted by itself in a container, because the rest is read-only there. Nothing is known, and
 * the page is taken, where the kernel does not tell mounts (before 5.8) or may not be asked. */
static bool lies_in_directory(int file, const char *path, bool own_mount) {
    char directory[4096];
    struct statx opened, named, around;
    size_t length = (size_t)(strrchr(path, '/') - path);
    if (length >= sizeof directory) {
        return false;
    }
    memcpy(directory, path, length);
    directory[length] = '\0';
    unsigned mask = STATX_INO | STATX_MNT_ID;
    if (kernel_statx(file, "", AT_EMPTY_PATH, mask, &opened) != 0 ||
        kernel_statx(AT_FDCWD, path, AT_SYMLINK_NOFOLLOW, mask, &named) != 0 ||
        kernel_statx(AT_FDCWD, directory, 0, mask, &around) != 0) {
        return true;
    }
    bool same = opened.stx_ino == named.stx_ino && opened.stx_dev_major == named.stx_dev_major &&
                opened.stx_dev_minor == named.stx_dev_minor;
    bool told = !own_mount && (named.stx_mask & around.stx_mask & STATX_MNT_ID) != 0;
    return same && (!told || named.stx_mnt_id == around.stx_mnt_id);
}

/* Why a page cannot be opened. It is its user's alone, and a program may have become another one
 * in the share. */
static dv_status not_opened(const char *path, const char *page, int error, dv_reason *reason) {
    struct statx file;
    if (error == EACCES && kernel_statx(AT_FDCWD, path, 0, STATX_UID, &file) == 0 &&
        file.stx_uid != geteuid()) {
        return because(reason, DV_NO_SHARE,
                       "the share is user %u's and this program runs as user %u; become user %u "
                       "first and start divvy run then, not the other way round",
                       file.stx_uid, (unsigned)geteuid(), (unsigned)geteuid());
    }
    return because(reason, DV_NO_SHARE,
                   "open the %s page in the share's directory: %s; start the program with divvy "
                   "run, or check that the agent runs",
                   page, strerror(error));
}

/* Maps a whole page, or returns NULL. Checks the size before the first access, because an access
 * behind the end of the file raises SIGBUS. */
static void *map_page(const char *path, const char *page, bool writable, size_t at_least,
                      struct stat *status, dv_status *result, dv_reason *reason) {
    int file = open(path, (writable ? O_RDWR : O_RDONLY) | O_CLOEXEC | O_NOFOLLOW);
    if (file < 0) {
        *result = not_opened(path, page, errno, reason);
        return NULL;
    }
    void *map = NULL;
    if (kernel_fstat(file, status) != 0 || status->st_size < (off_t)at_least) {
        *result =
            because(reason, DV_CORRUPT,
                    "the %s page is truncated to %lld bytes; stop the share and start it again",
                    page, (long long)status->st_size);
    } else if (!lies_in_directory(file, path, strcmp(page, "state") == 0)) {
        *result = because(reason, DV_NO_SHARE,
                          "another file stands for the %s page of the share's directory; start the "
                          "program with divvy run, and mount nothing over that directory's files",
                          page);
    } else {
        int access = writable ? PROT_READ | PROT_WRITE : PROT_READ;
        map = mmap(NULL, (size_t)status->st_size, access, MAP_SHARED, file, 0);
        if (map == MAP_FAILED) {
            *result =
                because(reason, DV_NO_SHARE, "map the %s page: %s; free some memory and try again",
                        page, strerror(errno));
            map = NULL;
        }
    }
    close(file);
    return map;
}

static dv_status copy_device(const dv_page_device *from, unsigned number, dv_page_device *to,
                             dv_reason *reason) {
    memcpy(to, from, sizeof *to);
    to->limit = load64(&from->limit);
    to->pci_bus_id[sizeof to->pci_bus_id - 1] = '\0';
    bool sane = to->limit > 0 && to->limit <= LIMIT_MAX && to->policy < DV_PAGE_POLICIES &&
                to->class < DV_PAGE_CLASSES && to->cores <= 100 && to->max_cores <= 100 &&
                to->weight > 0;
    return sane ? DV_OK
                : because(reason, DV_CORRUPT,
                          "the config page has impossible values for GPU %u (limit %llu bytes, %u "
                          "cores); stop the share and start it again",
                          number, (unsigned long long)to->limit, to->cores);
}

/* The socket of the control daemon that lies in the directory must have a name (unix(7)). */
static dv_status copy_pipe(dv_share *share, dv_reason *reason) {
    const dv_page_config *config = share->config;
    share->mps = (config->flags & DV_PAGE_FLAG_MPS) != 0;
    memcpy(share->mps_pipe, config->mps_pipe, sizeof share->mps_pipe);
    size_t length = strnlen(share->mps_pipe, sizeof share->mps_pipe);
    bool sane = share->mps ? share->mps_pipe[0] == '/' && share->device_count == 1 &&
                                 length + strlen("/control") < sizeof share->mps_pipe
                           : length == 0;
    return sane ? DV_OK
                : because(reason, DV_CORRUPT,
                          "the config page names no MPS control daemon that this share's %u GPUs "
                          "could have; stop the share and start it again",
                          share->device_count);
}

/* The library finds an instance by the GPU on which it lies. */
static dv_status check_parents(dv_share *share, dv_reason *reason) {
    static const uint8_t none[sizeof share->device[0].parent];
    share->mig = (share->config->flags & DV_PAGE_FLAG_MIG) != 0;
    for (unsigned i = 0; i < share->device_count; i++) {
        bool named = memcmp(share->device[i].parent, none, sizeof none) != 0;
        if (named != share->mig) {
            return because(
                reason, DV_CORRUPT,
                "the config page %s MIG parent for device %u; stop the share and start it again",
                named ? "has no MIG instances and names a" : "has MIG instances and names no", i);
        }
    }
    return DV_OK;
}

static dv_status copy_config(dv_share *share, dv_reason *reason) {
    const dv_page_config *config = share->config;
    uint32_t count = config->device_count;
    if (count == 0 || count > DV_PAGE_DEVICES) {
        return because(reason, DV_CORRUPT,
                       "the config page names %u GPUs; stop the share and start it again", count);
    }
    share->device_count = count;
    share->swap = (config->flags & DV_PAGE_FLAG_SWAP) != 0;
    if (share->swap && count % 2 != 0) {
        return because(reason, DV_CORRUPT,
                       "the config page names %u devices of a swap share; stop the share and "
                       "start it again",
                       count);
    }
    for (unsigned i = 0; i < count; i++) {
        dv_status status = copy_device(&config->device[i], i, &share->device[i], reason);
        if (status != DV_OK) {
            return status;
        }
    }
    dv_status status = check_parents(share, reason);
    return status == DV_OK ? copy_pipe(share, reason) : status;
}

static dv_status read_config(dv_share *share, dv_reason *reason) {
    for (unsigned i = 0; i < SEQLOCK_TRIES; i++) {
        uint32_t before = load32(&share->config->sequence);
        if (before % 2 == 0) {
            dv_status status = copy_config(share, reason);
            load_fence();
            if (load32(&share->config->sequence) == before) {
                return status;
            }
        }
        sched_yield();
    }
    return because(reason, DV_CORRUPT,
                   "the config page is half written; the agent died while writing, start it again");
}

static dv_status map_config(dv_share *share, dv_reason *reason) {
    struct stat status;
    dv_status result = DV_OK;
    share->config =
        map_page(share->path, "config", false, sizeof(dv_page_header), &status, &result, reason);
    if (share->config == NULL) {
        return result;
    }
    share->config_size = (size_t)status.st_size;
    share->owner_of_config = status.st_uid;
    result = check_header(&share->config->header, DV_PAGE_CONFIG_MAGIC, share->config_size,
                          sizeof(dv_page_config), "config", reason);
    return result == DV_OK ? read_config(share, reason) : result;
}

static dv_status map_state(dv_share *share, dv_reason *reason) {
    struct stat status;
    dv_status result = DV_OK;
    size_t size = sizeof(dv_page_state) + share->device_count * sizeof(dv_page_gpu);
    share->state = map_page(share->path, "state", share->writable, sizeof(dv_page_header), &status,
                            &result, reason);
    if (share->state == NULL) {
        return result;
    }
    share->gpu = (dv_page_gpu *)(void *)(share->state + 1);
    share->state_size = (size_t)status.st_size;
    share->state_inode = status.st_ino;
    share->state_filesystem = status.st_dev;
    result = check_header(&share->state->header, DV_PAGE_STATE_MAGIC, share->state_size, size,
                          "state", reason);
    if (result == DV_OK && load32(&share->state->device_count) != share->device_count) {
        return because(
            reason, DV_CORRUPT,
            "the state page is not for the %u GPUs of the config page; stop the share and "
            "start it again",
            share->device_count);
    }
    return result;
}

static void unmap_share(dv_share *share) {
    if (share->state != NULL) {
        munmap(share->state, share->state_size);
    }
    if (share->config != NULL) {
        munmap((void *)(uintptr_t)share->config, share->config_size);
    }
    munmap(share, sizeof *share);
}

static dv_status build_share(dv_share *share, const char *dir, dv_reason *reason) {
    int room = (int)sizeof share->path;
    if (snprintf(share->path, sizeof share->path, "%s/config", dir) >= room) {
        return because(reason, DV_NO_SHARE,
                       "the path of the share's directory is too long; move it");
    }
    dv_status status = map_config(share, reason);
    if (status == DV_OK) {
        /* "state" is shorter than "config", so it fits too. The path is kept for opening the page
         * again. */
        snprintf(share->path, sizeof share->path, "%s/state", dir);
        status = map_state(share, reason);
    }
    share->slot = SLOT_NONE;
    share->slot_file = -1;
    share->pid_namespace = os_pid_namespace();
    return status;
}

dv_status open_share(const char *dir, bool writable, dv_share **out, dv_reason *reason) {
    UNCANCELLED;
    int saved = errno;
    *out = NULL;
    if (reason != NULL) {
        reason->text[0] = '\0';
    }
    /* mmap and not malloc, because a program may bring its own malloc and run this in a
     * constructor. */
    dv_share *share =
        mmap(NULL, sizeof *share, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (share == MAP_FAILED) {
        return because(reason, DV_NO_SHARE, "map memory for the share: %s", strerror(errno));
    }
    share->writable = writable;
    dv_status status = build_share(share, dir, reason);
    if (status == DV_OK) {
        *out = share;
    } else {
        unmap_share(share);
    }
    errno = saved;
    return status;
}

dv_status dv_share_open(const char *dir, dv_share **out, dv_reason *reason) {
    return open_share(dir, true, out, reason);
}
