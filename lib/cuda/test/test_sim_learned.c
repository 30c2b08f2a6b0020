/* What is learned of kernels is their own time, without the loading of their code, and the next
 * process of the share knows it. */
#include "cuda/test/busy.h"

#include <stddef.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define KERNELS 12
#define LOAD_NS (15 * (uint64_t)MS)
#define PERCENT (DV_PAGE_WHOLE / 100)

#define TRIES 10

static struct setting s;

/* A process that is interrupted beside a launch measures too much or too little. So a price need be
 * right in one of several tries, each with kernels that nobody knows. */
static struct tries {
    unsigned now;
    bool right;
} *tries;

static const char image[] = ".version 7.0\n.target sm_80\n.address_size 64\n"
                            ".visible .entry divvy_busy_ns_0(.param .u64 a) { ret; }\n"
                            ".visible .entry divvy_busy_ns_1(.param .u64 a) { ret; }\n"
                            ".visible .entry divvy_busy_ns_2(.param .u64 a) { ret; }\n"
                            ".visible .entry divvy_busy_ns_3(.param .u64 a) { ret; }\n"
                            ".visible .entry divvy_busy_ns_4(.param .u64 a) { ret; }\n"
                            ".visible .entry divvy_busy_ns_5(.param .u64 a) { ret; }\n"
                            ".visible .entry divvy_busy_ns_6(.param .u64 a) { ret; }\n"
                            ".visible .entry divvy_busy_ns_7(.param .u64 a) { ret; }\n"
                            ".visible .entry divvy_busy_ns_8(.param .u64 a) { ret; }\n"
                            ".visible .entry divvy_busy_ns_9(.param .u64 a) { ret; }\n"
                            ".visible .entry divvy_busy_ns_10(.param .u64 a) { ret; }\n"
                            ".visible .entry divvy_busy_ns_11(.param .u64 a) { ret; }\n";

static void cap(void) {
    busy_budget.flags = DV_PAGE_BUDGET_LIMITED | DV_PAGE_BUDGET_CAPPED;
    busy_budget.burst = MS;
    busy_budget.rate = busy_budget.base = 50 * PERCENT;
    busy_grant(&s, 0);
}

/* All kernels of the image, loaded when they are first needed. With `unseen`, got in a way that
 * tells nobody their names. */
static void get_kernels(CUkernel *kernels, bool unseen) {
    CUlibrary library;
    char name[32];
    CHECK_EQUAL(CUDA(&s, cuLibraryLoadData)(&library, image, NULL, NULL, 0, NULL, NULL, 0),
                CUDA_SUCCESS);
    if (unseen) {
        CHECK_EQUAL(CUDA(&s, cuLibraryEnumerateKernels)(kernels, KERNELS, library), CUDA_SUCCESS);
    }
    for (int i = 0; i < KERNELS && !unseen; i++) {
        snprintf(name, sizeof name, "divvy_busy_ns_%d", i);
        CHECK_EQUAL(CUDA(&s, cuLibraryGetKernel)(&kernels[i], library, name), CUDA_SUCCESS);
    }
}

/* A kernel of another length, or in another try, is another shape, so that it costs what it does. */
static void launch(CUkernel kernel, CUstream stream, uint64_t ns) {
    void *parameters[] = {&ns};
    unsigned shape = (unsigned)(ns / MS) + 100 * tries->now;
    CHECK_EQUAL(CUDA(&s, cuLaunchKernel)((CUfunction)kernel, shape, 1, 1, 1, 1, 1, 0, stream,
                                         parameters, NULL),
                CUDA_SUCCESS);
}

static CUstream start_process(void) {
    CUstream stream;
    setting_open(&s);
    setting_context(&s);
    CHECK_EQUAL(CUDA(&s, cuStreamCreate)(&stream, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
    return stream;
}

/* A round of kernels that are all loaded inside it. What is charged is what they took. */
static void loading_costs_nothing(void *unseen) {
    CUkernel kernels[KERNELS];
    CUstream stream = start_process();
    get_kernels(kernels, unseen != NULL);
    uint64_t charged = busy_bucket(&s, 0).charged, before = sim_time(&s, 0);
    for (int i = 0; i < KERNELS; i++) {
        launch(kernels[i], stream, 2 * MS);
    }
    busy_sync(&s, stream);
    charged = busy_bucket(&s, 0).charged - charged;
    uint64_t used = sim_time(&s, 0) - before;
    CHECK_EQUAL(used / MS, KERNELS * 2);
    /* One launch may not be settled yet. */
    tries->right = charged + 4 * (uint64_t)MS > used && charged < used + LOAD_NS;
}

/* A kernel that runs already when the code of the next one is loaded is counted. */
static void running_work_is_counted(void *unused) {
    CUkernel kernels[KERNELS];
    CUstream stream = start_process();
    (void)unused;
    get_kernels(kernels, true);
    uint64_t charged = busy_bucket(&s, 0).charged;
    for (int i = 0; i < 4; i++) {
        launch(kernels[0], stream, 40 * MS);
    }
    launch(kernels[1], stream, 20 * MS);
    busy_sync(&s, stream);
    launch(kernels[1], stream, 20 * MS);
    busy_sync(&s, stream);
    launch(kernels[1], stream, 20 * MS); /* what was measured is charged by now */
    charged = busy_bucket(&s, 0).charged - charged;
    tries->right = charged >= (uint64_t)(4 * 40 + 20) * MS * 9 / 10;
}

/* The first process has to take the share's turn. */
static void nobody_knows(void *unused) {
    CUkernel kernels[KERNELS];
    CUstream stream = start_process();
    (void)unused;
    get_kernels(kernels, false);
    uint64_t charged = busy_bucket(&s, 0).charged;
    launch(kernels[0], stream, 30 * MS);
    CHECK(busy_bucket(&s, 0).turn != 0);
    busy_sync(&s, stream);
    CHECK_EQUAL(busy_bucket(&s, 0).turn, 0);
    tries->right = busy_bucket(&s, 0).charged - charged > 29 * MS;
}

/* The next one is charged at once. */
static void the_share_knows(void *unused) {
    CUkernel kernels[KERNELS];
    CUstream stream = start_process();
    (void)unused;
    get_kernels(kernels, false);
    uint64_t charged = busy_bucket(&s, 0).charged;
    launch(kernels[0], stream, 30 * MS);
    CHECK_EQUAL(busy_bucket(&s, 0).turn, 0);
    charged = busy_bucket(&s, 0).charged - charged;
    tries->right = tries->right && charged > 29 * MS && charged < 33 * MS;
    launch(kernels[1], stream, MS); /* another name */
    CHECK(busy_bucket(&s, 0).turn != 0);
    busy_sync(&s, stream);
}

/* Each part is a process. */
static void in_one_of_some_tries(void (*first)(void *), void (*second)(void *), void *arg) {
    do {
        CHECK(tries->now++ < TRIES);
        wait_exited(spawn(first, arg));
        if (second != NULL) {
            wait_exited(spawn(second, arg));
        }
    } while (!tries->right);
    tries->now = 0;
}

int main(void) {
    tries = mmap(NULL, sizeof *tries, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(tries != MAP_FAILED);
    sim_load_ns = LOAD_NS;
    sim_make_closed(&s, 1, (uint64_t)1 << 30);
    cap();
    in_one_of_some_tries(nobody_knows, the_share_knows, NULL);
    in_one_of_some_tries(loading_costs_nothing, NULL, NULL);
    in_one_of_some_tries(loading_costs_nothing, NULL, &s);
    in_one_of_some_tries(running_work_is_counted, NULL, NULL);
    return 0;
}
