/* Variables of code, and the heap and print buffer of kernels: what does not fit is refused before the
 * driver loads the code. */
#define _GNU_SOURCE
#include "cuda/test/code.h"

#include <elf.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static struct setting s;

static const char allocating[] = HEAD ".extern .func (.param .b64 r) malloc (.param .b64 n);\n"
                                      ".visible .entry use() { ret; }\n";

static void variables(void) {
    CUmodule module, second, many[40];
    uint64_t before = setting_used(&s);
    CHECK_EQUAL(CUDA(&s, cuModuleLoadData)(&module, code_huge), CUDA_ERROR_OUT_OF_MEMORY);
    CHECK_EQUAL(CUDA(&s, cuModuleLoadDataEx)(&module, code_huge, 0, NULL, NULL),
                CUDA_ERROR_OUT_OF_MEMORY);
    CHECK_EQUAL(setting_used(&s), before);
    CHECK_EQUAL(CUDA(&s, cuModuleLoadData)(&module, code_large), CUDA_SUCCESS);
    CHECK_EQUAL(setting_used(&s), before + 300 * MIB);
    CHECK_TRUE_ACCOUNT(&s);
    CHECK_EQUAL(CUDA(&s, cuModuleLoadFatBinary)(&second, code_large), CUDA_ERROR_OUT_OF_MEMORY);
    CHECK_EQUAL(CUDA(&s, cuModuleUnload)(module), CUDA_SUCCESS);
    CHECK_EQUAL(setting_used(&s), before);
    for (int i = 0; i < 40; i++) {
        CHECK_EQUAL(CUDA(&s, cuModuleLoadData)(&many[i], code_small), CUDA_SUCCESS);
        code_check_account(&s, 2 + (unsigned)i);
    }
    for (int i = 0; i < 40; i++) {
        CHECK_EQUAL(CUDA(&s, cuModuleUnload)(many[i]), CUDA_SUCCESS);
        code_check_account(&s, 100);
    }
    CHECK_EQUAL(setting_used(&s), before);
    CHECK_TRUE_ACCOUNT(&s);
    /* A failed load gives back what was reserved. */
    CHECK_EQUAL(CUDA(&s, cuModuleLoadData)(&module, ".global .b8 x[1000000];"),
                CUDA_ERROR_INVALID_IMAGE);
    CHECK_EQUAL(setting_used(&s), before);
}

/* A fat binary with a cubin whose variables have no bytes in the file; shared memory is not device
 * memory. */
static const char names[] = "\0.shstrtab\0.nv.global\0.nv.shared.k";
struct cubin {
    Elf64_Ehdr head;
    Elf64_Shdr sections[4];
    char names[sizeof names];
};
struct binary {
    uint32_t magic;
    uint16_t version, header;
    uint64_t body;
    uint16_t kind, more; /* of its only member, from here on */
    uint32_t member_header;
    uint64_t bytes;
    uint32_t compressed, details[5];
    uint64_t flags;
    struct cubin elf;
};
#define MEMBER offsetof(struct binary, kind)

static struct binary make_binary(uint64_t variables) {
    struct binary b = {
        .magic = 0xba55ed50u,
        .version = 1,
        .header = MEMBER,
        .body = sizeof b - MEMBER,
        .kind = 2,
        .member_header = offsetof(struct binary, elf) - MEMBER,
        .bytes = sizeof(struct cubin),
        .elf = {.head = {.e_ident = {0x7f, 'E', 'L', 'F', ELFCLASS64, ELFDATA2LSB, EV_CURRENT},
                         .e_shoff = offsetof(struct cubin, sections),
                         .e_shentsize = sizeof(Elf64_Shdr),
                         .e_shnum = 4,
                         .e_shstrndx = 1},
                .sections = {{0},
                             {.sh_name = 1,
                              .sh_type = SHT_STRTAB,
                              .sh_offset = offsetof(struct cubin, names),
                              .sh_size = sizeof names},
                             {.sh_name = 11, .sh_type = SHT_NOBITS, .sh_size = variables},
                             {.sh_name = 22, .sh_type = SHT_NOBITS, .sh_size = 1000 * MIB}}}};
    memcpy(b.elf.names, names, sizeof names);
    return b;
}

static void load_each_way(uint64_t variables, CUresult expected) {
    struct binary b = make_binary(variables);
    struct {
        uint32_t magic, version;
        const void *fat, *none;
    } wrapper = {0x466243b1u, 1, &b, NULL};
    char path[] = "/tmp/divvy-variables-XXXXXX";
    const void *forms[] = {&b.elf, &b, &wrapper, path};
    uint64_t before = setting_used(&s);
    CUmodule module;
    int file = mkstemp(path);
    CHECK(file >= 0);
    CHECK(write(file, &b, sizeof b) == (ssize_t)sizeof b);
    for (int i = 0; i < 4; i++) {
        CHECK_EQUAL(i < 3 ? CUDA(&s, cuModuleLoadData)(&module, forms[i])
                          : CUDA(&s, cuModuleLoad)(&module, forms[i]),
                    expected);
        CHECK_EQUAL(setting_used(&s), before + (expected == CUDA_SUCCESS ? variables : 0));
        CHECK_TRUE_ACCOUNT(&s);
        if (expected == CUDA_SUCCESS) {
            CHECK_EQUAL(CUDA(&s, cuModuleUnload)(module), CUDA_SUCCESS);
        }
        CHECK_EQUAL(setting_used(&s), before);
    }
    CHECK(unlink(path) == 0);
    close(file);
    CHECK_EQUAL(CUDA(&s, cuModuleLoad)(&module, path), CUDA_ERROR_FILE_NOT_FOUND);
}

static void binaries(void) {
    load_each_way(300 * MIB, CUDA_SUCCESS);
    load_each_way(LIMIT, CUDA_ERROR_OUT_OF_MEMORY);
    load_each_way(UINT64_MAX - 5, CUDA_ERROR_OUT_OF_MEMORY);
}

/* A library may be needed in every context that there is, or comes. */
static void libraries(CUcontext first) {
    CUlibrary library;
    CUkernel kernel;
    CUfunction function;
    CUcontext second;
    uint64_t before = setting_used(&s);
    CHECK_EQUAL(CUDA(&s, cuLibraryLoadData)(&library, code_huge, NULL, NULL, 0, NULL, NULL, 0),
                CUDA_ERROR_OUT_OF_MEMORY);
    CHECK_EQUAL(CUDA(&s, cuLibraryLoadData)(&library, code_large, NULL, NULL, 0, NULL, NULL, 0),
                CUDA_SUCCESS);
    CHECK_EQUAL(setting_used(&s), before + 300 * MIB);
    CHECK_EQUAL(CUDA(&s, cuLibraryGetKernel)(&kernel, library, "use"), CUDA_SUCCESS);
    CHECK_EQUAL(CUDA(&s, cuKernelGetFunction)(&function, kernel), CUDA_SUCCESS);
    CHECK_TRUE_ACCOUNT(&s);
    CHECK_EQUAL(CUDA(&s, cuCtxCreate_v2)(&second, 0, 0), CUDA_ERROR_OUT_OF_MEMORY);
    CHECK_EQUAL(CUDA(&s, cuCtxSetCurrent)(first), CUDA_SUCCESS);
    CHECK_EQUAL(CUDA(&s, cuLibraryUnload)(library), CUDA_SUCCESS);
    CHECK_TRUE_ACCOUNT(&s);
    CHECK_EQUAL(CUDA(&s, cuCtxCreate_v2)(&second, 0, 0), CUDA_SUCCESS);
    CHECK_EQUAL(CUDA(&s, cuLibraryLoadData)(&library, code_large, NULL, NULL, 0, NULL, NULL, 0),
                CUDA_ERROR_OUT_OF_MEMORY);
    CHECK_EQUAL(CUDA(&s, cuCtxDestroy_v2)(second), CUDA_SUCCESS);
    CHECK_EQUAL(CUDA(&s, cuCtxSetCurrent)(first), CUDA_SUCCESS);
    CHECK_EQUAL(setting_used(&s), before);
    CHECK_TRUE_ACCOUNT(&s);
}

/* The heap of kernels is taken when code that allocates is loaded. */
static void heaps(void) {
    CUmodule module;
    uint64_t before = setting_used(&s);
    CHECK_EQUAL(CUDA(&s, cuCtxSetLimit)(CU_LIMIT_MALLOC_HEAP_SIZE, 600 * MIB), CUDA_SUCCESS);
    CHECK_EQUAL(setting_used(&s), before);
    CHECK_EQUAL(CUDA(&s, cuModuleLoadData)(&module, allocating), CUDA_ERROR_OUT_OF_MEMORY);
    CHECK_EQUAL(setting_used(&s), before);
    CHECK_EQUAL(CUDA(&s, cuCtxSetLimit)(CU_LIMIT_MALLOC_HEAP_SIZE, 100 * MIB), CUDA_SUCCESS);
    CHECK_EQUAL(CUDA(&s, cuModuleLoadData)(&module, allocating), CUDA_SUCCESS);
    CHECK_EQUAL(setting_used(&s), before + 100 * MIB);
    CHECK_TRUE_ACCOUNT(&s);
    CHECK_EQUAL(CUDA(&s, cuCtxSetLimit)(CU_LIMIT_MALLOC_HEAP_SIZE, 600 * MIB),
                CUDA_ERROR_OUT_OF_MEMORY);
    CHECK_EQUAL(CUDA(&s, cuCtxSetLimit)(CU_LIMIT_MALLOC_HEAP_SIZE, 200 * MIB), CUDA_SUCCESS);
    CHECK_TRUE_ACCOUNT(&s);
    CHECK_EQUAL(CUDA(&s, cuModuleUnload)(module), CUDA_SUCCESS);
    code_check_account(&s, 0);
}

int main(void) {
    sim_make(&s, 2, LIMIT);
    CUcontext context = setting_context(&s);
    CHECK_TRUE_ACCOUNT(&s);
    variables();
    binaries();
    libraries(context);
    heaps();
    CHECK(sim_peak(&s, 0) <= LIMIT);
    CHECK_EQUAL(CUDA(&s, cuCtxDestroy_v2)(context), CUDA_SUCCESS);
    CHECK_EQUAL(setting_used(&s), 0);
    CHECK_EQUAL(sim_used(&s, 0), 0);
    return 0;
}
