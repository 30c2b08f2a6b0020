/* Exported memory that file descriptors keep. Nobody is told when the last copy of one is closed, so
 * whoever wants to know looks for the mark that every descriptor of the memory bears. */
#include "share/mark.h"
#include "share/state.h"

#include <string.h>
#include <sys/stat.h>

#include "libc/cancel.h"
#include "libc/kernel.h"

static const char key_head[8] = "dvmark";

uint64_t dv_mark_new(void) {
    return mark_new();
}

uint64_t dv_mark_of(int fd) {
    return mark_of(fd);
}

bool dv_mark_put(int fd, uint64_t mark) {
    return mark_put(fd, mark);
}

void dv_mark_key(uint64_t mark, uint8_t key[DV_PAGE_EXPORT_KEY_BYTES]) {
    memset(key, 0, DV_PAGE_EXPORT_KEY_BYTES);
    memcpy(key, key_head, sizeof key_head);
    memcpy(key + sizeof key_head, &mark, sizeof mark);
}

/* The mark for descriptors of an entry: its own, or that which its key names, or a new one. */
static uint64_t mark_for(const dv_page_export *export) {
    uint64_t mark = load64(&export->mark);
    if (mark == 0 && memcmp(export->key, key_head, sizeof key_head) == 0) {
        memcpy(&mark, export->key + sizeof key_head, sizeof mark);
    }
    return mark != 0 ? mark : mark_new();
}

/* Notes a descriptor in the entry before it is marked, so that a death in between leaves nothing
 * that looks as if it had no descriptor. */
static void carry(dv_page_export *export, int fd) {
    struct stat file;
    uint64_t mark = mark_for(export);
    uint32_t before = load32(&export->descriptors), now = DV_PAGE_DESCRIPTORS_MARKED;
    if (mark == 0 || kernel_fstat(fd, &file) != 0) {
        store32(&export->descriptors, DV_PAGE_DESCRIPTORS_UNMARKED);
        return;
    }
    if (before == DV_PAGE_DESCRIPTORS_NONE) {
        store64(&export->mark, mark);
        store64(&export->inode, file.st_ino);
        store64(&export->filesystem, file.st_dev);
    } else if (load64(&export->inode) != file.st_ino ||
               load64(&export->filesystem) != file.st_dev) {
        now = DV_PAGE_DESCRIPTORS_SCATTERED;
    }
    now = now > before ? now : before;
    store32(&export->descriptors, now);
    if (!mark_put(fd, mark)) {
        store32(&export->descriptors, DV_PAGE_DESCRIPTORS_UNMARKED);
    }
}

dv_status dv_export_carry(dv_share *share, const void *key, int fd) {
    UNCANCELLED;
    if (os_lock(&share->taking, &share->waiting)) {
        mark_learn(share->mark_file, fd);
        os_unlock(&share->taking, &share->waiting);
    }
    dv_status status = export_enter(share);
    if (status != DV_OK) {
        return status;
    }
    dv_page_export *export = export_find(share, key);
    if (export != NULL) {
        carry(export, fd);
    }
    unlock_exports(share);
    return export != NULL ? DV_OK : DV_NO_EXPORT;
}

/* What descriptors alone may keep. Read without the lock: end_gone looks again. */
static bool is_unheld(const dv_page_export *export) {
    uint32_t descriptors = load32(&export->descriptors);
    return load32(&export->state) == DV_PAGE_EXPORT_LIVE &&
           (descriptors == DV_PAGE_DESCRIPTORS_MARKED ||
            descriptors == DV_PAGE_DESCRIPTORS_SCATTERED) &&
           !export_has_holders(export);
}

static struct mark_search search_for(const dv_page_export *export) {
    bool scattered = load32(&export->descriptors) == DV_PAGE_DESCRIPTORS_SCATTERED;
    return (struct mark_search){.mark = load64(&export->mark),
                                .inode = scattered ? 0 : load64(&export->inode),
                                .filesystem = load64(&export->filesystem)};
}

struct unheld {
    unsigned count;
    unsigned place[MARKS_AT_ONCE];
    uint32_t begun[MARKS_AT_ONCE];
    struct mark_search search[MARKS_AT_ONCE];
};

/* Looks for the next entries below `end` that descriptors alone may keep, from entry `from` on.
 * Returns where to go on, `end` also if nobody can tell now. */
static unsigned look_at_unheld(dv_share *share, unsigned from, unsigned end, struct unheld *found) {
    struct mark_file files[MARK_FILES] = {{0}};
    for (found->count = 0; from < end && found->count < MARKS_AT_ONCE; from++) {
        uint32_t begun = load32(&share->state->export[from].begun);
        if (is_unheld(&share->state->export[from])) {
            found->begun[found->count] = begun;
            found->place[found->count] = from;
            found->search[found->count++] = search_for(&share->state->export[from]);
        }
    }
    if (found->count > 0 && os_lock(&share->taking, &share->waiting)) {
        memcpy(files, share->mark_file, sizeof files);
        os_unlock(&share->taking, &share->waiting);
    }
    return marks_look(files, found->search, found->count) ? from : end;
}

/* Frees what had no holder, then no descriptor, and for which no hold began since: nobody can get at
 * it any more. Returns the units. */
static uint64_t end_gone(dv_share *share, const struct unheld *found) {
    unsigned slot = (unsigned)own_slot(share);
    uint64_t units = 0;
    for (unsigned i = 0; i < found->count; i++) {
        dv_page_export *export = &share->state->export[found->place[i]];
        uint32_t device = load32(&export->device), of_export = load32(&export->units);
        if (found->search[i].held || !is_unheld(export) || device >= share->device_count ||
            load64(&export->mark) != found->search[i].mark ||
            load32(&export->begun) != found->begun[i]) {
            continue;
        }
        int lane = lane_enter(share, &share->gpu[device], slot);
        if (lane >= 0) {
            units += export_end(share, slot, lane, export) == LEDGER_DONE ? of_export : 0;
            lane_leave(&share->gpu[device], slot, lane);
        }
    }
    return units;
}

static bool any_gone(const struct unheld *found) {
    for (unsigned i = 0; i < found->count; i++) {
        if (!found->search[i].held) {
            return true;
        }
    }
    return false;
}

uint64_t exports_settle(dv_share *share, unsigned from, unsigned end) {
    UNCANCELLED;
    struct unheld found;
    uint64_t units = 0;
    while (from < end) {
        from = look_at_unheld(share, from, end, &found);
        if (any_gone(&found) && export_enter(share) == DV_OK) {
            units += end_gone(share, &found);
            unlock_exports(share);
        }
    }
    return units * DV_PAGE_UNIT;
}

uint64_t dv_export_settle(dv_share *share) {
    return exports_settle(share, 0, export_count(share));
}

bool exports_gone(dv_share *share) {
    UNCANCELLED;
    struct unheld found;
    unsigned from = 0, end = export_count(share);
    while (from < end) {
        from = look_at_unheld(share, from, end, &found);
        if (any_gone(&found)) {
            return true;
        }
    }
    return false;
}
