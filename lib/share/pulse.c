/* Pulses.
 *
 * Our own page is mapped, because only processes of our tenant can truncate it, as with the state
 * page. A neighbour's page is not mapped. The neighbour may truncate it at any moment, and an
 * access would then raise SIGBUS here. It is read with pread, in 0.3 us, and all threads use the
 * answer for DV_PULSE_FRESH_NS. Programs close descriptors that they do not know and open others
 * under the same number, so each read first checks the file's identity, in 0.2 us. Reading another
 * file, such as an eventfd of the program, would change it. */
#include "share/pulse.h"

#include "share/state.h"
#include "share/time.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "libc/cancel.h"
#include "libc/kernel.h"

#define RETRY_NS 100000000u
#define RAISE_TRIES 64u

static bool path_beside_state(const dv_share *share, char *path, size_t size, const char *name) {
    const char *slash = strrchr(share->path, '/');
    int length = slash == NULL ? 0 : (int)(slash - share->path);
    int written = snprintf(path, size, "%.*s/%s", length, share->path, name);
    return written > 0 && (size_t)written < size;
}

static bool sound(const dv_page_header *header) {
    return load64(&header->magic) == DV_PAGE_PULSE_MAGIC &&
           load32(&header->version) == DV_PAGE_VERSION &&
           load32(&header->size) == sizeof(dv_page_pulse);
}

static dv_page_pulse *map_pulse(const dv_share *share, unsigned device) {
    UNCANCELLED;
    char name[32], path[sizeof share->path + sizeof name];
    struct stat status;
    snprintf(name, sizeof name, "pulse.%u", device);
    if (!path_beside_state(share, path, sizeof path, name)) {
        return NULL;
    }
    int file = open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (file < 0) {
        return NULL;
    }
    void *map = MAP_FAILED;
    if (kernel_fstat(file, &status) == 0 && S_ISREG(status.st_mode) &&
        status.st_size >= (off_t)sizeof(dv_page_pulse)) {
        map = mmap(NULL, sizeof(dv_page_pulse), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    }
    close(file);
    if (map != MAP_FAILED && !sound(map)) {
        munmap(map, sizeof(dv_page_pulse));
        map = MAP_FAILED;
    }
    return map == MAP_FAILED ? NULL : map;
}

/* Several threads may map it at the same time. One mapping stays until the process ends. */
static __attribute__((noinline)) dv_page_pulse *find_pulse(dv_share *share, unsigned device,
                                                           uint64_t now) {
    if (now < load64(&share->pulse_retry[device])) {
        return NULL;
    }
    int saved = errno;
    dv_page_pulse *mapped = map_pulse(share, device), *present = NULL;
    errno = saved;
    if (mapped == NULL) {
        store64(&share->pulse_retry[device], now + RETRY_NS);
    } else if (!__atomic_compare_exchange_n(&share->pulse[device], &present, mapped, false,
                                            __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE)) {
        munmap(mapped, sizeof *mapped);
        mapped = present;
    }
    return mapped;
}

static void raise_words(dv_page_pulse *pulse, uint32_t words) {
    for (unsigned i = 0; i < RAISE_TRIES; i++) {
        uint32_t present = load32(&pulse->words);
        if (present >= words || swap32(&pulse->words, present, words)) {
            return;
        }
    }
}

void dv_pulse_until(dv_share *share, unsigned device, uint64_t now, uint64_t until) {
    int number = dv_time_worker(share, device);
    if (number < 0) {
        return;
    }
    dv_page_pulse *pulse = __atomic_load_n(&share->pulse[device], __ATOMIC_ACQUIRE);
    if (pulse == NULL && (pulse = find_pulse(share, device, now)) == NULL) {
        return;
    }
    uint64_t *word = &pulse->until[number];
    until = until < now + DV_PULSE_AHEAD_NS ? until : now + DV_PULSE_AHEAD_NS;
    raise_words(pulse, (uint32_t)number + 1);
    for (unsigned i = 0; i < RAISE_TRIES; i++) {
        uint64_t present = load64(word);
        bool later = present >= until && present <= now + DV_PULSE_AHEAD_NS;
        if (later || swap64(word, present, until)) {
            return;
        }
    }
}

void dv_pulse_clear(dv_share *share, unsigned device) {
    if (device < share->device_count) {
        int number = __atomic_load_n(&share->worker[device].number, __ATOMIC_ACQUIRE) - 1;
        dv_page_pulse *pulse = __atomic_load_n(&share->pulse[device], __ATOMIC_ACQUIRE);
        if (number >= 0 && pulse != NULL) {
            store64(&pulse->until[number], 0);
        }
    }
}

static bool still_that_file(const dv_beat *beat) {
    struct stat status;
    return beat->file != 0 && kernel_fstat(beat->file - 1, &status) == 0 &&
           status.st_ino == beat->inode && status.st_dev == beat->filesystem;
}

static void close_beat(dv_beat *beat) {
    if (still_that_file(beat)) {
        close(beat->file - 1);
    }
    *beat = (dv_beat){0};
}

static bool open_beat(const dv_share *share, unsigned device, unsigned k, uint64_t now,
                      dv_beat *beat) {
    char name[32], path[sizeof share->path + sizeof name];
    struct stat status;
    if (now < beat->retry) {
        return false;
    }
    *beat = (dv_beat){.retry = now + RETRY_NS};
    snprintf(name, sizeof name, "beat.%u.%u", device, k);
    if (!path_beside_state(share, path, sizeof path, name)) {
        return false;
    }
    int file = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (file < 0) {
        return false;
    }
    if (kernel_fstat(file, &status) != 0 || !S_ISREG(status.st_mode)) {
        close(file);
        return false;
    }
    *beat = (dv_beat){file + 1, status.st_ino, status.st_dev, 0};
    return true;
}

/* The latest time in the page. A time further ahead than a share may say counts as the furthest
 * that it may say. */
static uint64_t latest_of(const dv_page_pulse *pulse, uint64_t now) {
    uint64_t latest = 0, most = now + DV_PULSE_AHEAD_NS;
    uint32_t words = pulse->words < DV_PAGE_WORKERS ? pulse->words : DV_PAGE_WORKERS;
    for (uint32_t i = 0; i < words; i++) {
        uint64_t until = pulse->until[i] < most ? pulse->until[i] : most;
        latest = until > latest ? until : latest;
    }
    return latest > now ? latest : 0;
}

static uint64_t read_beat(const dv_share *share, unsigned device, unsigned k, uint64_t now,
                          dv_beat *beat) {
    dv_page_pulse page;
    if (!still_that_file(beat) && !open_beat(share, device, k, now, beat)) {
        return 0;
    }
    ssize_t size = pread(beat->file - 1, &page, sizeof page, 0);
    return size == (ssize_t)sizeof page && sound(&page.header) ? latest_of(&page, now) : 0;
}

static uint64_t look(dv_share *share, unsigned device, uint64_t now, uint32_t changes) {
    UNCANCELLED;
    dv_beats *beats = &share->beats[device];
    uint32_t pulses = load32(&share->config->device[device].budget.pulses);
    uint64_t latest = 0;
    int saved = errno;
    for (unsigned k = 0; k < DV_PAGE_PULSES; k++) {
        dv_beat *beat = &beats->page[k];
        if (load32(&beats->changes) != changes) {
            close_beat(beat);
        }
        if ((pulses >> k & 1) != 0) {
            uint64_t until = read_beat(share, device, k, now, beat);
            latest = until > latest ? until : latest;
        }
    }
    errno = saved;
    store32(&beats->changes, changes);
    store64(&beats->until, latest);
    store64(&beats->seen, now);
    return latest;
}

uint64_t dv_pulse_beating(dv_share *share, unsigned device, uint64_t now) {
    if (device >= share->device_count) {
        return 0;
    }
    dv_beats *beats = &share->beats[device];
    const dv_page_budget *budget = &share->config->device[device].budget;
    uint32_t changes = load32(&budget->pulse_changes);
    if (load32(&budget->pulses) == 0) {
        return 0;
    }
    uint64_t age = now - load64(&beats->seen) +
                   DV_PULSE_FRESH_NS; /* two threads may read the clock in either order */
    bool fresh = load32(&beats->changes) == changes && age <= 2ull * DV_PULSE_FRESH_NS;
    if (!fresh && __atomic_exchange_n(&beats->looking, 1, __ATOMIC_ACQUIRE) == 0) {
        uint64_t latest = look(share, device, now, changes);
        __atomic_store_n(&beats->looking, 0, __ATOMIC_RELEASE);
        return latest;
    }
    uint64_t latest = load64(&beats->until);
    return latest > now ? latest : 0;
}
