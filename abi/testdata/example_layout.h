/* Written by go run ./abi/gen from abi/testdata/layout.yaml; do not edit. */
#ifndef DIVVY_EXAMPLE_LAYOUT_H
#define DIVVY_EXAMPLE_LAYOUT_H

#include <stddef.h>
#include <stdint.h>

__extension__ typedef unsigned __int128 example_u128;

/* A value above the signed range. */
#define EXAMPLE_MAGIC UINT64_C(0xfedcba9876543210)

#define EXAMPLE_SLOTS UINT32_C(3)

#define EXAMPLE_FLOOR (-INT32_C(5))

/* Changed by one compare-and-swap. */
typedef struct example_word {
    _Alignas(16) uint32_t used;
    uint8_t pad_4[4];
    /* Slot and number of the last operation. */
    uint64_t tag;
} example_word;
_Static_assert(sizeof(example_word) == 16, "example_word");
_Static_assert(_Alignof(example_word) == 16, "example_word");
_Static_assert(offsetof(example_word, used) == 0, "example_word.used");
_Static_assert(offsetof(example_word, tag) == 8, "example_word.tag");

/* A line of its own. */
typedef struct example_slot {
    _Alignas(64) uint32_t pid;
    uint8_t pad_4[12];
    example_word first;
    char text[5];
    uint8_t pad_37[3];
    double ratio;
    uint8_t pad_48[16];
    _Alignas(32) int16_t small;
    uint8_t pad_66[62];
} example_slot;
_Static_assert(sizeof(example_slot) == 128, "example_slot");
_Static_assert(_Alignof(example_slot) == 64, "example_slot");
_Static_assert(offsetof(example_slot, pid) == 0, "example_slot.pid");
_Static_assert(offsetof(example_slot, first) == 16, "example_slot.first");
_Static_assert(offsetof(example_slot, text) == 32, "example_slot.text");
_Static_assert(offsetof(example_slot, ratio) == 40, "example_slot.ratio");
_Static_assert(offsetof(example_slot, small) == 64, "example_slot.small");

/* All of it. */
typedef struct example_page {
    _Alignas(256) uint8_t kind;
    uint8_t pad_1[15];
    example_u128 whole;
    uint8_t pad_32[32];
    example_slot slot[EXAMPLE_SLOTS];
    uint8_t pad_448[64];
    _Alignas(256) int64_t last;
    uint8_t pad_520[248];
} example_page;
_Static_assert(sizeof(example_page) == 768, "example_page");
_Static_assert(_Alignof(example_page) == 256, "example_page");
_Static_assert(offsetof(example_page, kind) == 0, "example_page.kind");
_Static_assert(offsetof(example_page, whole) == 16, "example_page.whole");
_Static_assert(offsetof(example_page, slot) == 64, "example_page.slot");
_Static_assert(offsetof(example_page, last) == 512, "example_page.last");

#endif
