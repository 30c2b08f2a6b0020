/*
 * The command `exports`: what tells the descriptors of exported memory apart. Memory is exported
 * twice, and other memory once; the kernel says which file each descriptor is of.
 */
#define _GNU_SOURCE
#include "libc/kernel.h"
#include "probe.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { GRANULE = 2 << 20, EXPORTS = 3, NAME = 64 };

static CUresult make(CUdevice device, CUmemGenericAllocationHandle *memory) {
    CUmemAllocationProp properties;
    memset(&properties, 0, sizeof properties);
    properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    properties.location.id = device;
    return cuda.cuMemCreate(memory, GRANULE, &properties, 0);
}

static CUresult export(CUmemGenericAllocationHandle memory, int *descriptor) {
    return cuda.cuMemExportToShareableHandle(descriptor, memory,
                                             CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
}

static const char *truth(int value) {
    return value ? "true" : "false";
}

/* What the kernel shows as the file's name, as far as it says nothing about the machine: of a device
 * node or an anonymous file, without what follows a colon or a digit. */
static void describe(int descriptor, char name[NAME]) {
    char path[NAME];
    snprintf(path, sizeof path, "/proc/self/fd/%d", descriptor);
    ssize_t length = readlink(path, name, NAME - 1);
    name[length > 0 ? length : 0] = '\0';
    if (name[0] == '/' && strncmp(name, "/dev/", 5) != 0) {
        strcpy(name, "a file");
    }
    name[strcspn(name, ":0123456789\"\\")] = '\0';
}

/* Whether a read lock of the open file can be had, and whether fdinfo then shows it. */
static void try_lock(int descriptor, int *had, int *shown) {
    char path[NAME], text[4096];
    struct flock lock = {.l_type = F_RDLCK, .l_whence = SEEK_SET, .l_start = 1 << 30, .l_len = 1};
    *had = fcntl(descriptor, F_OFD_SETLK, &lock) == 0;
    snprintf(path, sizeof path, "/proc/self/fdinfo/%d", descriptor);
    int info = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t length = info < 0 ? 0 : read(info, text, sizeof text - 1);
    text[length > 0 ? length : 0] = '\0';
    *shown = *had && strstr(text, "OFDLCK") != NULL;
    if (info >= 0) {
        close(info);
    }
}

static void report(const int descriptors[EXPORTS]) {
    struct stat files[EXPORTS];
    char name[NAME], path[NAME];
    int had = 0, shown = 0;
    for (int i = 0; i < EXPORTS; i++) {
        memset(&files[i], 0, sizeof files[i]);
        (void)kernel_fstat(descriptors[i], &files[i]);
    }
    describe(descriptors[0], name);
    try_lock(descriptors[0], &had, &shown);
    snprintf(path, sizeof path, "/proc/self/fd/%d", descriptors[0]);
    int again = open(path, O_RDWR | O_CLOEXEC);
    printf(",\"file\":\"%s\",\"character_device\":%s,\"same_memory_same_inode\":%s,"
           "\"other_memory_same_inode\":%s,\"can_be_opened_again\":%s,\"can_be_locked\":%s,"
           "\"lock_is_shown\":%s",
           name, truth(S_ISCHR(files[0].st_mode)),
           truth(files[0].st_ino == files[1].st_ino && files[0].st_dev == files[1].st_dev),
           truth(files[0].st_ino == files[2].st_ino && files[0].st_dev == files[2].st_dev),
           truth(again >= 0), truth(had), truth(shown));
    if (again >= 0) {
        close(again);
    }
}

int command_exports(void) {
    CUdevice device;
    CUmemGenericAllocationHandle first = 0, second = 0;
    int descriptors[EXPORTS] = {-1, -1, -1};
    if (!open_cuda()) {
        return 3;
    }
    CUresult result = start_cuda(&device);
    if (result == CUDA_SUCCESS &&
        (cuda.cuMemCreate == NULL || cuda.cuMemExportToShareableHandle == NULL)) {
        result = CUDA_ERROR_NOT_SUPPORTED;
    }
    if (result == CUDA_SUCCESS) {
        result = make(device, &first);
    }
    if (result == CUDA_SUCCESS) {
        result = make(device, &second);
    }
    for (int i = 0; i < EXPORTS && result == CUDA_SUCCESS; i++) {
        result = export(i < 2 ? first : second, &descriptors[i]);
    }
    printf("{\"command\":\"exports\",\"result\":\"%s\"", result_name(result));
    if (result == CUDA_SUCCESS) {
        report(descriptors);
    }
    puts("}");
    return result == CUDA_SUCCESS ? 0 : 1;
}
