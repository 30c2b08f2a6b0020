/* No first context is made on a GPU while its share owes more than launches leave it. A second
 * context, and any on another GPU, is made at once. */
#include "cuda/test/busy.h"

#include <pthread.h>

#include "share/time.h"

static struct setting s;
static int made;

static CUcontext make(CUdevice device) {
    CUcontext context;
    CHECK_EQUAL(CUDA(&s, cuCtxCreate_v2)(&context, 0, device), CUDA_SUCCESS);
    return context;
}

static void *enter(void *arg) {
    (void)arg;
    make(1);
    __atomic_store_n(&made, 1, __ATOMIC_RELEASE);
    return NULL;
}

static void owe(unsigned gpu, int64_t ns) {
    busy_budget.rate = busy_budget.base = 0;
    busy_budget.correction -= ns;
    busy_grant(&s, gpu);
}

int main(void) {
    pthread_t thread;
    busy_make(&s, 2);
    owe(0, (int64_t)DV_TIME_DEBT_NS / 2); /* this process has a context there */
    make(0);
    owe(1, 0);
    CHECK_EQUAL(pthread_create(&thread, NULL, enter, NULL), 0);
    while (busy_bucket(&s, 1).wanted == 0 && __atomic_load_n(&made, __ATOMIC_ACQUIRE) == 0) {
        dv_time_nap(MS);
    }
    CHECK_EQUAL(__atomic_load_n(&made, __ATOMIC_ACQUIRE), 0);
    make(0);
    owe(1, -(int64_t)DV_TIME_DEBT_NS / 2 + 500 * (int64_t)MS); /* so much launches leave */
    pthread_join(thread, NULL);
    CHECK_EQUAL(made, 1);
    CHECK_EQUAL(busy_bucket(&s, 1).launches, 0);
    return 0;
}
