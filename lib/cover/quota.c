#include "cover/quota.h"

#include <stdlib.h>
#include <string.h>

/* The limit of that name in a line, 0 where the line has none or a word instead of a number. */
static long long limit_of(const char *line, size_t length, const char *name) {
    const size_t name_length = strlen(name);
    for (size_t at = 0; at + name_length < length; at++) {
        if ((at == 0 || line[at - 1] == ' ') && memcmp(line + at, name, name_length) == 0) {
            const long long value = strtoll(line + at + name_length, NULL, 10);
            return value < 0 ? 0 : value > QUOTA_MOST ? QUOTA_MOST : value;
        }
    }
    return 0;
}

static long long bounded(long long sum) {
    return sum > QUOTA_MOST ? QUOTA_MOST : sum;
}

bool quota_add(const char *lines, const char *adapter, struct quota *sum) {
    const size_t name_length = strcspn(adapter, " ");
    while (name_length > 0 && *lines != '\0') {
        const size_t length = strcspn(lines, "\n");
        if (length > name_length && lines[name_length] == ' ' &&
            memcmp(lines, adapter, name_length) == 0) {
            sum->handles = bounded(sum->handles + limit_of(lines, length, "hca_handle="));
            sum->objects = bounded(sum->objects + limit_of(lines, length, "hca_object="));
            return true;
        }
        lines += length + (lines[length] == '\n');
    }
    return false;
}
