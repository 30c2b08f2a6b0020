/* Prints how many instructions a launch and an allocation take outside the driver: another process steps through them one by
 * one. Of the same calls again and again the least and the most are told. Not a test: the bench compares two versions. */
#define _GNU_SOURCE
#include "cuda/test/setting.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>

#define CALLS                                                                                      \
    64 /* of one kind; the first ones are left out, because they find things out that are kept */
#define WARM 8
#define LIVE 1000

static struct setting s;

/* Stops this process where a stretch that is counted begins and ends; it then stands at `marked`. */
void mark(void);
extern const char marked[];
__asm__(".text\n.type mark, @function\nmark: int3\nmarked: ret\n.size mark, . - mark\n");
/* Those of the marks themselves: back from the first one, the call of the next, and its stop. */
#define OF_MARKS 3

/* The name of what follows, for the process that counts; it lies at the same address there. */
static const char *volatile kind;

static void launches(const char *name) {
    CUresult (*launch)(CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
                       unsigned, CUstream, void **, void **) =
        (__typeof__(launch))CUDA(&s, cuLaunchKernel);
    CUfunction function = (CUfunction)(uintptr_t)0x1000;
    kind = name;
    for (int i = 0; i < CALLS; i++) {
        usleep(2000); /* each call then sets its clock right, which is due after a millisecond */
        mark();
        launch(function, 8, 1, 1, 128, 1, 1, 0, (CUstream)(uintptr_t)0x2000, NULL, NULL);
        mark();
    }
}

static void allocations(const char *name) {
    __typeof__(&cuMemAlloc_v2) allocate = CUDA(&s, cuMemAlloc_v2);
    __typeof__(&cuMemFree_v2) give = CUDA(&s, cuMemFree_v2);
    kind = name;
    for (int i = 0; i < CALLS; i++) {
        CUdeviceptr pointer;
        mark();
        allocate(&pointer, 4096);
        mark();
        give(pointer);
    }
}

static void ends(const char *name) {
    __typeof__(&cuMemAlloc_v2) allocate = CUDA(&s, cuMemAlloc_v2);
    __typeof__(&cuMemFree_v2) give = CUDA(&s, cuMemFree_v2);
    kind = name;
    for (int i = 0; i < CALLS; i++) {
        CUdeviceptr pointer;
        allocate(&pointer, 4096);
        mark();
        give(pointer);
        mark();
    }
}

static void limit(void) {
    dv_page_budget budget = {.flags = DV_PAGE_BUDGET_LIMITED,
                             .rate = DV_PAGE_WHOLE,
                             .base = DV_PAGE_WHOLE,
                             .stretch = DV_PAGE_WHOLE,
                             .burst = UINT64_MAX,
                             .depth = UINT64_MAX};
    tenant_grant(&s.tenant, 0, &budget);
}

static void be_counted(void) {
    static CUdeviceptr live[LIVE];

    setting_make(&s, 1, (uint64_t)8 << 30, NULL);
    setting_open(&s);
    setting_context(&s);
    for (int i = 0; i < LIVE; i++) {
        CHECK_EQUAL(CUDA(&s, cuMemAlloc_v2)(&live[i], 4096), CUDA_SUCCESS);
    }
    launches("launch, time not limited");
    allocations("allocation of 4 KiB, 1000 live");
    ends("the end of such an allocation");
    limit();
    launches("launch, time limited");
    kind = NULL;
    mark();
}

/* ---- the process that counts ---- */

/* What is the driver's in the other process, whose instructions do not count. */
struct stretch {
    unsigned long begin, end;
};

static struct stretch driver_of(pid_t pid) {
    char path[64], line[512];
    struct stretch found = {0, 0};
    snprintf(path, sizeof path, "/proc/%d/maps", (int)pid);
    FILE *maps = fopen(path, "r");
    while (maps && fgets(line, sizeof line, maps)) {
        struct stretch one;
        if (strstr(line, "driver.so") && sscanf(line, "%lx-%lx", &one.begin, &one.end) == 2) {
            found.begin = found.begin ? found.begin : one.begin;
            found.end = one.end;
        }
    }
    if (maps) {
        fclose(maps);
    }
    return found;
}

/* Waits for the process's next stop by a trap; false when it has ended. */
static bool stopped(pid_t pid) {
    int status;
    while (waitpid(pid, &status, 0) == pid && WIFSTOPPED(status)) {
        if (WSTOPSIG(status) == SIGTRAP) {
            return true;
        }
        ptrace(PTRACE_CONT, pid, NULL, (void *)(uintptr_t)WSTOPSIG(status));
    }
    return false;
}

static unsigned long place(pid_t pid) {
    struct user_regs_struct at;
    return ptrace(PTRACE_GETREGS, pid, NULL, &at) == 0 ? at.rip : 0;
}

/* Lets it run to the next mark. */
static bool run(pid_t pid) {
    do {
        ptrace(PTRACE_CONT, pid, NULL, NULL);
        if (!stopped(pid)) {
            return false;
        }
    } while (place(pid) != (unsigned long)marked);
    return true;
}

/* Steps from one mark to the next; returns the instructions outside the driver, or -1. */
static long steps(pid_t pid, struct stretch driver) {
    unsigned long at = place(pid);
    long count = 0;
    do {
        count += at < driver.begin || at >= driver.end;
        ptrace(PTRACE_SINGLESTEP, pid, NULL, NULL);
        if (!stopped(pid)) {
            return -1;
        }
        at = place(pid);
    } while (at != (unsigned long)marked);
    return count - OF_MARKS;
}

static const char *named(pid_t pid) {
    return (const char *)ptrace(PTRACE_PEEKDATA, pid, (void *)&kind, NULL);
}

/* The name is a constant of the program, and this process has the same. */
static bool count(pid_t pid) {
    while (run(pid) && named(pid)) {
        const char *name = named(pid);
        struct stretch driver = driver_of(pid);
        long least = -1, most = -1;
        for (int i = 0; i < CALLS; i++) {
            if (i > 0 && !run(pid)) {
                return false;
            }
            long now = steps(pid, driver);
            if (now < 0) {
                return false;
            }
            if (i >= WARM) {
                least = least < 0 || now < least ? now : least;
                most = now > most ? now : most;
            }
        }
        printf("{\"call\":\"%s\",\"least\":%ld,\"most\":%ld}\n", name, least, most);
    }
    return true;
}

int main(void) {
    fflush(stdout);
    pid_t pid = fork();
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        ptrace(PTRACE_TRACEME, 0, NULL, NULL);
        raise(SIGTRAP);
        be_counted();
        exit(0);
    }
    bool counted = pid > 0 && stopped(pid) && count(pid);
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
    return counted ? 0 : 1;
}
