/* Addresses that the worker has given a meaning are reserved in the client, so that they mean nothing else there. */
#ifndef DIVVY_REMOTE_RESERVE_H
#define DIVVY_REMOTE_RESERVE_H

#include <stdbool.h>
#include <stdint.h>

/* Whole pages. False if anything is there already, or the kernel has no such addresses. */
bool remote_reserve(uint64_t start, uint64_t size);
void remote_unreserve(uint64_t start, uint64_t size);
/* Whether the page of an address is nobody's. */
bool remote_is_free(uint64_t address);

#endif
