/* Words that several processes change: 16-byte words, and plain atomics on page fields.
 *
 * The page structs hold plain integers, because one description serves C and Go. Every access to a
 * field that another process may write goes through the functions here. The 16-byte
 * compare-and-swap is written so that no call into libatomic can arise, whatever the compiler:
 * libatomic may take a lock, which other processes would not see. */
#ifndef DIVVY_SHARE_WORD_H
#define DIVVY_SHARE_WORD_H

#include <stdbool.h>
#include <stdint.h>

#include "abi/generated/page_layout.h"

static inline uint32_t load32(const uint32_t *word) {
    return __atomic_load_n(word, __ATOMIC_ACQUIRE);
}

static inline uint64_t load64(const uint64_t *word) {
    return __atomic_load_n(word, __ATOMIC_ACQUIRE);
}

static inline void store32(uint32_t *word, uint32_t value) {
    __atomic_store_n(word, value, __ATOMIC_RELEASE);
}

static inline void store64(uint64_t *word, uint64_t value) {
    __atomic_store_n(word, value, __ATOMIC_RELEASE);
}

static inline bool swap32(uint32_t *word, uint32_t old, uint32_t new) {
    return __atomic_compare_exchange_n(word, &old, new, false, __ATOMIC_SEQ_CST, __ATOMIC_RELAXED);
}

static inline bool swap64(uint64_t *word, uint64_t old, uint64_t new) {
    return __atomic_compare_exchange_n(word, &old, new, false, __ATOMIC_SEQ_CST, __ATOMIC_RELAXED);
}

/* Keeps loads before it before loads after it. TSAN knows neither fences nor other processes. */
static inline void load_fence(void) {
#if !defined(__SANITIZE_THREAD__)
    __atomic_thread_fence(__ATOMIC_ACQUIRE);
#endif
}

/* The two halves of a ledger word as values. */
typedef struct ledger_word {
    uint64_t amounts, tag;
} ledger_word;

static inline uint32_t amounts_used(uint64_t amounts) {
    return (uint32_t)amounts;
}

static inline uint32_t amounts_pending(uint64_t amounts) {
    return (uint32_t)(amounts >> 32);
}

/* What a slot holds, as the two words in which an intent is read and written. */
typedef struct balance {
    uint64_t amounts; /* charged (low) and pending, as in the ledger */
    uint64_t rest;    /* overhead (low) and action */
} balance;

typedef uint64_t __attribute__((may_alias)) intent_word;

static inline balance load_intent(const dv_page_intent *intent) {
    const intent_word *words = (const intent_word *)(const void *)intent;
    return (balance){__atomic_load_n(&words[0], __ATOMIC_RELAXED),
                     __atomic_load_n(&words[1], __ATOMIC_RELAXED)};
}

static inline void store_intent(dv_page_intent *intent, balance value) {
    intent_word *words = (intent_word *)(void *)intent;
    __atomic_store_n(&words[0], value.amounts, __ATOMIC_RELAXED);
    __atomic_store_n(&words[1], value.rest, __ATOMIC_RELAXED);
}

_Static_assert(offsetof(dv_page_journal, intent) % 8 == 0, "an intent is two aligned words");
_Static_assert(offsetof(dv_page_intent, pending) == 4, "pending is the high half of the first");
_Static_assert(offsetof(dv_page_intent, overhead) == 8, "overhead is the low half of the second");

/* The id of an operation is its number, counted modulo 2^47 over both lanes of its slot, and its
 * lane as the lowest bit. It chooses one of the four intents, so that an operation never overwrites
 * the intent of the one before it, nor a lane one of the other's. */
#define ID_MASK (UINT64_MAX >> DV_PAGE_SLOT_BITS)

static inline uint64_t next_id(uint64_t last, unsigned lane) {
    return (((last >> 1) + 1) << 1 | lane) & ID_MASK;
}

static inline uint64_t pack_tag(unsigned slot, uint64_t id) {
    return id << DV_PAGE_SLOT_BITS | slot;
}

static inline unsigned tag_slot(uint64_t tag) {
    return (unsigned)(tag & ((1u << DV_PAGE_SLOT_BITS) - 1));
}

static inline uint64_t tag_id(uint64_t tag) {
    return tag >> DV_PAGE_SLOT_BITS;
}

/* True if operation a of a slot comes after b. */
static inline bool id_after(uint64_t a, uint64_t b) {
    return (int64_t)((a - b) << DV_PAGE_SLOT_BITS) > 0;
}

/* The ledger word as it was at two moments close together. The halves may belong to different
 * operations; each of them was in the word. swap_ledger settles whether they belong together. */
static inline ledger_word load_ledger(const dv_page_gpu *gpu) {
    ledger_word word;
    word.tag = load64(&gpu->tag);
    word.amounts = load64(&gpu->amounts);
    return word;
}

_Static_assert(offsetof(dv_page_gpu, amounts) % 16 == 0, "the ledger word is aligned to its size");
_Static_assert(offsetof(dv_page_gpu, tag) == offsetof(dv_page_gpu, amounts) + 8,
               "tag is the high half");

/* Two words that change together. */
typedef struct word_pair {
    uint64_t low, high;
} word_pair;

/* Replaces old by new at 16 bytes aligned to their size, if all of them still are old. A full
 * memory barrier when it succeeds. */
#if defined(__aarch64__)
/* One block, because a spill between the pair of instructions could lose the reservation each time.
 * A reservation lost 64 times reports failure, which the caller's bounded loop takes like any
 * other. */
static inline bool swap_pair(uint64_t *at, word_pair old, word_pair new) {
    uint64_t low, high;
    uint32_t failed, tries;
    __asm__ volatile(
        "mov %w[tries], #64\n"
        "1: ldaxp %[low], %[high], [%[at]]\n"
        "cmp %[low], %[old_low]\n"
        "ccmp %[high], %[old_high], #0, eq\n"
        "b.ne 2f\n"
        "stlxp %w[failed], %[new_low], %[new_high], [%[at]]\n"
        "cbz %w[failed], 3f\n"
        "subs %w[tries], %w[tries], #1\n"
        "b.ne 1b\n"
        "2: clrex\n"
        "mov %w[failed], #1\n"
        "3: dmb ish\n"
        : [low] "=&r"(low), [high] "=&r"(high), [failed] "=&r"(failed), [tries] "=&r"(tries)
        : [at] "r"(at), [old_low] "r"(old.low), [old_high] "r"(old.high), [new_low] "r"(new.low),
          [new_high] "r"(new.high)
        : "memory", "cc");
    return failed == 0;
}
#elif defined(__x86_64__)
/* Not the compiler's builtin, which TSAN replaces by a lock within one process. */
static inline bool swap_pair(uint64_t *at, word_pair old, word_pair new) {
    bool swapped;
    __asm__ volatile("lock cmpxchg16b %[word]"
                     : [word] "+m"(*(word_pair *)(void *)at), "=@ccz"(swapped), "+a"(old.low),
                       "+d"(old.high)
                     : "b"(new.low), "c"(new.high)
                     : "memory");
    return swapped;
}
#else
#error "the pages need a 16-byte compare-and-swap, written for x86-64 and aarch64"
#endif

/* Replaces old by new, if the whole ledger word still is old. */
static inline bool swap_ledger(dv_page_gpu *gpu, ledger_word old, ledger_word new) {
    return swap_pair(&gpu->amounts, (word_pair){old.amounts, old.tag},
                     (word_pair){new.amounts, new.tag});
}

#endif
