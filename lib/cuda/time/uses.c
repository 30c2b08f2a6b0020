#include "cuda/time/uses.h"

#include <string.h>

#include "cuda/fork.h"
#include "cuda/memory/code.h"
#include "cuda/memory/swapped.h"
#include "cuda/table.h"
#include "cuda/time/kernel.h"

/* Parameters of a kernel, in the fields of an entry: a bit for each of the first 64 that has eight
 * bytes (amount and owner), and two that are longer (freeing), by place and words. */
#define PARAMETERS 64u
#define PLACE_BITS 6u
#define WORDS_BITS 10u
#define LONG_BITS (PLACE_BITS + WORDS_BITS)
#define WORDS_MAX ((1u << WORDS_BITS) - 1)
_Static_assert(1u << PLACE_BITS == PARAMETERS && 2 * LONG_BITS == 32, "two fit into freeing");
#define UNTOLD UINT32_MAX  /* in freeing: the driver does not tell the parameters */
#define BUFFER_WORDS 4096u /* more parameters than any kernel has */

/* No allocation lies below, and no address of a GPU above. */
#define ADDRESS_LEAST ((uint64_t)1 << 16)
#define ADDRESS_MOST ((uint64_t)1 << 57)

#define RECENT 1024u  /* power of two */
#define GRAPHED 4096u /* power of two */
#define PROBES 16u

static uint64_t period;
static uint64_t
    recent[RECENT]; /* addresses that were noted in this period, mixed with it; atomic */
static uint64_t graphed[GRAPHED]; /* of memory that graphs use; atomic */
static uint64_t graphs_period;    /* in which that was noted last; atomic */
static uint64_t all_period;       /* in which all memory was noted last; atomic */
static uint32_t graphs_untold;    /* graphs have kernels that may name anything; atomic */
static table layouts;             /* of parameters, by function */

uint64_t uses_period(void) {
    return __atomic_load_n(&period, __ATOMIC_ACQUIRE);
}

void uses_next(void) {
    __atomic_add_fetch(&period, 1, __ATOMIC_RELEASE);
}

/* Keeps memory that a graph uses. What finds no place is not remembered. */
static void keep(uint64_t address) {
    uint64_t home = table_hash(address) >> 52;
    for (unsigned i = 0; i < PROBES; i++) {
        uint64_t *place = &graphed[(home + i) % GRAPHED], old = 0;
        if (__atomic_load_n(place, __ATOMIC_RELAXED) == address ||
            __atomic_compare_exchange_n(place, &old, address, false, __ATOMIC_RELAXED,
                                        __ATOMIC_RELAXED)) {
            return;
        }
    }
}
_Static_assert(GRAPHED == 1u << (64 - 52), "the hash chooses one of them");

static void note(uint32_t turns, uint64_t address, uint64_t now) {
    struct swapped memory;
    if (address < ADDRESS_LEAST || address >= ADDRESS_MOST) {
        return;
    }
    if (turns & TURNS_CAPTURED) {
        if (swapped_find(address, &memory)) {
            keep(memory.address);
        }
        return;
    }
    uint64_t *place = &recent[table_hash(address) >> 54], key = address ^ now << 48;
    if (__atomic_load_n(place, __ATOMIC_RELAXED) != key) {
        __atomic_store_n(place, key, __ATOMIC_RELAXED);
        swapped_use(address, now);
    }
}
_Static_assert(RECENT == 1u << (64 - 54), "the hash chooses one of them");

static void note_words(uint32_t turns, const void *from, size_t words, uint64_t now) {
    for (size_t i = 0; i < words; i++) {
        uint64_t word;
        memcpy(&word, (const char *)from + i * sizeof word, sizeof word);
        note(turns, word, now);
    }
}

/* A kernel may use anything. That all of it was used costs a turn's end and beginning more than what
 * was used would, and that none was costs page faults for all of it. */
static void note_all(uint32_t turns, uint64_t now) {
    if (turns & TURNS_CAPTURED) {
        __atomic_store_n(&graphs_untold, 1, __ATOMIC_RELAXED);
    } else if (__atomic_load_n(&all_period, __ATOMIC_RELAXED) != now) {
        __atomic_store_n(&all_period, now, __ATOMIC_RELAXED);
        swapped_use_all(now);
    }
}

void uses_address(uint32_t turns, uint64_t address) {
    uint64_t now = uses_period();
    if (now != 0 && swapped_any()) {
        note(turns, address, now);
    }
}

void uses_graph(uint32_t turns) {
    uint64_t now = uses_period();
    if ((turns & TURNS_USES) == 0 ||
        __atomic_exchange_n(&graphs_period, now, __ATOMIC_RELAXED) == now || !swapped_any()) {
        return;
    }
    if (__atomic_load_n(&graphs_untold, __ATOMIC_RELAXED) != 0) {
        note_all(turns, now);
    }
    for (unsigned i = 0; i < GRAPHED; i++) {
        uint64_t address = __atomic_load_n(&graphed[i], __ATOMIC_RELAXED);
        if (address != 0 && !swapped_use(address, now)) { /* it was freed */
            __atomic_compare_exchange_n(&graphed[i], &address, 0, false, __ATOMIC_RELAXED,
                                        __ATOMIC_RELAXED);
        }
    }
}

static CUresult ask_parameter(const void *function, bool contextless, size_t index, size_t *bytes) {
    union {
        const void *handle;
        CUfunction function;
        CUkernel kernel;
    } as = {.handle = function};
    size_t offset = 0;
    return contextless ? DV_CALL(cuKernelGetParamInfo, as.kernel, index, &offset, bytes)
                       : DV_CALL(cuFuncGetParamInfo, as.function, index, &offset, bytes);
}

/* How many parameters a kernel has, as far as the driver tells it without an error. */
static size_t count_parameters(const void *function, bool contextless) {
    union {
        const void *handle;
        CUfunction function;
        CUkernel kernel;
    } as = {.handle = function};
    size_t count = PARAMETERS;
    if (contextless && !DV_LACKS(cuKernelGetParamCount)) {
        return DV_CALL(cuKernelGetParamCount, as.kernel, &count) == CUDA_SUCCESS ? count : 0;
    }
    if (!contextless && !DV_LACKS(cuFuncGetParamCount)) {
        return DV_CALL(cuFuncGetParamCount, as.function, &count) == CUDA_SUCCESS ? count : 0;
    }
    return count;
}

static struct entry ask_layout(const void *function) {
    bool contextless = kernel_is_contextless(function);
    if (DV_LACKS(cuFuncGetParamInfo)) {
        return (struct entry){.freeing = UNTOLD};
    }
    size_t count = count_parameters(function, contextless), bytes = 0;
    uint64_t plain = 0;
    uint32_t longer = 0;
    for (uint32_t i = 0; i < count && i < PARAMETERS; i++) {
        CUresult result = ask_parameter(function, contextless, i, &bytes);
        if (result == CUDA_ERROR_NOT_SUPPORTED) {
            return (struct entry){.freeing = UNTOLD};
        }
        if (result != CUDA_SUCCESS) {
            break; /* it was the last one */
        }
        size_t words = bytes / sizeof(uint64_t);
        plain |= (uint64_t)(words == 1) << i;
        if (words > 1 && longer >> LONG_BITS == 0) {
            uint32_t most = words < WORDS_MAX ? (uint32_t)words : WORDS_MAX;
            longer = longer << LONG_BITS | most << PLACE_BITS | i;
        }
    }
    return (struct entry){
        .amount = (uint32_t)plain, .owner = (uint32_t)(plain >> 32), .freeing = longer};
}

static struct entry layout_of(const void *function) {
    struct entry layout;
    uint64_t key = (uint64_t)(uintptr_t)function;
    if (!table_get(&layouts, key, &layout)) {
        layout = ask_layout(function);
        table_put(&layouts, key, layout, NULL, NULL);
    }
    return layout;
}

static void note_long(uint32_t turns, void *const *parameters, uint32_t which, uint64_t now) {
    uint32_t words = which >> PLACE_BITS & WORDS_MAX;
    if (words > 0) {
        note_words(turns, parameters[which % PARAMETERS], words, now);
    }
}

static void note_parameters(uint32_t turns, const void *function, void *const *parameters,
                            uint64_t now) {
    struct entry layout = layout_of(function);
    if (layout.freeing == UNTOLD) {
        note_all(turns, now);
        return;
    }
    uint64_t plain = (uint64_t)layout.owner << 32 | layout.amount;
    for (; plain != 0; plain &= plain - 1) {
        note_words(turns, parameters[__builtin_ctzll(plain)], 1, now);
    }
    note_long(turns, parameters, layout.freeing & ((1u << LONG_BITS) - 1), now);
    note_long(turns, parameters, layout.freeing >> LONG_BITS, now);
}

/* Parameters in one buffer, which pairs of a name and a value describe. */
static void note_buffer(uint32_t turns, void *const *extra, uint64_t now) {
    const void *buffer = NULL;
    const size_t *bytes = NULL;
    for (; *extra != CU_LAUNCH_PARAM_END; extra += 2) {
        if (*extra == CU_LAUNCH_PARAM_BUFFER_POINTER) {
            buffer = extra[1];
        } else if (*extra == CU_LAUNCH_PARAM_BUFFER_SIZE) {
            bytes = extra[1];
        } else {
            return;
        }
    }
    if (buffer != NULL && bytes != NULL) {
        size_t words = *bytes / sizeof(uint64_t);
        note_words(turns, buffer, words < BUFFER_WORDS ? words : BUFFER_WORDS, now);
    }
}

void uses_kernel(uint32_t turns, const void *function, void *const *parameters,
                 void *const *extra) {
    uint64_t now = uses_period();
    if (now == 0 || function == NULL || !swapped_any()) {
        return;
    }
    if (parameters != NULL) {
        note_parameters(turns, function, parameters, now);
    } else if (extra != NULL) {
        note_buffer(turns, extra, now);
    }
}

static bool forget_one(uint64_t key, struct entry *layout, void *arg) {
    (void)key;
    (void)layout;
    (void)arg;
    return true;
}

/* A kernel that comes later may have the handle of one that goes, and other parameters. */
static void uses_code_ending(const void *handle) {
    (void)handle;
    table_sweep(&layouts, forget_one, NULL);
}
ON(code_ending, uses_code_ending);

static void uses_context_ending(struct home home) {
    (void)home;
    table_sweep(&layouts, forget_one, NULL);
}
ON(context_emptied, uses_context_ending);

static void uses_forked(void) {
    table_forget(&layouts);
    memset(recent, 0, sizeof recent);
    memset(graphed, 0, sizeof graphed);
    graphs_period = all_period = graphs_untold = 0;
}
ON(forked, uses_forked);
