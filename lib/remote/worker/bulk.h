/* Bytes beside the stream, on the worker's side. The executor calls these. */
#ifndef DIVVY_REMOTE_BULK_H
#define DIVVY_REMOTE_BULK_H

#include "remote/worker/session.h"

/* Adds bytes to those with this number, which are `size` in all, at `from`, which must follow those that are there. False
 * where they do not, or there is no room. */
bool remote_bulk_put(uint64_t number, uint64_t size, uint64_t from, const void *bytes,
                     uint64_t count);
/* The bytes, if all of them are there and they are so many. They stay until other bytes come, and are named once. */
const void *remote_bulk_get(uint64_t number, uint64_t size);
/* How many calls use these bytes, or this code that is kept (code.c), on other threads: they stay as long as it is not 0, and
 * any thread may count it down. NULL if there are none such. */
unsigned *remote_bulk_users(const void *bytes);
unsigned *remote_code_users(const void *code) __attribute__((weak));

#endif
