/* What is read of code: the sizes of its variables, by any way of writing them, and nothing beyond the
 * code's end, whatever it says. */
#define _GNU_SOURCE
#include "cuda/memory/image.h"

#include <elf.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "test/check.h"

#define RUNS 200000
#define HEAD ".version 8.0\n.target sm_80\n.address_size 64\n"

static uint64_t of(const char *text) {
    uint64_t bytes = image_read(text, SIZE_MAX).variables;
    CHECK_EQUAL(image_read(text, strlen(text)).variables, bytes);
    return bytes;
}

static void declarations(void) {
    static const struct {
        const char *text;
        uint64_t bytes;
    } cases[] = {
        {"", 0},
        {HEAD, 0},
        {".global .u32 a;", 4},
        {".visible.global .u32 a;", 4},
        {".extern .global .align 16 .b8 a[100];", 100},
        {".global .b8 a[3]; .global .u64 b;", 16},
        {".global .v4 .f32 a[2];", 32},
        {".global .f16x2 a[4], b;", 20},
        {".global .b128 a;", 16},
        {".const[3] .b8 a[7];", 7},
        {".global .b8 a[2][3][0x10];", 96},
        {".global .b8 a[0b101][010];", 40},
        {".global .b8 a[4U*(1+2)<<1];", 24},
        {".global .b8 a[(1 ? 5 : 9)];", 5},
        {".global .b8 a[(.u64) 6 / 2 - 1];", 2},
        {".global .b8 a[WARP_SZ % 31 + 1];", 2},
        {".global .s32 a[] = {1, -2, {3, 0x4}};", 16},
        {".global .b8 a[] = \"abcd\";", 5},
        {".global .u64 a = b, c[2] = {b+4, 0};", 24},
        {".global .align 256 .attribute(.managed) .b8 a[5];", 5},
        {".global .texref t;", 128},
        {"/* .global .b8 a[9]; */ // .global .b8 b[9];\n.global /* x */ .b8 c[1];", 1},
        {".file 1 \"a/*b\" .global .b8 a[9];", 9},
        {".file 1 \"C:\\\\dir\\x\" .global .b8 a[9];", 9},
        {".entry k(.param .u64 .ptr .global .align 4 p) { ld.global.u32 %r1, [p]; }", 0},
        {".func f() { .global .b8 inside[11]; cvta.to.global.u64 %rd1, %rd2; }", 11},
        /* Where nobody knows, it is more than there is. */
        {".global .b8 a[unknown];", IMAGE_HUGE},
        {".global .b8 a[0-1];", IMAGE_HUGE},
        {".global .b8 a[99999999999999999999999];", IMAGE_HUGE},
        {".global .b64 a[0x1000000000000][0x1000000000000];", IMAGE_HUGE},
        {".file 1 \"a\\\" .global .b8 b[9];", IMAGE_HUGE},
        {"#define N 9\n.global .b8 a[1];", IMAGE_HUGE},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        uint64_t bytes = of(cases[i].text);
        bytes = bytes > IMAGE_HUGE ? IMAGE_HUGE : bytes;
        if (bytes != cases[i].bytes) {
            printf("%s\n", cases[i].text);
        }
        CHECK_EQUAL(bytes, cases[i].bytes);
    }
    CHECK(image_read(".extern .func (.param .b64 r) malloc (.param .b64 n);", SIZE_MAX).allocates);
    CHECK(image_read("call.uni (r), vprintf, (a, b);", SIZE_MAX).prints);
    CHECK(!image_read(".func mymalloc(); .func vprintf2();", SIZE_MAX).allocates);
    CHECK(image_read(NULL, SIZE_MAX).hidden);
    CHECK(image_read("\177ELF", SIZE_MAX).hidden);
}

static const char names[] =
    "\0.shstrtab\0.nv.global\0.nv.global.init\0.nv.shared.k\0.text.k\0malloc";
struct cubin {
    Elf64_Ehdr head;
    Elf64_Shdr sections[6];
    char names[sizeof names];
};

static struct cubin make_cubin(void) {
    struct cubin c = {
        .head = {.e_ident = {0x7f, 'E', 'L', 'F', ELFCLASS64, ELFDATA2LSB, EV_CURRENT},
                 .e_shoff = offsetof(struct cubin, sections),
                 .e_shentsize = sizeof(Elf64_Shdr),
                 .e_shnum = 6,
                 .e_shstrndx = 1},
        .sections = {{0},
                     {.sh_name = 1,
                      .sh_type = SHT_STRTAB,
                      .sh_offset = offsetof(struct cubin, names),
                      .sh_size = sizeof names},
                     {.sh_name = 11, .sh_type = SHT_NOBITS, .sh_size = 1000},
                     {.sh_name = 22, .sh_type = SHT_PROGBITS, .sh_size = 200, .sh_addralign = 8},
                     {.sh_name = 38, .sh_type = SHT_NOBITS, .sh_size = 5000},
                     {.sh_name = 51, .sh_type = SHT_PROGBITS, .sh_size = 70000}}};
    memcpy(c.names, names, sizeof names);
    return c;
}

struct fat {
    uint32_t magic;
    uint16_t version, header;
    uint64_t body;
    struct {
        uint16_t kind, more;
        uint32_t header;
        uint64_t bytes;
        uint32_t compressed, details[5];
        uint64_t flags;
        union {
            struct cubin elf;
            char text[sizeof(struct cubin)];
        };
    } members[2];
};
#define MEMBER sizeof(((struct fat *)0)->members[0])

static struct fat make_fat(void) {
    struct fat f = {.magic = 0xba55ed50u, .version = 1, .header = 16, .body = 2 * MEMBER};
    for (int i = 0; i < 2; i++) {
        f.members[i].kind = i == 0 ? 2 : 1;
        f.members[i].header = MEMBER - sizeof(struct cubin);
        f.members[i].bytes = sizeof(struct cubin);
    }
    f.members[0].elf = make_cubin();
    strcpy(f.members[1].text, HEAD ".global .b8 a[3000];");
    return f;
}

/* Copies to memory that ends where the page after it cannot be read. */
static char *edge(void) {
    static char *map;
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    if (map == NULL) {
        map = mmap(NULL, 3 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        CHECK(map != MAP_FAILED);
        CHECK_EQUAL(mprotect(map + 2 * page, page, PROT_NONE), 0);
    }
    return map + 2 * page;
}

static struct image read_at_edge(const void *bytes, size_t size) {
    memcpy(edge() - size, bytes, size);
    return image_read(edge() - size, size);
}

static void binaries(void) {
    struct cubin cubin = make_cubin();
    struct fat fat = make_fat();
    struct {
        uint32_t magic, version;
        const void *fat, *none;
    } wrapper = {0x466243b1u, 1, &fat, NULL};
    struct image image = read_at_edge(&cubin, sizeof cubin);
    CHECK_EQUAL(image.variables, 1000 + 200 + 7);
    CHECK(image.allocates && !image.prints && !image.hidden);
    image = read_at_edge(&fat, sizeof fat);
    CHECK_EQUAL(image.variables, 3000);
    CHECK(image.allocates && !image.hidden);
    CHECK_EQUAL(image_read(&wrapper, SIZE_MAX).variables, 3000);
    fat.members[1].flags = 0x2000;
    image = read_at_edge(&fat, sizeof fat);
    CHECK_EQUAL(image.variables, 1207);
    CHECK(image.hidden);
    wrapper.fat = &wrapper; /* leads nowhere */
    CHECK(image_read(&wrapper, SIZE_MAX).hidden);
}

static uint64_t next(void) {
    static uint64_t state = 7;
    state ^= state << 13;
    state ^= state >> 7;
    return state ^= state << 17;
}

/* Bytes changed and cut off anywhere. */
static void mutations(void) {
    static const char text[] =
        HEAD ".global .align 8 .v2 .f32 a[(4 + 2) * 3][] = {1, {2}, \"x\"}, b; /* c */ #\n"
             ".visible .entry k(.param .u64 .ptr .global p) { ld.global.u32 %r, [p]; }";
    struct fat fat = make_fat();
    char bytes[sizeof fat];
    for (unsigned i = 0; i < RUNS; i++) {
        bool binary = next() % 2;
        size_t size = binary ? sizeof fat : sizeof text, from = 0;
        memcpy(bytes, binary ? (const char *)&fat : text, size);
        for (unsigned n = (unsigned)(next() % 6); n > 0; n--) {
            bytes[next() % size] = (char)(next() % 3 ? (unsigned)next() : next() % 2 ? 0xff : 0);
        }
        if (binary && next() % 2) {
            from = offsetof(struct fat, members[0].elf);
        }
        size -= next() % 4 ? 0 : next() % (size - from);
        read_at_edge(bytes + from, size - from);
    }
}

int main(void) {
    declarations();
    binaries();
    mutations();
    return 0;
}
