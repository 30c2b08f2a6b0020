#include "remote/image.h"

#include <elf.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

/* Longer code is not believed. */
#define MOST_BYTES (UINT64_C(1) << 32)

/* How a fat binary begins, which holds code for several GPUs. */
struct fatbin {
    uint32_t magic;
    uint16_t version;
    uint16_t header; /* bytes of this header */
    uint64_t body;   /* bytes after it */
};

static size_t fatbin_size(const unsigned char *at, size_t limit) {
    struct fatbin head;

    if (limit < sizeof head) {
        return 0;
    }
    memcpy(&head, at, sizeof head);
    if (head.header < sizeof head || head.body == 0 || head.body > MOST_BYTES) {
        return 0;
    }
    return head.header + head.body;
}

/* Raises the end of the file to that of one of its parts; false if that is too far. */
static bool reach(uint64_t *end, uint64_t offset, uint64_t size) {
    if (offset > MOST_BYTES || size > MOST_BYTES) {
        return false;
    }
    *end = offset + size > *end ? offset + size : *end;
    return true;
}

/* An ELF file ends where the last of its tables, sections and segments does. */
static size_t elf_size(const unsigned char *at, size_t limit) {
    Elf64_Ehdr head;
    uint64_t end = sizeof head;

    if (limit < sizeof head) {
        return 0;
    }
    memcpy(&head, at, sizeof head);
    if (head.e_ident[EI_CLASS] != ELFCLASS64 || head.e_ident[EI_DATA] != ELFDATA2LSB ||
        /* With so many sections that their number stands elsewhere, the file proves nothing here. */
        (head.e_shnum == 0) != (head.e_shoff == 0) ||
        (head.e_shnum && head.e_shentsize != sizeof(Elf64_Shdr)) ||
        (head.e_phnum && head.e_phentsize != sizeof(Elf64_Phdr)) ||
        !reach(&end, head.e_shoff, (uint64_t)head.e_shnum * sizeof(Elf64_Shdr)) ||
        !reach(&end, head.e_phoff, (uint64_t)head.e_phnum * sizeof(Elf64_Phdr)) || end > limit) {
        return 0;
    }
    for (unsigned i = 0; i < head.e_shnum; i++) {
        Elf64_Shdr section;

        memcpy(&section, at + head.e_shoff + i * sizeof section, sizeof section);
        if (section.sh_type != SHT_NOBITS && !reach(&end, section.sh_offset, section.sh_size)) {
            return 0;
        }
    }
    for (unsigned i = 0; i < head.e_phnum; i++) {
        Elf64_Phdr segment;

        memcpy(&segment, at + head.e_phoff + i * sizeof segment, sizeof segment);
        if (!reach(&end, segment.p_offset, segment.p_filesz)) {
            return 0;
        }
    }
    return end;
}

/* What a text may have besides the characters that are seen. */
static bool is_text(unsigned char c) {
    return (c >= ' ' && c != 0x7f) || (c >= '\t' && c <= '\r');
}

static size_t text_size(const unsigned char *at, size_t limit) {
    for (uint64_t i = 0; i < MOST_BYTES && i < limit; i++) {
        if (at[i] == 0) {
            return i ? i + 1 : 0;
        }
        if (!is_text(at[i])) {
            return 0;
        }
    }
    return 0;
}

size_t remote_image_size(const void *image) {
    return remote_image_size_within(image, SIZE_MAX);
}

size_t remote_image_size_within(const void *image, size_t limit) {
    static const unsigned char fatbin[] = {0x50, 0xed, 0x55, 0xba};
    static const unsigned char elf[] = {ELFMAG0, ELFMAG1, ELFMAG2, ELFMAG3};
    const unsigned char *at = image;
    size_t size;

    /* One byte at a time, for a text may end at any. */
    if (limit >= 4 && at[0] == fatbin[0] && at[1] == fatbin[1] && at[2] == fatbin[2] &&
        at[3] == fatbin[3]) {
        size = fatbin_size(at, limit);
    } else if (limit >= 4 && at[0] == elf[0] && at[1] == elf[1] && at[2] == elf[2] &&
               at[3] == elf[3]) {
        size = elf_size(at, limit);
    } else {
        size = text_size(at, limit);
    }
    return size <= limit ? size : 0;
}
