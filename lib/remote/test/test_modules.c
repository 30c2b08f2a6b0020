/* Code, options of the compiler, and the linker, through client and worker: beside a driver that says what it was given and
 * writes when it may. */
#define _GNU_SOURCE
#include "remote/client/module.h"
#include "remote/generated/cuda_decode.h"
#include "remote/test/exercise.h"
#include "remote/worker/session.h"

#include "test/check.h"

#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define OK(call) CHECK_EQUAL(call, CUDA_SUCCESS)
#define FAILS(call, result) CHECK_EQUAL(call, result)

#define INFO ((CUjit_option)3)
#define INFO_SIZE ((CUjit_option)4)
#define ERROR ((CUjit_option)5)
#define ERROR_SIZE ((CUjit_option)6)
#define VALUE(number) ((void *)(uintptr_t)(number))

static const char ptx[] = ".version 8.0\n.target sm_80\n";
static bool current = true;

CUresult remote_current_result(void) {
    return current ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT;
}

/* What the driver was given last, and what it answers. */
static struct {
    unsigned count;
    uint32_t options[REMOTE_MOST_OPTIONS];
    uint64_t values[REMOTE_MOST_OPTIONS];
    CUjit_option *option_list;
    void **value_list;
    char code[4096];
    char name[64];
    size_t size;
    CUjitInputType type;
    CUresult result;
    unsigned long calls;
} seen;

static void see(unsigned count, CUjit_option *options, void **values) {
    seen.calls++;
    seen.count = count;
    CHECK(count <= REMOTE_MOST_OPTIONS);
    for (unsigned i = 0; i < count; i++) {
        seen.options[i] = (uint32_t)options[i];
        seen.values[i] = (uint64_t)(uintptr_t)values[i];
    }
    seen.option_list = options;
    seen.value_list = values;
}

/* Writes as much into a log as its size allows, and what else options tell. */
static void tell(unsigned count, CUjit_option *options, void **values, const char *text) {
    for (unsigned log = 0; log < 2; log++) {
        char *to = NULL;
        size_t room = 0;

        for (unsigned i = 0; i < count; i++) {
            to = options[i] == (log ? ERROR : INFO) ? values[i] : to;
            room = options[i] == (log ? ERROR_SIZE : INFO_SIZE) ? (uintptr_t)values[i] : room;
        }
        if (to && room) {
            memset(to, 'x', room);
            snprintf(to, room, "%s%u", text, log);
        }
        for (unsigned i = 0; i < count; i++) {
            if (options[i] == (log ? ERROR_SIZE : INFO_SIZE)) {
                values[i] = VALUE(to && room ? strlen(to) + 1 : 0);
            }
        }
    }
    for (unsigned i = 0; i < count; i++) {
        if (options[i] == CU_JIT_WALL_TIME) {
            float time = 1.5f;
            memcpy(&values[i], &time, sizeof time);
        }
    }
}

static CUresult load_module(CUmodule *module, const void *image, unsigned count,
                            CUjit_option *options, void **values) {
    see(count, options, values);
    snprintf(seen.code, sizeof seen.code, "%s", image ? (const char *)image : "");
    tell(count, options, values, "module");
    if (!module || !image) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    *module = seen.result == CUDA_SUCCESS ? (CUmodule)(0x1000 + seen.calls) : *module;
    return seen.result;
}

static CUresult load_library(CUlibrary *library, const void *image, CUjit_option *options,
                             void **values, unsigned count, CUlibraryOption *more, void **given,
                             unsigned more_count) {
    CHECK(!more && !given && !more_count);
    return load_module((CUmodule *)(void *)library, image, count, options, values);
}

static CUresult name_of(const char **name, CUfunction function) {
    CHECK_EQUAL((uint64_t)function, 0x77);
    seen.calls++;
    *name = "_Z6kernelPf";
    return CUDA_SUCCESS;
}

/* The linker writes where it was told when it began. */
static struct {
    unsigned count;
    CUjit_option *options;
    void **values;
    bool live;
} begun;
static unsigned char made[(2u << 20) + 77];
static size_t made_size = sizeof made;

static CUresult link_create(unsigned count, CUjit_option *options, void **values,
                            CUlinkState *state) {
    see(count, options, values);
    begun.count = count;
    begun.options = options;
    begun.values = values;
    begun.live = true;
    *state = (CUlinkState)(0x9000 + seen.calls);
    return seen.result;
}

static CUresult link_add(CUlinkState state, CUjitInputType type, void *data, size_t size,
                         const char *name, unsigned count, CUjit_option *options, void **values) {
    CHECK(state && begun.live);
    see(count, options, values);
    seen.type = type;
    seen.size = size;
    CHECK(((char *)data)[size] == '\0');
    snprintf(seen.code, sizeof seen.code, "%s", (char *)data);
    snprintf(seen.name, sizeof seen.name, "%s", name ? name : "none");
    tell(begun.count, begun.options, begun.values, "added");
    tell(count, options, values, "own");
    return seen.result;
}

static CUresult link_complete(CUlinkState state, void **image, size_t *size) {
    CHECK(state && begun.live);
    tell(begun.count, begun.options, begun.values, "completed");
    *image = made;
    *size = made_size;
    return seen.result;
}

static CUresult link_destroy(CUlinkState state) {
    (void)state;
    begun.live = false;
    return CUDA_SUCCESS;
}

static struct remote_cuda_driver driver = {.cuModuleLoadDataEx = load_module,
                                           .cuLibraryLoadData = load_library,
                                           .cuFuncGetName = name_of,
                                           .cuLinkCreate_v2 = link_create,
                                           .cuLinkAddData_v2 = link_add,
                                           .cuLinkComplete = link_complete,
                                           .cuLinkDestroy = link_destroy};

static void check_options(void) {
    char info[40], error[8];
    CUjit_option options[] = {
        (CUjit_option)0,  INFO,         INFO_SIZE, ERROR, ERROR_SIZE, (CUjit_option)30,
        CU_JIT_WALL_TIME, CU_JIT_TARGET};
    void *values[] = {VALUE(32),           info,     VALUE(sizeof info), error,
                      VALUE(sizeof error), VALUE(1), VALUE(0),           VALUE(80)};
    CUmodule module = NULL;
    float time;

    memset(info, '-', sizeof info);
    memset(error, '-', sizeof error);
    OK(cuModuleLoadDataEx(&module, ptx, 8, options, values));
    CHECK(module && loopback_handle(REMOTE_KIND_CUmodule, (uint64_t)module));
    CHECK(strcmp(seen.code, ptx) == 0 && seen.count == 8);
    for (unsigned i = 0; i < 8; i++) {
        CHECK_EQUAL(seen.options[i], options[i]);
    }
    CHECK(seen.values[0] == 32 && seen.values[2] == sizeof info && seen.values[7] == 80);
    CHECK(strcmp(info, "module0") == 0 && strcmp(error, "module1") == 0);
    CHECK(info[8] == '-');
    CHECK(values[1] == info && values[3] == error && values[0] == VALUE(32));
    CHECK(values[2] == VALUE(8) && values[4] == VALUE(8));
    memcpy(&time, &values[6], sizeof time);
    CHECK(time == 1.5f);
    /* A failure has its log too, cut to the room that there is. */
    seen.result = CUDA_ERROR_INVALID_PTX;
    values[2] = VALUE(4);
    values[4] = VALUE(5);
    memset(info, '-', sizeof info);
    memset(error, '-', sizeof error);
    module = NULL;
    FAILS(cuModuleLoadDataEx(&module, ptx, 8, options, values), CUDA_ERROR_INVALID_PTX);
    CHECK(!module && strcmp(info, "mod") == 0 && strcmp(error, "modu") == 0 && error[5] == '-');
    seen.result = CUDA_SUCCESS;
}

static void check_option_faults(void) {
    static const unsigned lists[] = {17, 18, 19, 25, 26, 27, 28};
    CUjit_option option = (CUjit_option)36;
    void *value = NULL;
    CUmodule module;
    CUlibrary library;
    CUlibraryOption preserved = CU_LIBRARY_BINARY_IS_PRESERVED, table = (CUlibraryOption)0;
    unsigned long calls = seen.calls;

    FAILS(cuModuleLoadDataEx(&module, ptx, 1, &option, &value), CUDA_ERROR_INVALID_VALUE);
    for (unsigned i = 0; i < sizeof lists / sizeof *lists; i++) {
        option = (CUjit_option)lists[i];
        FAILS(cuModuleLoadDataEx(&module, ptx, 1, &option, &value), CUDA_ERROR_NOT_SUPPORTED);
    }
    FAILS(cuModuleLoadDataEx(&module, ptx, 1, NULL, &value), CUDA_ERROR_INVALID_VALUE);
    FAILS(cuModuleLoadDataEx(&module, ptx, 65, &option, &value), CUDA_ERROR_INVALID_VALUE);
    FAILS(cuModuleLoadDataEx(&module, "\x01", 0, NULL, NULL), CUDA_ERROR_INVALID_IMAGE);
    FAILS(cuLibraryLoadData(&library, ptx, NULL, NULL, 0, &table, &value, 1),
          CUDA_ERROR_NOT_SUPPORTED);
    FAILS(cuLibraryLoadData(&library, ptx, NULL, NULL, 0, NULL, NULL, 1), CUDA_ERROR_INVALID_VALUE);
    current = false;
    FAILS(cuModuleLoadDataEx(&module, ptx, 0, NULL, NULL), CUDA_ERROR_INVALID_CONTEXT);
    CHECK_EQUAL(seen.calls, calls);
    OK(cuLibraryLoadData(&library, ptx, NULL, NULL, 0, &preserved, &value, 1));
    current = true;
    CHECK(loopback_handle(REMOTE_KIND_CUlibrary, (uint64_t)library));
    FAILS(cuModuleLoadDataEx(NULL, ptx, 0, NULL, NULL), CUDA_ERROR_INVALID_VALUE);
    FAILS(cuModuleLoadDataEx(&module, NULL, 0, NULL, NULL), CUDA_ERROR_INVALID_VALUE);
}

static char folder[] = "/tmp/divvy-modules-XXXXXX", file[80];

static void write_file(const void *bytes, size_t size, off_t length) {
    int to = open(file, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

    CHECK(to >= 0);
    CHECK_EQUAL(write(to, bytes, size), size);
    CHECK_EQUAL(length > 0 ? ftruncate(to, length) : 0, 0);
    close(to);
}

static void check_files(void) {
    CUmodule module;
    CUlibrary library;

    CHECK(mkdtemp(folder));
    snprintf(file, sizeof file, "%s/code", folder);
    FAILS(cuModuleLoad(&module, file), CUDA_ERROR_FILE_NOT_FOUND);
    FAILS(cuModuleLoad(&module, folder), CUDA_ERROR_FILE_NOT_FOUND);
    FAILS(cuModuleLoad(&module, NULL), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQUAL(mkfifo(file, 0600), 0);
    FAILS(cuModuleLoad(&module, file), CUDA_ERROR_FILE_NOT_FOUND);
    CHECK_EQUAL(unlink(file), 0);
    write_file(ptx, sizeof ptx - 1, 0);
    OK(cuModuleLoad(&module, file));
    CHECK(strcmp(seen.code, ptx) == 0);
    OK(cuLibraryLoadFromFile(&library, file, NULL, NULL, 0, NULL, NULL, 0));
    unsigned long calls = seen.calls;
    write_file("", 0, 0);
    FAILS(cuModuleLoad(&module, file), CUDA_ERROR_INVALID_IMAGE);
    write_file("\x01\x02\x03", 3, 0);
    FAILS(cuModuleLoad(&module, file), CUDA_ERROR_INVALID_IMAGE);
    /* Code that says it is longer than its file. */
    write_file("\x50\xed\x55\xba\x01\x00\x10\x00\x00\x01\x00\x00\x00\x00\x00\x00", 16, 0);
    FAILS(cuModuleLoad(&module, file), CUDA_ERROR_INVALID_IMAGE);
    write_file(ptx, sizeof ptx - 1, (off_t)5 << 30);
    FAILS(cuModuleLoad(&module, file), CUDA_ERROR_INVALID_IMAGE);
    CHECK_EQUAL(seen.calls, calls);
}

static void check_names(void) {
    CUfunction function = (CUfunction)loopback_number(REMOTE_KIND_CUfunction, 0x77);
    const char *name = NULL, *again = NULL;
    unsigned long calls = seen.calls;

    OK(cuFuncGetName(&name, function));
    CHECK(strcmp(name, "_Z6kernelPf") == 0);
    OK(cuFuncGetName(&again, function));
    CHECK(again == name && seen.calls == calls + 1);
    FAILS(cuFuncGetName(NULL, function), CUDA_ERROR_INVALID_VALUE);
    FAILS(cuFuncGetName(&name, NULL), CUDA_ERROR_INVALID_VALUE);
    FAILS(cuFuncGetName(&name, (CUfunction)0x5678), CUDA_ERROR_INVALID_HANDLE);
}

static void check_linker(void) {
    char info[64], error[64], own[64];
    CUjit_option options[] = {INFO, INFO_SIZE, ERROR, ERROR_SIZE, CU_JIT_WALL_TIME};
    void *values[] = {info, VALUE(sizeof info), error, VALUE(sizeof error), VALUE(0)};
    CUjit_option own_options[] = {ERROR_SIZE, ERROR};
    void *own_values[] = {VALUE(sizeof own), own};
    CUlinkState state;
    void *image, *again;
    size_t size = 0;

    strcpy(info, "nothing");
    OK(cuLinkCreate_v2(5, options, values, &state));
    CHECK(strcmp(info, "nothing") == 0);
    OK(cuLinkAddData_v2(state, CU_JIT_INPUT_PTX, (void *)(uintptr_t)ptx, sizeof ptx - 1, "my.ptx",
                        2, own_options, own_values));
    CHECK(strcmp(seen.code, ptx) == 0 && seen.size == sizeof ptx - 1);
    CHECK(strcmp(seen.name, "my.ptx") == 0 && seen.type == CU_JIT_INPUT_PTX);
    CHECK(strcmp(info, "added0") == 0 && strcmp(error, "added1") == 0);
    CHECK(strcmp(own, "own1") == 0 && own_values[0] == VALUE(5));
    write_file(ptx, sizeof ptx - 1, 0);
    OK(cuLinkAddFile_v2(state, CU_JIT_INPUT_CUBIN, file, 0, NULL, NULL));
    CHECK(strcmp(seen.code, ptx) == 0 && seen.type == CU_JIT_INPUT_CUBIN);
    CHECK_EQUAL(unlink(file), 0);
    FAILS(cuLinkAddFile_v2(state, CU_JIT_INPUT_PTX, file, 0, NULL, NULL),
          CUDA_ERROR_FILE_NOT_FOUND);
    for (size_t i = 0; i < sizeof made; i++) {
        made[i] = (unsigned char)(i * i >> 3);
    }
    OK(cuLinkComplete(state, &image, &size));
    CHECK(size == sizeof made && memcmp(image, made, size) == 0);
    CHECK(strcmp(info, "comple") == 0);
    OK(cuLinkComplete(state, &again, NULL));
    CHECK(again == image);
    made[5]++;
    OK(cuLinkComplete(state, &again, NULL));
    CHECK(again != image && memcmp(again, made, size) == 0);
    made[5]--;
    CHECK(memcmp(image, made, size) == 0);
    seen.result = CUDA_ERROR_INVALID_PTX;
    FAILS(cuLinkComplete(state, &again, NULL), CUDA_ERROR_INVALID_PTX);
    seen.result = CUDA_SUCCESS;
    OK(cuLinkDestroy(state));
    FAILS(cuLinkComplete(state, &again, NULL), CUDA_ERROR_INVALID_HANDLE);
    FAILS(cuLinkAddData_v2(state, CU_JIT_INPUT_PTX, image, 1, NULL, 0, NULL, NULL),
          CUDA_ERROR_INVALID_HANDLE);
    FAILS(cuLinkDestroy(NULL), CUDA_ERROR_INVALID_HANDLE);
}

/* As many linkers as there may be, one more, and one in the place of one that ended. */
static void check_most(void) {
    static CUlinkState states[REMOTE_MOST_LINKERS];
    CUlinkState more;

    for (unsigned i = 0; i < REMOTE_MOST_LINKERS; i++) {
        OK(cuLinkCreate(0, NULL, NULL, &states[i]));
    }
    FAILS(cuLinkCreate(0, NULL, NULL, &more), CUDA_ERROR_OUT_OF_MEMORY);
    OK(cuLinkDestroy(states[7]));
    OK(cuLinkCreate(0, NULL, NULL, &more));
    OK(cuLinkDestroy(more));
    for (unsigned i = 0; i < REMOTE_MOST_LINKERS; i++) {
        if (i != 7) {
            OK(cuLinkDestroy(states[i]));
        }
    }
}

int main(void) {
    loopback_start(&driver, &nvml_mock);
    check_options();
    check_option_faults();
    check_files();
    check_names();
    check_linker();
    check_most();
    CHECK_EQUAL(rmdir(folder), 0);
    return 0;
}
