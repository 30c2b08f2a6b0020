#include "cuda/memory/image.h"

#include <elf.h>
#include <string.h>

#define FATBIN_WRAPPER 0x466243b1u /* what compilers hand to a program: it points to the rest */
#define FATBIN 0xba55ed50u
#define SECTIONS_MAX (1u << 20)
#define MEMBERS_MAX (1u << 16)
#define FILE_MAX (UINT64_C(1) << 40) /* offsets in longer files are not believed */

/* How fat binaries begin, and each of their members, by several published readers of the format. */
struct fatbin {
    uint32_t magic;
    uint16_t version;
    uint16_t header; /* bytes of this header */
    uint64_t body;   /* bytes behind it */
};
struct wrapper {
    uint32_t magic;
    uint32_t version;
    const void *fatbin;
};
struct member {
    uint16_t kind;
    uint16_t unknown;
    uint32_t header; /* bytes of this header */
    uint64_t bytes;  /* behind it */
    uint32_t compressed;
    uint32_t more[5];
    uint64_t flags;
};
enum { MEMBER_TEXT = 1, MEMBER_ELF = 2 };
#define COMPRESSED UINT64_C(0xa000) /* either way */

static void add(uint64_t *sum, uint64_t bytes) {
    *sum = bytes > IMAGE_HUGE - *sum ? IMAGE_HUGE : *sum + bytes;
}

static bool begins(const char *name, const char *prefix) {
    return strncmp(name, prefix, strlen(prefix)) == 0;
}

/* Whether a table of strings has this one. */
static bool has(const char *strings, uint64_t bytes, const char *wanted) {
    size_t length = strlen(wanted) + 1;
    for (uint64_t at = 0; at + length <= bytes;) {
        if (memcmp(strings + at, wanted, length) == 0) {
            return true;
        }
        const char *end = memchr(strings + at, '\0', bytes - at);
        at = end != NULL ? (uint64_t)(end - strings) + 1 : bytes;
    }
    return false;
}

/* Shared memory has no place in device memory, and a kernel's parameters come with its launch. */
static bool takes(const Elf64_Shdr *section, const char *name) {
    if (section->sh_type == SHT_NOBITS) {
        return !begins(name, ".nv.shared");
    }
    return section->sh_type == SHT_PROGBITS &&
           (begins(name, ".nv.global") || begins(name, ".nv.constant3"));
}

static bool within(uint64_t offset, uint64_t bytes, size_t most) {
    return offset <= FILE_MAX && bytes <= FILE_MAX && offset + bytes <= most;
}

static const char *name_of(const char *file, const Elf64_Shdr *names, uint32_t at) {
    bool known = names->sh_type == SHT_STRTAB && at < names->sh_size &&
                 memchr(file + names->sh_offset + at, '\0', names->sh_size - at) != NULL;
    return known ? file + names->sh_offset + at : "";
}

static void read_section(const char *file, size_t most, const Elf64_Shdr *section, const char *name,
                         struct image *image) {
    if (takes(section, name)) {
        uint64_t align = section->sh_addralign;
        align = align > IMAGE_HUGE ? IMAGE_HUGE : align;
        add(&image->variables, section->sh_size > IMAGE_HUGE ? IMAGE_HUGE : section->sh_size);
        add(&image->variables, section->sh_size != 0 && align > 1 ? align - 1 : 0);
    } else if (section->sh_type == SHT_STRTAB &&
               within(section->sh_offset, section->sh_size, most)) {
        image->allocates |= has(file + section->sh_offset, section->sh_size, "malloc");
        image->prints |= has(file + section->sh_offset, section->sh_size, "vprintf");
    }
}

static struct image read_elf(const char *file, size_t most) {
    struct image image = {.hidden = true};
    Elf64_Shdr section, names = {0};
    Elf64_Ehdr head;
    /* A text that only begins like an ELF file may be shorter than a header. */
    if (most < sizeof head || file[EI_CLASS] != ELFCLASS64) {
        return image;
    }
    memcpy(&head, file, sizeof head);
    uint64_t count = head.e_shnum;
    if (head.e_shoff == 0 || head.e_shentsize != sizeof section ||
        !within(head.e_shoff, sizeof section, most)) {
        return image;
    }
    if (count == 0) { /* too many for the header: the first section tells */
        memcpy(&section, file + head.e_shoff, sizeof section);
        count = section.sh_size;
    }
    if (count > SECTIONS_MAX || !within(head.e_shoff, count * sizeof section, most)) {
        return image;
    }
    image.hidden = false;
    if (head.e_shstrndx < count) {
        memcpy(&names, file + head.e_shoff + head.e_shstrndx * sizeof names, sizeof names);
        names.sh_type = within(names.sh_offset, names.sh_size, most) ? names.sh_type : SHT_NULL;
    }
    for (uint64_t i = 0; i < count; i++) {
        memcpy(&section, file + head.e_shoff + i * sizeof section, sizeof section);
        read_section(file, most, &section, name_of(file, &names, section.sh_name), &image);
    }
    return image;
}

static struct image read_member(const char *at, uint64_t bytes, const struct member *member) {
    if ((member->flags & COMPRESSED) != 0 || member->compressed != 0) {
        return (struct image){.hidden = true};
    }
    if (member->kind == MEMBER_TEXT) {
        return image_read_text(at, bytes);
    }
    if (member->kind == MEMBER_ELF && bytes > EI_NIDENT) {
        return read_elf(at, bytes);
    }
    return (struct image){.hidden = true};
}

static struct image read_fatbin(const char *at, size_t most) {
    struct image all = {.hidden = true};
    struct member member;
    struct fatbin head;
    if (most < sizeof head) {
        return all;
    }
    memcpy(&head, at, sizeof head);
    if (head.header < sizeof head || !within(head.header, head.body, most)) {
        return all;
    }
    all.hidden = false;
    const char *next = at + head.header, *end = next + head.body;
    for (unsigned i = 0; (size_t)(end - next) >= sizeof member && i < MEMBERS_MAX; i++) {
        memcpy(&member, next, sizeof member);
        if (member.header < sizeof member || member.header > (size_t)(end - next) ||
            member.bytes > (size_t)(end - next) - member.header) {
            all.hidden = true;
            break;
        }
        struct image one = read_member(next + member.header, member.bytes, &member);
        all.variables = one.variables > all.variables ? one.variables : all.variables;
        all.allocates |= one.allocates;
        all.prints |= one.prints;
        all.hidden |= one.hidden;
        next += member.header + member.bytes;
    }
    return all;
}

/* The first four bytes, one at a time, for a text may end at any. */
static uint32_t magic_of(const char *at, size_t most) {
    uint32_t magic = 0;
    for (size_t i = 0; i < sizeof magic && i < most && (i == 0 || at[i - 1] != '\0'); i++) {
        magic |= (uint32_t)(unsigned char)at[i] << 8 * i;
    }
    return magic;
}

struct image image_read(const void *code, size_t most) {
    const char *at = code;
    uint32_t magic = at != NULL ? magic_of(at, most) : FATBIN_WRAPPER;
    if (at != NULL && magic == FATBIN_WRAPPER && most == SIZE_MAX) {
        struct wrapper wrapper;
        memcpy(&wrapper, at, sizeof wrapper);
        at = wrapper.fatbin;
        magic = at != NULL ? magic_of(at, most) : magic;
    }
    if (magic == FATBIN_WRAPPER) {
        return (struct image){.hidden = true};
    }
    if (magic == FATBIN) {
        return read_fatbin(at, most);
    }
    return memcmp(&magic, ELFMAG, SELFMAG) == 0 ? read_elf(at, most) : image_read_text(at, most);
}
