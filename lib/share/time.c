/* The bucket of GPU time.
 *
 * balance and refilled change together in one 16-byte swap, so no span of time is added twice or
 * lost, whichever process dies. The count of corrections that were added does not fit into that
 * word: the process that changes corrected adds the correction afterwards. */
#include "share/time.h"

#include "share/state.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <time.h>

#include "libc/cancel.h"

/* Each failed swap means that another one succeeded. So many in a row mean that a process writes
 * without end or that the page is damaged. */
#define SWAP_TRIES 4096u
/* A swap for less time would only move a cache line and round too often. */
#define REFILL_MIN_NS 4096
/* A longer span is counted in millions of ns first. */
#define SPAN_EXACT_NS (1ull << 42)
/* A year, more than any debt needs at any rate that counts. */
#define SPAN_MAX_NS (1ull << 55)
/* A refill further in the future than this is damage. A refill less far in the future may be a
 * neighbour's, made while we were stopped after reading the clock. Going back to our clock would
 * add that span again. */
#define FUTURE_MAX_NS 60000000000ull
/* Twice what a GPU has, so that a share from which nobody has to be protected never waits for its
 * own charges. */
#define RATE_MAX (2 * DV_PAGE_WHOLE)
#define NAP_MAX_NS 1000000000u
#define USED_STEP_NS 1000000u

_Static_assert(SPAN_EXACT_NS <= INT64_MAX / RATE_MAX - 1 &&
                   SPAN_MAX_NS / DV_PAGE_WHOLE <= INT64_MAX / RATE_MAX / 2,
               "what a span gains fits into 64 bits");
_Static_assert(offsetof(dv_page_bucket, balance) % 16 == 0, "the pair is aligned to its size");
_Static_assert(offsetof(dv_page_bucket, refilled) == offsetof(dv_page_bucket, balance) + 8,
               "refilled is the high half");

#define HOT static inline __attribute__((always_inline))

/* The two words of a bucket that change together. */
typedef struct level {
    int64_t balance;
    uint64_t refilled;
} level;

/* The part of a budget that matters to the bucket. */
typedef struct terms {
    int64_t rate, burst;
} terms;

HOT const dv_page_budget *budget_of(const dv_share *share, unsigned device) {
    return &share->config->device[device].budget;
}

HOT bool limited(const dv_share *share, unsigned device) {
    return device < share->device_count &&
           (load32(&budget_of(share, device)->flags) & DV_PAGE_BUDGET_LIMITED) != 0;
}

/* A tick that is more than a lease ahead of our clock was written by another clock. */
HOT terms read_terms(const dv_page_budget *budget, uint64_t now) {
    uint64_t age = now - load64(&budget->tick) + DV_PAGE_LEASE_NS;
    bool stale = age > DV_PAGE_LEASE_NS + DV_PAGE_STALE_NS;
    uint32_t rate = load32(stale ? &budget->base : &budget->rate);
    uint64_t burst = load64(&budget->burst);
    return (terms){
        .rate = rate < RATE_MAX ? rate : RATE_MAX,
        .burst = burst < DV_TIME_BURST_NS ? (int64_t)burst : DV_TIME_BURST_NS,
    };
}

HOT level load_level(const dv_page_bucket *bucket) {
    level present;
    present.refilled = load64(&bucket->refilled);
    present.balance = __atomic_load_n(&bucket->balance, __ATOMIC_ACQUIRE);
    return present;
}

HOT bool swap_level(dv_page_bucket *bucket, level old, level new) {
    return swap_pair((uint64_t *)(void *)&bucket->balance,
                     (word_pair){(uint64_t)old.balance, old.refilled},
                     (word_pair){(uint64_t)new.balance, new.refilled});
}

HOT int64_t clip(int64_t value, int64_t least, int64_t most) {
    return value < least ? least : value > most ? most : value;
}

/* What is gained in a span, rounded to the nearest ns, so that many short spans gain as much as a
 * long one. */
HOT int64_t gain_of(int64_t rate, uint64_t span) {
    if (__builtin_expect(span >= SPAN_EXACT_NS, 0)) {
        return (int64_t)(span < SPAN_MAX_NS ? span : SPAN_MAX_NS) / DV_PAGE_WHOLE * rate;
    }
    return ((int64_t)span * rate + DV_PAGE_WHOLE / 2) / DV_PAGE_WHOLE;
}

/* What the rate adds, up to what the bucket can hold. If the bucket holds more than that, charged
 * time was given back: it belongs to the share and stays. */
HOT int64_t gained(int64_t held, int64_t gain, int64_t burst) {
    int64_t most = held > burst ? held : burst;
    return held + gain < most ? held + gain : most;
}

/* The level at now, limited to possible values whatever the page holds. */
HOT level refill(level old, terms with, uint64_t now) {
    level new = {clip(old.balance, -DV_TIME_DEBT_NS, DV_TIME_BURST_NS), old.refilled};
    int64_t ahead = (int64_t)(now - old.refilled);
    if (__builtin_expect(old.refilled == 0, 0)) {
        new = (level){clip(DV_TIME_START_NS, 0, with.burst), now};
    } else if (__builtin_expect(now < old.refilled, 0)) {
        new.refilled = old.refilled - now > FUTURE_MAX_NS ? now : old.refilled;
    } else if (ahead >= REFILL_MIN_NS || ahead < 0) {
        new = (level){gained(new.balance, gain_of(with.rate, (uint64_t)ahead), with.burst), now};
    }
    return new;
}

/* Refills, takes ns (which may be negative) and returns the new balance. */
HOT int64_t take(dv_page_bucket *bucket, const dv_page_budget *budget, uint64_t now, int64_t ns) {
    terms with = read_terms(budget, now);
    for (unsigned i = 0; i < SWAP_TRIES; i++) {
        level old = load_level(bucket), new = refill(old, with, now);
        new.balance = clip(new.balance - ns, -DV_TIME_DEBT_NS, DV_TIME_BURST_NS);
        bool same = new.balance == old.balance && new.refilled == old.refilled;
        if (__builtin_expect(same || swap_level(bucket, old, new), 1)) {
            return new.balance;
        }
    }
    return __atomic_sub_fetch(&bucket->balance, ns,
                              __ATOMIC_SEQ_CST); /* the next refill limits it */
}

/* Refills, and takes ns unless that finds a debt. */
HOT bool take_credit(dv_page_bucket *bucket, const dv_page_budget *budget, uint64_t now,
                     int64_t ns) {
    terms with = read_terms(budget, now);
    for (unsigned i = 0; i < SWAP_TRIES; i++) {
        level old = load_level(bucket), new = refill(old, with, now);
        if (new.balance < 0) {
            return false;
        }
        new.balance = clip(new.balance - ns, -DV_TIME_DEBT_NS, DV_TIME_BURST_NS);
        if (swap_level(bucket, old, new)) {
            return true;
        }
    }
    return false;
}

/* The process that replaces the old count of corrections adds the difference. done is read before
 * due, so a later count is never taken for an earlier one. */
static __attribute__((noinline)) void correct(dv_page_bucket *bucket, const dv_page_budget *budget,
                                              uint64_t now, int64_t done, int64_t due) {
    int64_t expected = done, step;
    if (!__atomic_compare_exchange_n(&bucket->corrected, &expected, due, false, __ATOMIC_SEQ_CST,
                                     __ATOMIC_RELAXED)) {
        return;
    }
    if (__builtin_sub_overflow(due, done, &step)) {
        step = due > done ? DV_TIME_DEBT_NS : -DV_TIME_DEBT_NS;
    }
    take(bucket, budget, now, -clip(step, -DV_TIME_DEBT_NS, DV_TIME_DEBT_NS));
}

HOT void keep_corrected(dv_page_bucket *bucket, const dv_page_budget *budget, uint64_t now) {
    int64_t done = __atomic_load_n(&bucket->corrected, __ATOMIC_ACQUIRE);
    int64_t due = __atomic_load_n(&budget->correction, __ATOMIC_ACQUIRE);
    if (__builtin_expect(done != due, 0)) {
        correct(bucket, budget, now, done, due);
    }
}

HOT int64_t bounded_ns(uint64_t ns) {
    return ns < 2ull * DV_TIME_DEBT_NS ? (int64_t)ns : 2 * DV_TIME_DEBT_NS;
}

const uint32_t *dv_time_flags_word(const dv_share *share, unsigned device) {
    static const uint32_t none;
    return device < share->device_count ? &budget_of(share, device)->flags : &none;
}

uint32_t dv_time_stretch(const dv_share *share, unsigned device) {
    if (device >= share->device_count) {
        return DV_PAGE_WHOLE;
    }
    return dv_time_stretch_of(load32(&budget_of(share, device)->stretch));
}

uint64_t dv_time_depth(const dv_share *share, unsigned device) {
    uint64_t depth =
        device < share->device_count ? load64(&budget_of(share, device)->depth) : UINT64_MAX;
    return depth < DV_TIME_DEPTH_NS ? depth : DV_TIME_DEPTH_NS;
}

/* Wakes a resting arbiter when there is work again. This may fail, because the directory may be
 * gone or the page read-only; the arbiter then sees the work at its next lease. */
static __attribute__((noinline)) void stir(const dv_share *share) {
    int saved = errno;
    utimensat(AT_FDCWD, share->path, NULL, AT_SYMLINK_NOFOLLOW);
    errno = saved;
}

/* Two processes may both wake the arbiter. */
static void note_time(const dv_share *share, uint64_t *word, uint64_t now) {
    uint64_t before = load64(word);
    store64(word, now);
    if (__builtin_expect(now - before > DV_PAGE_SILENCE_NS && now > before, 0)) {
        stir(share);
    }
}

static void note_charge(const dv_share *share, dv_page_bucket *bucket, uint64_t now, uint64_t ns,
                        uint32_t launches) {
    __atomic_fetch_add(&bucket->charged, ns, __ATOMIC_RELAXED);
    __atomic_fetch_add(&bucket->launches, launches, __ATOMIC_RELAXED);
    if (now - load64(&bucket->used) + USED_STEP_NS > 2ull * USED_STEP_NS) {
        note_time(share, &bucket->used, now);
    }
}

int64_t dv_time_charge(dv_share *share, unsigned device, uint64_t now, uint64_t ns,
                       uint32_t launches) {
    if (__builtin_expect(device >= share->device_count, 0)) {
        return INT64_MAX;
    }
    dv_page_bucket *bucket = &share->gpu[device].bucket;
    const dv_page_budget *budget = budget_of(share, device);
    keep_corrected(bucket, budget, now);
    int64_t left = take(bucket, budget, now, bounded_ns(ns));
    note_charge(share, bucket, now, ns, launches);
    return left;
}

bool dv_time_admit(dv_share *share, unsigned device, uint64_t now, uint64_t ns) {
    if (!limited(share, device)) {
        dv_time_charge(share, device, now, ns, 1);
        return true;
    }
    if (dv_time_job_balance(share, device, now) < 0) {
        return false;
    }
    dv_page_bucket *bucket = &share->gpu[device].bucket;
    if (!take_credit(bucket, budget_of(share, device), now, bounded_ns(ns))) {
        return false;
    }
    note_charge(share, bucket, now, ns, 1);
    return true;
}

int64_t dv_time_return(dv_share *share, unsigned device, uint64_t ns, uint32_t launches) {
    if (device >= share->device_count) {
        return INT64_MAX;
    }
    dv_page_bucket *bucket = &share->gpu[device].bucket;
    uint64_t now = load64(&bucket->refilled);
    int64_t left = take(bucket, budget_of(share, device), now, -bounded_ns(ns));
    __atomic_fetch_sub(&bucket->charged, ns, __ATOMIC_RELAXED);
    __atomic_fetch_sub(&bucket->launches, launches, __ATOMIC_RELAXED);
    return left;
}

int64_t dv_time_balance(dv_share *share, unsigned device, uint64_t now) {
    if (!limited(share, device)) {
        return INT64_MAX;
    }
    dv_page_bucket *bucket = &share->gpu[device].bucket;
    const dv_page_budget *budget = budget_of(share, device);
    keep_corrected(bucket, budget, now);
    return take(bucket, budget, now, 0);
}

/* Rounded up, because a sleeper would otherwise wake a moment too early each time. */
uint64_t dv_time_deficit_ns(dv_share *share, unsigned device, uint64_t now) {
    int64_t left = dv_time_balance(share, device, now);
    if (left >= 0) {
        return 0;
    }
    int64_t rate = read_terms(budget_of(share, device), now).rate;
    if (rate == 0 || -left > (int64_t)DV_TIME_NAP_NS * rate / DV_PAGE_WHOLE) {
        return DV_TIME_NAP_NS;
    }
    uint64_t wait = ((uint64_t)-left * DV_PAGE_WHOLE + (uint64_t)rate - 1) / (uint64_t)rate;
    return wait < REFILL_MIN_NS ? REFILL_MIN_NS : wait;
}

/* True for the other devices for which a launch on this device waits. */
static bool of_job(const dv_share *share, unsigned other, unsigned device, uint64_t now) {
    uint64_t used = load64(&share->gpu[other].bucket.used);
    return other == device || now - used + DV_TIME_USED_NS <= 2ull * DV_TIME_USED_NS;
}

int64_t dv_time_job_balance(dv_share *share, unsigned device, uint64_t now) {
    int64_t least = INT64_MAX;
    for (unsigned i = 0; i < share->device_count; i++) {
        if (of_job(share, i, device, now)) {
            int64_t left = dv_time_balance(share, i, now);
            least = left < least ? left : least;
        }
    }
    return least;
}

uint64_t dv_time_job_deficit_ns(dv_share *share, unsigned device, uint64_t now) {
    uint64_t longest = 0;
    for (unsigned i = 0; i < share->device_count; i++) {
        if (of_job(share, i, device, now)) {
            uint64_t deficit = dv_time_deficit_ns(share, i, now);
            longest = deficit > longest ? deficit : longest;
        }
    }
    return longest;
}

void dv_time_wanted(dv_share *share, unsigned device, uint64_t now) {
    if (device < share->device_count) {
        note_time(share, &share->gpu[device].bucket.wanted, now);
    }
}

void dv_time_waited(dv_share *share, unsigned device, uint64_t ns) {
    if (device < share->device_count) {
        __atomic_fetch_add(&share->gpu[device].bucket.waited, ns, __ATOMIC_RELAXED);
    }
}

/* A span that began before what is counted already is counted from there on. So where waits overlap
 * something may be left out, at most a nap, but nothing is counted twice. */
void dv_time_held_back(dv_share *share, unsigned device, uint64_t from, uint64_t now,
                       bool yielded) {
    if (device >= share->device_count) {
        return;
    }
    dv_page_bucket *bucket = &share->gpu[device].bucket;
    uint64_t until = load64(&bucket->held_until);
    /* One further in the future than a nap is another clock's, or damage. */
    uint64_t begin = until > from && until - from <= 2ull * NAP_MAX_NS ? until : from;
    if (now <= begin || !swap64(&bucket->held_until, until, now)) {
        return;
    }
    __atomic_fetch_add(&bucket->held_back, now - begin, __ATOMIC_RELAXED);
    if (yielded) {
        __atomic_fetch_add(&bucket->yielded, now - begin, __ATOMIC_RELAXED);
    }
}

void dv_time_blocked(dv_share *share, unsigned device, bool copies, uint64_t from, uint64_t now) {
    if (device >= share->device_count) {
        return;
    }
    dv_page_gpu *gpu = &share->gpu[device];
    uint64_t *until = copies ? &gpu->copied_until : &gpu->awaited_until;
    uint64_t before = load64(until);
    /* One far in the future is another clock's, or damage. */
    uint64_t begin = before > from && before <= now + 1000000000u ? before : from;
    if (now > begin && swap64(until, before, now)) {
        __atomic_fetch_add(copies ? &gpu->copied : &gpu->awaited, now - begin, __ATOMIC_RELAXED);
    }
}

void dv_time_nap(uint64_t ns) {
    UNCANCELLED;
    struct timespec span = {.tv_nsec = (long)ns};
    if (ns >= NAP_MAX_NS) {
        span = (struct timespec){.tv_sec = NAP_MAX_NS / 1000000000u};
    }
    int saved = errno;
    int slack = prctl(PR_GET_TIMERSLACK, 0, 0, 0, 0);
    bool changed = slack > 1 && prctl(PR_SET_TIMERSLACK, 1, 0, 0, 0) == 0;
    clock_nanosleep(CLOCK_MONOTONIC, 0, &span, NULL);
    if (changed) {
        prctl(PR_SET_TIMERSLACK, (unsigned long)slack, 0, 0, 0);
    }
    errno = saved;
}
