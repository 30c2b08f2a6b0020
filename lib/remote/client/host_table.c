#include "remote/client/host.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

/* By address. No lock is taken below this one. */
static struct {
    pthread_mutex_t lock;
    struct remote_host *list;
    size_t count, room;
    uint64_t last;                         /* number that was given */
    bool numbers[REMOTE_MOST_REGIONS + 1]; /* in use */
} hosts = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* The first that ends behind the address. */
static size_t position(const unsigned char *at) {
    size_t low = 0, high = hosts.count;

    while (low < high) {
        size_t middle = (low + high) / 2;
        if (hosts.list[middle].at + hosts.list[middle].size <= at) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

bool remote_host_find(const void *address, struct remote_host *found) {
    const unsigned char *at = address;

    pthread_mutex_lock(&hosts.lock);
    size_t i = position(at);
    bool there = i < hosts.count && hosts.list[i].at <= at;
    if (there) {
        *found = hosts.list[i];
    }
    pthread_mutex_unlock(&hosts.lock);
    return there;
}

bool remote_region_find(const void *at, size_t size, uint64_t *region, uint64_t *offset) {
    struct remote_host host;

    if (!at || !remote_host_find(at, &host) || !host.region) {
        return false;
    }
    *offset = (uint64_t)((const unsigned char *)at - host.at);
    *region = host.region;
    return size <= host.size - *offset;
}

CUresult remote_host_add(const struct remote_host *host) {
    CUresult result = CUDA_SUCCESS;

    pthread_mutex_lock(&hosts.lock);
    size_t i = position(host->at);
    if (i < hosts.count && hosts.list[i].at < host->at + host->size) {
        result = CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
    } else if (hosts.count == hosts.room) {
        size_t room = hosts.room ? 2 * hosts.room : 32;
        struct remote_host *list = realloc(hosts.list, room * sizeof *list);
        result = list ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
        hosts.list = list ? list : hosts.list;
        hosts.room = list ? room : hosts.room;
    }
    if (result == CUDA_SUCCESS) {
        memmove(&hosts.list[i + 1], &hosts.list[i], (hosts.count - i) * sizeof *hosts.list);
        hosts.list[i] = *host;
        hosts.count++;
    }
    pthread_mutex_unlock(&hosts.lock);
    return result;
}

bool remote_host_take(const void *at, bool registered, struct remote_host *host) {
    pthread_mutex_lock(&hosts.lock);
    size_t i = position(at);
    bool there =
        i < hosts.count && hosts.list[i].at == at && hosts.list[i].registered == registered;
    if (there) {
        *host = hosts.list[i];
        hosts.count--;
        memmove(&hosts.list[i], &hosts.list[i + 1], (hosts.count - i) * sizeof *hosts.list);
    }
    pthread_mutex_unlock(&hosts.lock);
    return there;
}

bool remote_host_take_of(uint64_t context, struct remote_host *host) {
    bool there = false;

    pthread_mutex_lock(&hosts.lock);
    for (size_t i = 0; i < hosts.count && !there; i++) {
        if (hosts.list[i].context == context) {
            *host = hosts.list[i];
            there = true;
        }
    }
    pthread_mutex_unlock(&hosts.lock);
    return there && remote_host_take(host->at, host->registered, host);
}

uint64_t remote_host_number_new(void) {
    uint64_t number = 0;

    pthread_mutex_lock(&hosts.lock);
    for (uint64_t i = 0; i < REMOTE_MOST_REGIONS && !number; i++) {
        hosts.last = hosts.last % REMOTE_MOST_REGIONS + 1;
        number = hosts.numbers[hosts.last] ? 0 : hosts.last;
    }
    hosts.numbers[number] = true;
    pthread_mutex_unlock(&hosts.lock);
    return number;
}

void remote_host_number_end(uint64_t number) {
    pthread_mutex_lock(&hosts.lock);
    hosts.numbers[number] = false;
    pthread_mutex_unlock(&hosts.lock);
}
