/* Takes a slot, and tells whose slots are alive.
 *
 * A slot is alive while its process holds the OFD lock on the slot's byte. The lock belongs to an
 * open file description. A mapping that fork does not copy keeps that description open, and not a
 * descriptor: programs close descriptors that they do not know, and descriptors survive fork. The
 * mapping ends exactly with the process image, by exit, SIGKILL or execve. */
#include "share/state.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "libc/cancel.h"
#include "libc/kernel.h"

/* Opens T/state again; -1 unless it is the file that is mapped. */
int open_state(const dv_share *share, int flags) {
    int saved = errno;
    struct stat status;
    int file = open(share->path, flags | O_CLOEXEC | O_NOFOLLOW);
    if (file >= 0 && (kernel_fstat(file, &status) != 0 || status.st_ino != share->state_inode ||
                      status.st_dev != share->state_filesystem)) {
        close(file);
        file = -1;
    }
    errno = saved;
    return file;
}

/* A number that is the same for all copies of the library in one program and different after
 * execve. It comes from the kernel's random bytes, which libc uses as secrets. A digest of 32 bits
 * does not reveal them. */
static uint64_t program_image(void) {
    const unsigned char *bytes = (const unsigned char *)getauxval(AT_RANDOM); // NOLINT
    uint64_t digest = 0xcbf29ce484222325u;
    for (unsigned i = 0; bytes != NULL && i < 16; i++) {
        digest = (digest ^ bytes[i]) * 0x100000001b3u;
    }
    return (digest >> 32) | 1;
}

/* The slot that another copy of the library took for this process, or SLOT_NONE. */
static int find_own(const dv_share *share, uint32_t pid, uint64_t image) {
    unsigned count = slot_count(share);
    for (unsigned slot = 0; slot < count; slot++) {
        const dv_page_slot *info = &share->state->slot[slot];
        if (load32(&info->pid) == pid && load64(&info->image) == image &&
            load64(&info->start_time) == share->start_time &&
            load64(&info->pid_namespace) == share->pid_namespace) {
            return (int)slot;
        }
    }
    return SLOT_NONE;
}

/* Maps a page of the file in a way that fork does not copy. */
static bool pin_file(dv_share *share, int file) {
    size_t size = (size_t)sysconf(_SC_PAGESIZE);
    __atomic_store_n(&share->pin_inheritable, true, __ATOMIC_SEQ_CST);
    void *pin = mmap(NULL, size, PROT_READ, MAP_SHARED, file, 0);
    if (pin == MAP_FAILED) {
        return false;
    }
    share->pin = pin;
    bool pinned = madvise(pin, size, MADV_DONTFORK) == 0;
    if (!pinned) {
        munmap(pin, size);
        share->pin = NULL;
    }
    __atomic_store_n(&share->pin_inheritable, false, __ATOMIC_SEQ_CST);
    return pinned;
}

static void raise_slot_count(dv_page_state *state, uint32_t count) {
    for (unsigned i = 0; i < DV_PAGE_SLOTS; i++) {
        uint32_t present = load32(&state->slot_count);
        if (present >= count || swap32(&state->slot_count, present, count)) {
            return;
        }
    }
}

/* What the last process of the slot told of its turns. */
static void forget_present(dv_page_present *present) {
    store32(&present->takes_part, 0);
    store32(&present->unsaved, 0);
    store64(&present->done, 0);
    store64(&present->there, 0);
    store64(&present->waits, 0);
    store64(&present->called, 0);
}

/* Writes this process into the slot that it has locked. The pid comes last, because a slot without
 * a pid counts as empty. */
static void describe_self(dv_share *share, unsigned slot, uint32_t pid, uint64_t image) {
    dv_page_slot *info = &share->state->slot[slot];
    raise_slot_count(share->state, slot + 1);
    for (unsigned device = 0; device < share->device_count; device++) {
        store32(&share->gpu[device].gate[slot].waiters, 0);
        store32(&share->gpu[device].gate[slot].lock, 0);
        forget_present(&share->gpu[device].present[slot]);
    }
    store32(&info->host_pid, share->pid_namespace == share->config->pid_namespace ? pid : 0);
    store64(&info->start_time, share->start_time);
    store64(&info->pid_namespace, share->pid_namespace);
    store64(&info->generation, load64(&info->generation) + 1);
    store64(&info->image, image);
    store32(&info->pid, pid);
}

/* Locks the first slot that is empty or whose process is dead, and reaps that process. */
static int lock_slot(dv_share *share, int file) {
    uint64_t end = os_now_ns() + DV_WAIT_NS;
    for (unsigned slot = 0; slot < DV_PAGE_SLOTS; slot++) {
        uint64_t bytes;
        enum found found = look_at(share, file, slot);
        if ((found != FOUND_EMPTY && found != FOUND_DEAD) ||
            !os_try_lock_byte(file, DV_PAGE_LOCK_BASE + slot)) {
            continue;
        }
        if (load32(&share->state->slot[slot].pid) == 0 || reap_slot(share, slot, NULL, &bytes)) {
            return (int)slot;
        }
        os_unlock_byte(file, DV_PAGE_LOCK_BASE + slot);
        if (os_now_ns() > end) {
            break;
        }
    }
    return SLOT_NONE;
}

static dv_status take_slot(dv_share *share) {
    uint32_t pid = (uint32_t)getpid();
    uint64_t image = program_image();
    int slot = find_own(share, pid, image);
    if (slot != SLOT_NONE) {
        __atomic_store_n(&share->slot, slot, __ATOMIC_RELEASE);
        return DV_OK;
    }
    int file = open_state(share, O_RDWR);
    if (file < 0) {
        return DV_NO_SHARE;
    }
    __atomic_store_n(&share->slot_file, file, __ATOMIC_SEQ_CST);
    dv_status status = DV_NO_SHARE;
    if (share->pin != NULL || pin_file(share, file)) {
        slot = lock_slot(share, file);
        status = slot == SLOT_NONE ? DV_NO_SLOT : DV_OK;
    }
    if (status == DV_OK) {
        describe_self(share, (unsigned)slot, pid, image);
        share->owner = this_thread();
        __atomic_store_n(&share->slot, slot, __ATOMIC_RELEASE);
    } else if (share->pin != NULL) {
        munmap(share->pin, (size_t)sysconf(_SC_PAGESIZE));
        share->pin = NULL;
    }
    __atomic_store_n(&share->slot_file, -1, __ATOMIC_SEQ_CST);
    close(file);
    return status;
}

dv_status ensure_slot(dv_share *share) {
    UNCANCELLED;
    int saved = errno;
    if (!os_lock(&share->taking, &share->waiting)) {
        return DV_BUSY;
    }
    dv_status status = DV_OK;
    if (own_slot(share) == SLOT_NONE) {
        share->start_time = os_start_time();
        share->pid_namespace = os_pid_namespace();
        status = take_slot(share);
    }
    os_unlock(&share->taking, &share->waiting);
    errno = saved;
    return status;
}

/* A fork in the middle of take_slot copies the open file, which the child must close, or the
 * parent's slot would live as long as the child. The child must not release the lock, because OFD
 * locks are shared. */
void dv_share_forked(dv_share *share) {
    if (share == NULL) {
        return;
    }
    if (share->slot_file >= 0) {
        close(share->slot_file);
        share->slot_file = -1;
    }
    if (share->pin_inheritable && share->pin != NULL) {
        munmap(share->pin, (size_t)sysconf(_SC_PAGESIZE));
    }
    share->pin = NULL;
    share->pin_inheritable = false;
    share->slot = SLOT_NONE;
    share->owner = NULL;
    share->taking = share->waiting = 0;
    memset(share->worker, 0, sizeof share->worker);
    memset(share->holds, 0, sizeof share->holds);
    memset(share->made, 0, sizeof share->made);
    memset(share->exported, 0, sizeof share->exported);
    for (unsigned device = 0; device < DV_PAGE_DEVICES; device++) {
        share->beats[device].looking = 0;
    }
}

/* Nothing may be charged to the slot. */
void leave_slot(dv_share *share) {
    int slot = own_slot(share);
    if (slot == SLOT_NONE) {
        return;
    }
    store32(&share->state->slot[slot].pid, 0);
    __atomic_store_n(&share->slot, SLOT_NONE, __ATOMIC_RELEASE);
    munmap(share->pin, (size_t)sysconf(_SC_PAGESIZE));
    share->pin = NULL;
}
