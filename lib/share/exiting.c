/* Which processes have died but not closed the driver's files yet. Until they do, their memory is
 * not free.
 *
 * The kernel tells this by pid for a process in our own pid namespace. A pid of another container
 * means nothing here. So the agent's reaper, which sees all processes, first looks whose locks are
 * free, and then once at all processes that are exiting. A slot whose lock became free later is
 * left for the next sweep, because its process may have begun to exit only after that look. */
#include "share/state.h"

static bool is_stranger(const dv_share *share, unsigned slot) {
    uint64_t namespace = load64(&share->state->slot[slot].pid_namespace);
    return namespace != 0 && namespace != share->pid_namespace;
}

void look_at_strangers(const dv_share *share, int file, dv_strangers *strangers) {
    bool any = false;
    unsigned count = slot_count(share);
    for (unsigned slot = 0; slot < DV_PAGE_SLOTS; slot++) {
        strangers->dead[slot] =
            slot < count && is_stranger(share, slot) && look_at(share, file, slot) == FOUND_DEAD;
        any = any || strangers->dead[slot];
    }
    strangers->known = !any || os_find_exiting(&strangers->exiting);
}

static bool stranger_exiting(const dv_strangers *strangers, const dv_page_slot *info,
                             unsigned slot) {
    if (!strangers->known || !strangers->dead[slot]) {
        return true;
    }
    uint32_t pid = load32(&info->pid);
    uint64_t start_time = load64(&info->start_time);
    for (unsigned i = 0; i < strangers->exiting.count; i++) {
        if ((uint32_t)strangers->exiting.process[i].pid == pid &&
            strangers->exiting.process[i].start_time == start_time) {
            return true;
        }
    }
    return false;
}

bool slot_exiting(const dv_share *share, unsigned slot, const dv_strangers *strangers) {
    const dv_page_slot *info = &share->state->slot[slot];
    if (is_stranger(share, slot)) {
        return strangers != NULL && stranger_exiting(strangers, info, slot);
    }
    return load64(&info->pid_namespace) != 0 &&
           os_process_exiting((pid_t)load32(&info->pid), load64(&info->start_time));
}
