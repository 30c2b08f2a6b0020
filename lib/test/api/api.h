/* The API suite: calls of the documented interfaces, and what they must answer, for any library that says it is the driver's.
 * It knows the library by a path alone. A check that fails is told and counted, and the suite goes on. */
#ifndef DIVVY_TEST_API_API_H
#define DIVVY_TEST_API_API_H

#include "abi/generated/cuda_functions.h"
#include "abi/generated/nvml_functions.h"

#include <stdbool.h>
#include <stdint.h>

#define MIB ((size_t)1 << 20)
#define ABSENT ((CUdeviceptr)4096) /* nothing is at this address */
#define COUNT(array) (sizeof(array) / sizeof *(array))

/* A function of the library under test, with its declared type. */
#define CU(name) ((__typeof__(name) *)api_find(#name, false))
#define ML(name) ((__typeof__(name) *)api_find(#name, true))

/* Where a check stands; each has one of its own. */
struct api_place {
    const char *file, *text;
    int line;
    bool used;
};
#define API_CHECK(text, got, want)                                                                 \
    do {                                                                                           \
        static struct api_place place_ = {__FILE__, text, __LINE__, false};                        \
        api_check(&place_, (long long)(got), (long long)(want));                                   \
    } while (0)

/* What a call answers. Where the caller says that its errors may come late, the next call that waits may answer it. */
#define ANSWERS(want, name, ...)                                                                   \
    API_CHECK(#name, api_answer(#name, CU(name)(__VA_ARGS__), want), want)
#define OK(name, ...) ANSWERS(CUDA_SUCCESS, name, __VA_ARGS__)
#define INVALID(name, ...) ANSWERS(CUDA_ERROR_INVALID_VALUE, name, __VA_ARGS__)
#define ML_ANSWERS(want, name, ...) API_CHECK(#name, ML(name)(__VA_ARGS__), want)
#define ML_OK(name, ...) ML_ANSWERS(NVML_SUCCESS, name, __VA_ARGS__)
/* Whole numbers, the second being what is expected; and any condition. */
#define SAME(got, want) API_CHECK(#got, got, want)
#define TRUE(condition) API_CHECK(#condition, !!(condition), 1)
/* The same in a loop whose rounds are told apart by a text. */
#define NAMED(name, got, want) api_named(__FILE__, __LINE__, name, (long long)(got), want)
/* A call that the library may lack: it then answers exactly that it is not supported. What depends on its success follows
 * as a block. */
#define SERVED(name, ...)                                                                          \
    if (api_lacks(#name)) {                                                                        \
        ANSWERS(CUDA_ERROR_NOT_SUPPORTED, name, __VA_ARGS__);                                      \
    } else if (API_SERVED(name, __VA_ARGS__))
#define API_SERVED(name, ...)                                                                      \
    __extension__({                                                                                \
        CUresult result_ = CU(name)(__VA_ARGS__);                                                  \
        API_CHECK(#name, result_, CUDA_SUCCESS);                                                   \
        result_ == CUDA_SUCCESS;                                                                   \
    })

uintptr_t api_find(const char *name, bool nvml);
/* Whether the library has a name at all. */
bool api_has(const char *name);
CUresult api_answer(const char *name, CUresult got, CUresult want);
void api_check(struct api_place *place, long long got, long long want);
void api_named(const char *file, int line, const char *name, long long got, long long want);
/* Whether the list that the caller gave says that this is not served. */
bool api_lacks(const char *name);
/* The value that this list gives an attribute of devices; false if it says nothing of it. */
bool api_lacking_attribute(const char *name, int *value);
/* Calls a function for each name on the list. */
void api_each_lack(void (*of)(const char *name));
/* Whether the caller has given a library of NVML too. */
bool api_has_nvml(void);

/* A process begins with nothing; most cases begin with a context on the first device. */
CUcontext api_begin(void);
/* Kernels whose results are known: divvy_fill(u32 *p, u32 value, u64 n) and divvy_vecadd(a, b, c, u32 n). */
extern const char api_ptx[];
CUfunction api_function(const char *name);
CUresult api_fill(CUdeviceptr to, uint32_t value, uint64_t words, CUstream stream);
/* The word at an address of the device, read after all that was asked for before. */
uint32_t api_word(CUdeviceptr address);
/* Whether all bytes there are this one. */
bool api_is_filled(CUdeviceptr address, unsigned char byte, size_t bytes);
/* Bytes that differ from place to place. */
void api_pattern(unsigned char *at, size_t bytes, unsigned seed);
/* Runs a function in a child process: what it returned, or 256 and the signal that ended it. */
int api_child(int (*body)(void));

struct api_case {
    const char *name;
    void (*run)(void);
};
#define API_CASE(name) void api_case_##name(void);
#include "test/api/cases.inc"
#undef API_CASE

#endif
