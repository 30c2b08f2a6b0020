/* Binary code, as far as it takes memory: a cubin is an ELF file in whose sections ".nv.global" (NOBITS)
 * and ".nv.global.init" the variables lie, as cuobjdump and readelf show; shared memory has sections of the
 * same type. A fat binary is a list of such files and of PTX. */
#include "simgpu/cuda/variables.h"

#include <elf.h>
#include <string.h>

#define WRAPPER 0x466243b1u
#define VARIABLES_MAX (UINT64_C(1) << 41)
#define COMPRESSED UINT64_C(0xa000)

uint64_t binary_variables(const unsigned char *elf) {
    Elf64_Shdr names = {0}, s;
    uint64_t bytes = 0;
    Elf64_Ehdr head;

    if (elf[EI_CLASS] != ELFCLASS64) {
        return 0;
    }
    memcpy(&head, elf, sizeof head);
    if (!head.e_shoff || head.e_shentsize != sizeof s || head.e_shstrndx >= head.e_shnum) {
        return 0;
    }
    memcpy(&names, elf + head.e_shoff + head.e_shstrndx * sizeof names, sizeof names);
    for (unsigned i = 0; i < head.e_shnum && bytes < VARIABLES_MAX; i++) {
        memcpy(&s, elf + head.e_shoff + i * sizeof s, sizeof s);
        /* The longest prefix that matters, and whole sections of names alone. */
        char name[16] = "";
        if (names.sh_type == SHT_STRTAB && s.sh_name < names.sh_size) {
            uint64_t left = names.sh_size - s.sh_name;
            memcpy(name, elf + names.sh_offset + s.sh_name,
                   left < sizeof name - 1 ? left : sizeof name - 1);
        }
        bool global = strncmp(name, ".nv.global", strlen(".nv.global")) == 0;
        if (global && (s.sh_type == SHT_NOBITS || s.sh_type == SHT_PROGBITS)) {
            bytes += s.sh_size < VARIABLES_MAX ? s.sh_size : VARIABLES_MAX;
        }
    }
    return bytes;
}

struct fat {
    uint32_t magic;
    uint16_t version, header;
    uint64_t body;
};
struct entry {
    uint16_t kind, more;
    uint32_t header;
    uint64_t bytes;
    uint32_t compressed, details[5];
    uint64_t flags;
};

const unsigned char *binary_member(const unsigned char *fat, uint64_t *bytes, bool *text) {
    struct fat head;
    struct entry entry;

    memcpy(&head, fat, sizeof head);
    if (head.magic == WRAPPER) {
        memcpy(&fat, fat + 8, sizeof fat);
        if (!fat) {
            return NULL;
        }
        memcpy(&head, fat, sizeof head);
    }
    if (head.header < sizeof head || head.magic == WRAPPER) {
        return NULL;
    }
    for (uint64_t at = 0; head.body >= sizeof entry && at <= head.body - sizeof entry;) {
        const unsigned char *here = fat + head.header + at;
        memcpy(&entry, here, sizeof entry);
        uint64_t left = head.body - at;
        if (entry.header < sizeof entry || entry.header > left ||
            entry.bytes > left - entry.header) {
            return NULL;
        }
        *text = entry.kind == 1;
        *bytes = entry.bytes;
        if ((*text || (entry.kind == 2 && entry.bytes > sizeof(Elf64_Ehdr))) &&
            !(entry.flags & COMPRESSED) && !entry.compressed) {
            return here + entry.header;
        }
        at += entry.header + entry.bytes;
    }
    return NULL;
}
