#include "cover/json.h"

#include <string.h>

#define DEPTH_MAX 64

static const char *skip_blanks(const char *at) {
    return at + strspn(at, " \t\r\n");
}

/* Returns the end of the string that begins at `at`, NULL if it has none. */
static const char *skip_string(const char *at) {
    if (*at != '"') {
        return NULL;
    }
    for (at++; *at != '\0'; at++) {
        if (*at == '"') {
            return at + 1;
        }
        if (*at == '\\' && at[1] != '\0') {
            at++;
        }
    }
    return NULL;
}

/* Returns the end of the value that begins at `at`. Arrays and objects are matched by their
 * brackets alone. */
static const char *skip_value(const char *at) {
    int depth = 0;
    do {
        at = skip_blanks(at);
        switch (*at) {
        case '"':
            at = skip_string(at);
            break;
        case '[':
        case '{':
            at = ++depth > DEPTH_MAX ? NULL : at + 1;
            break;
        case ']':
        case '}':
            depth--;
            at++;
            break;
        case '\0':
            return NULL;
        default:
            at += depth > 0 && strchr(",:", *at) != NULL ? 1 : strcspn(at, ",:]} \t\r\n");
            break;
        }
    } while (at != NULL && depth > 0);
    return at;
}

const char *json_member(const char *text, const char *name) {
    const char *at = text == NULL ? NULL : skip_blanks(text);
    size_t length = strlen(name);
    if (at == NULL || *at != '{') {
        return NULL;
    }
    do {
        at = skip_blanks(at + 1);
        const char *key = at, *end = skip_string(at);
        if (end == NULL) {
            return NULL;
        }
        at = skip_blanks(end);
        if (*at != ':') {
            return NULL;
        }
        at = skip_blanks(at + 1);
        if ((size_t)(end - key) == length + 2 && memcmp(key + 1, name, length) == 0) {
            return at;
        }
        at = skip_value(at);
        at = at == NULL ? NULL : skip_blanks(at);
    } while (at != NULL && *at == ',');
    return NULL;
}

bool json_string(const char *text, char *out, size_t room) {
    if (text == NULL || *text != '"') {
        return false;
    }
    size_t filled = 0;
    for (text++; *text != '"'; text++) {
        if (*text == '\\') {
            text++;
            if (*text != '/' && *text != '"' && *text != '\\') {
                return false;
            }
        }
        if (*text == '\0' || filled + 1 >= room) {
            return false;
        }
        out[filled++] = *text;
    }
    out[filled] = '\0';
    return true;
}
