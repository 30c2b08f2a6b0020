#define _GNU_SOURCE
#include "cuda/visible.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

#define UUID_TEXT 36u /* 32 hexadecimal digits in groups of 8, 4, 4, 4 and 12 */

/* One entry of the list, not NUL-terminated. */
struct entry {
    const char *text;
    size_t length;
};

static void write_uuid(const uint8_t uuid[16], char out[UUID_TEXT + 1]) {
    char *at = out;
    for (unsigned i = 0; i < 16; i++) {
        if (i == 4 || i == 6 || i == 8 || i == 10) {
            *at++ = '-';
        }
        at += sprintf(at, "%02x", uuid[i]);
    }
}

static int hex_digit(char c) {
    if (c >= '0' && c <= '9') {
        return c - '0';
    }
    c = (char)(c | 0x20);
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* Reads a whole UUID; false if text is not one. */
static bool read_uuid(struct entry text, uint8_t uuid[16]) {
    char shape[UUID_TEXT + 1];
    memset(uuid, 0, 16);
    write_uuid(uuid, shape);
    if (text.length != UUID_TEXT) {
        return false;
    }
    unsigned digits = 0;
    for (size_t i = 0; i < UUID_TEXT; i++) {
        int value = hex_digit(text.text[i]);
        if (shape[i] == '-' ? text.text[i] != '-' : value < 0) {
            return false;
        }
        if (shape[i] != '-') {
            uuid[digits / 2] = (uint8_t)(uuid[digits / 2] << 4 | value);
            digits++;
        }
    }
    return true;
}

static bool starts(struct entry *entry, const char *prefix) {
    size_t length = strlen(prefix);
    if (entry->length < length || strncasecmp(entry->text, prefix, length) != 0) {
        return false;
    }
    entry->text += length;
    entry->length -= length;
    return true;
}

/* The GPU that an index names, -1 if none. */
static int by_index(struct entry entry, unsigned count) {
    unsigned index = 0;
    for (size_t i = 0; i < entry.length; i++) {
        if (entry.text[i] < '0' || entry.text[i] > '9' || index >= count) {
            return -1;
        }
        index = index * 10 + (unsigned)(entry.text[i] - '0');
    }
    return entry.length > 0 && index < count ? (int)index : -1;
}

/* The first GPU of those whose UUID starts with these digits, -1 if none does or they differ. */
static int by_prefix(struct entry digits, const uint8_t (*uuids)[16], unsigned count) {
    int found = -1;
    if (digits.length == 0 || digits.length > UUID_TEXT) {
        return -1;
    }
    for (unsigned i = 0; i < count; i++) {
        char text[UUID_TEXT + 1];
        write_uuid(uuids[i], text);
        if (strncasecmp(text, digits.text, digits.length) != 0) {
            continue;
        }
        if (found >= 0 && memcmp(uuids[found], uuids[i], 16) != 0) {
            return -1;
        }
        found = found < 0 ? (int)i : found;
    }
    return found;
}

static void choose_granted(const struct granted *granted, int number, struct choice *choice) {
    char text[UUID_TEXT + 1];
    write_uuid(granted->uuids[number], text);
    memset(choice, 0, sizeof *choice);
    memcpy(choice->uuid, granted->uuids[number], 16);
    choice->instance = granted->parents != NULL;
    snprintf(choice->text, sizeof choice->text, "%s-%s", choice->instance ? "MIG" : "GPU", text);
}

/* "MIG-GPU-<uuid>/<instance>/<compute instance>" names its GPU; "MIG-<uuid>" does not, and is
 * checked against the share when the driver tells the GPU to which it belongs. */
static bool choose_instance(struct entry whole, struct entry rest, const struct granted *granted,
                            struct choice *choice) {
    uint8_t uuid[16];
    memset(choice, 0, sizeof *choice);
    if (whole.length >= sizeof choice->text) {
        return false;
    }
    memcpy(choice->text, whole.text, whole.length);
    if (starts(&rest, "GPU-")) {
        const char *slash = memchr(rest.text, '/', rest.length);
        size_t length = slash ? (size_t)(slash - rest.text) : 0;
        int gpu = by_prefix((struct entry){rest.text, length}, granted->uuids, granted->count);
        if (gpu < 0 || length != UUID_TEXT) {
            return false;
        }
        memcpy(choice->uuid, granted->uuids[gpu], 16);
        return true;
    }
    if (!read_uuid(rest, uuid)) {
        return false;
    }
    memcpy(choice->uuid, uuid, 16);
    choice->instance = true;
    return true;
}

/* Of a share on instances only these have a name; the older form, by numbers, names none. */
static bool choose_own_instance(struct entry rest, const struct granted *granted,
                                struct choice *choice) {
    int number = rest.length == UUID_TEXT ? by_prefix(rest, granted->uuids, granted->count) : -1;
    if (number >= 0) {
        choose_granted(granted, number, choice);
    }
    return number >= 0;
}

static bool choose(struct entry entry, const struct granted *granted, struct choice *choice) {
    const uint8_t (*gpus)[16] = granted->parents != NULL ? granted->parents : granted->uuids;
    struct entry rest = entry;
    if (starts(&rest, "MIG-")) {
        return granted->parents != NULL ? choose_own_instance(rest, granted, choice)
                                        : choose_instance(entry, rest, granted, choice);
    }
    int number = starts(&rest, "GPU-") ? by_prefix(rest, gpus, granted->count)
                                       : by_index(entry, granted->count);
    if (number >= 0) {
        choose_granted(granted, number, choice);
    }
    return number >= 0;
}

static struct entry next_entry(const char **list) {
    const char *from = *list + strspn(*list, " \t");
    size_t length = strcspn(from, ",");
    *list = from + length + (from[length] == ',');
    while (length > 0 && (from[length - 1] == ' ' || from[length - 1] == '\t')) {
        length--;
    }
    return (struct entry){from, length};
}

static bool chosen_before(const struct choices *choices, const struct choice *choice) {
    for (unsigned i = 0; i < choices->count; i++) {
        if (strcasecmp(choices->at[i].text, choice->text) == 0) {
            return true;
        }
    }
    return false;
}

void visible_choose(const struct granted *granted, const char *value, struct choices *choices) {
    choices->count = 0;
    if (value == NULL) {
        for (unsigned i = 0; i < granted->count && i < VISIBLE_MAX; i++) {
            choose_granted(granted, (int)i, &choices->at[choices->count++]);
        }
        return;
    }
    while (*value != '\0' && choices->count < VISIBLE_MAX) {
        struct choice choice;
        if (!choose(next_entry(&value), granted, &choice)) {
            return;
        }
        if (chosen_before(choices, &choice)) {
            choices->count = 0;
            return;
        }
        choices->at[choices->count++] = choice;
    }
}

bool visible_write(const struct choices *choices, char *out, size_t size) {
    size_t used = 0;
    out[0] = '\0';
    for (unsigned i = 0; i < choices->count; i++) {
        int length = snprintf(out + used, size - used, "%s%s", i ? "," : "", choices->at[i].text);
        if (length < 0 || (size_t)length >= size - used) {
            return false;
        }
        used += (size_t)length;
    }
    return true;
}
