/* Written by go run ./abi/gen from abi/pages.yaml; do not edit. */
#ifndef DIVVY_DV_PAGE_LAYOUT_H
#define DIVVY_DV_PAGE_LAYOUT_H

#include <stddef.h>
#include <stdint.h>

/* First word of every page. */
#define DV_PAGE_MAGIC UINT64_C(0x657661485f7644)

/* Version of this layout; a reader refuses any other. */
#define DV_PAGE_VERSION UINT32_C(1)

/* How every page begins. */
typedef struct dv_page_header {
    /* Always magic. */
    uint64_t magic;
    /* Always version. */
    uint32_t version;
    /* Bytes of the whole page. */
    uint32_t size;
} dv_page_header;
_Static_assert(sizeof(dv_page_header) == 16, "dv_page_header");
_Static_assert(_Alignof(dv_page_header) == 8, "dv_page_header");
_Static_assert(offsetof(dv_page_header, magic) == 0, "dv_page_header.magic");
_Static_assert(offsetof(dv_page_header, version) == 8, "dv_page_header.version");
_Static_assert(offsetof(dv_page_header, size) == 12, "dv_page_header.size");

#endif
