#define _GNU_SOURCE
#include "substitute/substitute.h"

#include <dlfcn.h>
#include <limits.h>
#include <link.h>
#include <string.h>

/* Bounds of the section that DV_FORWARD_SLOT fills; weak because a test may link this file without
 * names. */
extern struct dv_forward __start_dv_forwards[] __attribute__((weak)) DV_HIDDEN;
extern struct dv_forward __stop_dv_forwards[] __attribute__((weak)) DV_HIDDEN;

_Thread_local unsigned dv_depth;

static char directory[PATH_MAX];

struct dv_image dv_driver_image;

/* A driver library that depends on a library of our name would give us our own function, and the
 * jump would lead to itself. */
static bool is_ours(const void *address) {
    const char *at = address;
    return at >= dv_own_begin && at < dv_own_end;
}

/* Notes the bounds if this image is the one whose description stands at `dynamic`. */
static int remember_bounds(struct dl_phdr_info *image, size_t size, void *dynamic) {
    const char *base = (const char *)image->dlpi_addr; /* NOLINT(performance-no-int-to-ptr) */
    const char *begin = NULL, *end = NULL, *described = NULL;
    (void)size;
    for (unsigned i = 0; i < image->dlpi_phnum; i++) {
        const ElfW(Phdr) *part = &image->dlpi_phdr[i];
        const char *at = base + part->p_vaddr;
        if (part->p_type == PT_DYNAMIC) {
            described = at;
        } else if (part->p_type == PT_LOAD) {
            begin = begin == NULL || at < begin ? at : begin;
            end = at + part->p_memsz > end ? at + part->p_memsz : end;
        }
    }
    if (described != dynamic) {
        return 0;
    }
    dv_driver_image = (struct dv_image){(uintptr_t)begin, (uintptr_t)(end - begin)};
    return 1;
}

static void remember_place(void *library) {
    struct link_map *map;
    if (dlinfo(library, RTLD_DI_LINKMAP, &map) != 0) {
        return;
    }
    dl_iterate_phdr(remember_bounds, map->l_ld);
    const char *slash = strrchr(map->l_name, '/');
    size_t length = slash ? (size_t)(slash - map->l_name) : 0;
    if (length > 0 && length < sizeof directory) {
        memcpy(directory, map->l_name, length);
        directory[length] = '\0';
    }
}

bool dv_substitute(const char *soname) {
    /* Already loaded as our dependency: RTLD_NOLOAD finds it in the caller's namespace and nowhere
     * else, so a copy opened by dlmopen gets its own driver. */
    void *library = dlopen(soname, RTLD_NOW | RTLD_LOCAL | RTLD_NOLOAD);
    if (library == NULL) {
        return false;
    }
    remember_place(library);
    for (struct dv_forward *forward = __start_dv_forwards; forward < __stop_dv_forwards;
         forward++) {
        void *address = dlsym(library, forward->name);
        if (address != NULL && !is_ours(address)) {
            forward->real = address;
        }
    }
    dlerror(); /* clears the error of a missing name, which the program must not find later */
    return true;
}

const char *dv_substitute_directory(void) {
    return directory;
}
