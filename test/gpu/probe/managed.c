/* The command `managed`: how managed memory comes to the GPU and leaves it, by prefetches and by faults, what NVML says of it,
 * and who is charged for what is in host memory. */
#include "probe.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define BYTES (256ull << 20)
/* The attribute that tells whether CPU and GPU may use managed memory at the same time. */
enum { PAGE = 4096, ON_CPU = -1, CONCURRENT_MANAGED_ACCESS = 89 };

/* Touches a word of each page of 4 KiB, and leaves it as it is. */
static const char text[] =
    ".version 6.0\n.target sm_50\n.address_size 64\n"
    ".visible .entry divvy_sweep(.param .u64 p, .param .u64 bytes, .param .u32 reads,\n"
    " .param .u32 writes, .param .u32 order, .param .u32 seed, .param .u64 ns) {\n"
    ".reg .u64 %d<6>; .reg .u32 %r<6>; .reg .pred %q;\n"
    "ld.param.u64 %d1, [p]; ld.param.u64 %d2, [bytes];\n"
    "mov.u32 %r1, %ctaid.x; mov.u32 %r2, %ntid.x; mov.u32 %r3, %tid.x;\n"
    "mad.lo.u32 %r1, %r1, %r2, %r3; mul.wide.u32 %d3, %r1, 4096;\n"
    "mov.u32 %r3, %nctaid.x; mul.lo.u32 %r2, %r2, %r3; mul.wide.u32 %d4, %r2, 4096;\n"
    "again: setp.ge.u64 %q, %d3, %d2; @%q bra done; add.u64 %d5, %d1, %d3;\n"
    "ld.volatile.global.u32 %r4, [%d5]; st.volatile.global.u32 [%d5], %r4;\n"
    "add.u64 %d3, %d3, %d4; bra again;\ndone: ret; }\n";

/* Host memory that this process's cgroup is charged for (version 2); -1 where that is not told. */
static long long charged(void) {
    char line[512], path[640];
    long long bytes = -1;
    FILE *file = fopen("/proc/self/cgroup", "r");
    while (file != NULL && fgets(line, sizeof line, file) != NULL) {
        if (strncmp(line, "0::", 3) == 0) {
            line[strcspn(line, "\n")] = '\0';
            (void)snprintf(path, sizeof path, "/sys/fs/cgroup%s/memory.current", line + 3);
            FILE *current = fopen(path, "r");
            if (current != NULL) {
                if (fgets(line, sizeof line, current) != NULL) {
                    bytes = atoll(line);
                }
                (void)fclose(current);
            }
            break;
        }
    }
    if (file != NULL) {
        (void)fclose(file);
    }
    return bytes;
}

/* What NVML says that this process has, -1 where it does not. */
static long long listed(CUdevice device) {
    static nvmlProcessInfo_t list[PROCESSES_MAX];
    unsigned count = 0;
    nvmlDevice_t gpu = device_in_nvml(device);
    if (gpu == NULL || running(gpu, &count, list) != NVML_SUCCESS) {
        return -1;
    }
    for (unsigned i = 0; i < count; i++) {
        if (list[i].pid == (unsigned)getpid() && list[i].usedGpuMemory != UINT64_MAX) {
            return (long long)list[i].usedGpuMemory;
        }
    }
    return -1;
}

/* Tells how long something took since `begin`, and what NVML and the cgroup say then. */
static CUresult tell(const char *what, CUdevice device, uint64_t begin, CUresult result) {
    if (result == CUDA_SUCCESS) {
        result = cuda.cuCtxSynchronize();
    }
    double seconds = (double)(now_ns() - begin) / 1e9;
    printf("{\"step\":\"%s\",\"result\":\"%s\",\"gbps\":%.2f,\"listed\":%lld,\"charged\":%lld}\n",
           what, result_name(result), (double)BYTES / 1e9 / seconds, listed(device), charged());
    return result;
}

static CUresult sweep(CUfunction kernel, CUdeviceptr memory) {
    uint64_t bytes = BYTES, ns = 1000;
    unsigned one = 1, zero = 0;
    void *parameters[] = {&memory, &bytes, &one, &one, &zero, &zero, &ns};
    return cuda.cuLaunchKernel(kernel, 64, 1, 1, 512, 1, 1, 0, NULL, parameters, NULL);
}

/* Filled by the CPU, to the GPU by faults, back, and there and back by prefetches. */
static CUresult move(CUdevice device, CUfunction kernel, CUdeviceptr memory) {
    static const char *const steps[] = {"faults", "to the host", "prefetch", "there", "away again"};
    CUresult result = CUDA_SUCCESS;
    for (unsigned i = 0; i < sizeof steps / sizeof *steps && result == CUDA_SUCCESS; i++) {
        uint64_t begin = now_ns();
        if (i == 0 || i == 3) {
            result = sweep(kernel, memory);
        } else {
            result = cuda.cuMemPrefetchAsync(memory, BYTES, i == 2 ? device : ON_CPU, NULL);
        }
        result = tell(steps[i], device, begin, result);
    }
    return result;
}

int command_managed(void) {
    CUdevice device = 0;
    CUmodule module;
    CUfunction kernel = NULL;
    CUdeviceptr memory = 0;
    int concurrent = 0;
    if (!open_cuda() || !open_nvml() || nvml.nvmlInit_v2() != NVML_SUCCESS) {
        return 3;
    }
    CUresult result = start_cuda(&device);
    if (result == CUDA_SUCCESS) {
        result = cuda.cuDeviceGetAttribute(&concurrent,
                                           (CUdevice_attribute)CONCURRENT_MANAGED_ACCESS, device);
    }
    if (result == CUDA_SUCCESS) {
        result = cuda.cuModuleLoadData(&module, text);
    }
    if (result == CUDA_SUCCESS) {
        result = cuda.cuModuleGetFunction(&kernel, module, "divvy_sweep");
    }
    if (result == CUDA_SUCCESS) {
        result = cuda.cuMemAllocManaged(&memory, BYTES, CU_MEM_ATTACH_GLOBAL);
    }
    if (result == CUDA_SUCCESS) {
        for (uint64_t i = 0; i < BYTES; i += PAGE) {
            *(volatile uint32_t *)(uintptr_t)(memory + i) = (uint32_t)i;
        }
        printf(
            "{\"step\":\"filled\",\"result\":\"CUDA_SUCCESS\",\"listed\":%lld,\"charged\":%lld}\n",
            listed(device), charged());
        result = concurrent != 0 ? move(device, kernel, memory) : CUDA_SUCCESS;
    }
    printf("{\"command\":\"managed\",\"result\":\"%s\",\"code\":%d,\"concurrent\":%d,\"bytes\":%"
           "llu}\n",
           result_name(result), (int)result, concurrent, (unsigned long long)BYTES);
    return result == CUDA_SUCCESS ? 0 : 1;
}
