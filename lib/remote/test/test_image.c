/* How long code is: no byte is read beyond what the answer says, and what proves nothing is refused. */
#define _GNU_SOURCE
#include "remote/image.h"
#include "test/check.h"

#include <elf.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* Copies to memory that ends where the page after it cannot be read. */
static void *at_edge(const void *bytes, size_t size) {
    size_t page = (size_t)sysconf(_SC_PAGESIZE), whole = (size + page - 1) / page * page;
    unsigned char *map =
        mmap(NULL, whole + page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    CHECK(map != MAP_FAILED);
    CHECK_EQUAL(mprotect(map + whole, page, PROT_NONE), 0);
    memcpy(map + whole - size, bytes, size);
    return map + whole - size;
}

/* Of code that proves its size, no part proves any, however it ends. */
static size_t size_of(const void *bytes, size_t size) {
    size_t whole = remote_image_size(at_edge(bytes, size));

    for (size_t part = 1; part <= size; part++) {
        size_t within = remote_image_size_within(at_edge(bytes, part), part);

        CHECK_EQUAL(within, part < whole ? 0 : whole);
    }
    return whole;
}

static void check_text(void) {
    static const char ptx[] = "//\n.version 8.0\n\t.target sm_80\r\n";

    CHECK_EQUAL(size_of(ptx, sizeof ptx), sizeof ptx);
    CHECK_EQUAL(size_of("a", 2), 2);
    CHECK_EQUAL(size_of("", 1), 0);
    CHECK_EQUAL(size_of("PT\x01", 4), 0);
    CHECK_EQUAL(size_of("\x50\xed\x55", 4), 4);
    CHECK_EQUAL(size_of("\x7f", 2), 0);
}

static void check_fatbin(void) {
    struct {
        uint32_t magic;
        uint16_t version, header;
        uint64_t body;
    } head = {0xba55ed50u, 1, 16, 400};

    CHECK_EQUAL(size_of(&head, sizeof head), 416);
    head.header = 64;
    CHECK_EQUAL(size_of(&head, sizeof head), 464);
    head.header = 15;
    CHECK_EQUAL(size_of(&head, sizeof head), 0);
    head.header = 16;
    head.body = 0;
    CHECK_EQUAL(size_of(&head, sizeof head), 0);
    head.body = UINT64_MAX;
    CHECK_EQUAL(size_of(&head, sizeof head), 0);
}

static void check_elf(void) {
    struct {
        Elf64_Ehdr head;
        Elf64_Phdr segment;
        Elf64_Shdr sections[2];
        unsigned char body[104];
    } file = {
        .head = {.e_ident = {ELFMAG0, ELFMAG1, ELFMAG2, ELFMAG3, ELFCLASS64, ELFDATA2LSB},
                 .e_phoff = sizeof(Elf64_Ehdr),
                 .e_phnum = 1,
                 .e_phentsize = sizeof(Elf64_Phdr),
                 .e_shoff = sizeof(Elf64_Ehdr) + sizeof(Elf64_Phdr),
                 .e_shnum = 2,
                 .e_shentsize = sizeof(Elf64_Shdr)},
        .segment = {.p_offset = 0, .p_filesz = 64},
        .sections = {{.sh_type = SHT_NOBITS, .sh_offset = 5000, .sh_size = 5000},
                     {.sh_type = SHT_PROGBITS}},
    };
    size_t body = sizeof file - sizeof file.body;

    CHECK_EQUAL(size_of(&file, sizeof file), body);
    file.sections[1].sh_offset = body;
    file.sections[1].sh_size = sizeof file.body;
    CHECK_EQUAL(size_of(&file, sizeof file), sizeof file);
    file.segment.p_filesz = 2000;
    CHECK_EQUAL(size_of(&file, sizeof file), 2000);
    file.segment.p_filesz = UINT64_MAX;
    CHECK_EQUAL(size_of(&file, sizeof file), 0);
    file.segment.p_filesz = 0;
    file.sections[1].sh_offset = UINT64_MAX - 10;
    CHECK_EQUAL(size_of(&file, sizeof file), 0);
    file.sections[1].sh_offset = 0;
    file.head.e_shentsize = 8;
    CHECK_EQUAL(size_of(&file, sizeof file), 0);
    file.head.e_shentsize = sizeof(Elf64_Shdr);
    file.head.e_shoff = UINT64_C(1) << 62;
    CHECK_EQUAL(size_of(&file, sizeof file), 0);
    file.head.e_shnum = 0;
    CHECK_EQUAL(size_of(&file, sizeof file), 0);
    file.head.e_shoff = 0;
    CHECK_EQUAL(size_of(&file, sizeof file), sizeof(Elf64_Ehdr) + sizeof(Elf64_Phdr));
    file.head.e_ident[EI_CLASS] = ELFCLASS32;
    CHECK_EQUAL(size_of(&file, sizeof file), 0);
}

int main(void) {
    check_text();
    check_fatbin();
    check_elf();
    return 0;
}
