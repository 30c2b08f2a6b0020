#include "simgpu/cuda/ptx.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* More than a GPU has, and little enough that sums of sizes do not overflow. */
#define BYTES_MAX (UINT64_C(1) << 40)
#define LOCAL_MAX (512u << 10) /* the most that a thread can have */
#define ALIGN_MAX 512

static bool in_name(char c) {
    return isalnum((unsigned char)c) || c == '_' || c == '$' || c == '%';
}

/* Goes over white space and comments. */
static const char *skip(const char *at) {
    for (;;) {
        while (isspace((unsigned char)*at)) {
            at++;
        }
        if (at[0] == '/' && at[1] == '/') {
            at += strcspn(at, "\n");
        } else if (at[0] == '/' && at[1] == '*') {
            const char *end = strstr(at + 2, "*/");
            at = end ? end + 2 : at + strlen(at);
        } else {
            return at;
        }
    }
}

/* Whether the word is next, and a word of its own; then goes over it. */
static bool word(const char **at, const char *expected) {
    size_t length = strlen(expected);

    if (strncmp(*at, expected, length) != 0 || in_name((*at)[length])) {
        return false;
    }
    *at = skip(*at + length);
    return true;
}

/* A number in any of C's bases; goes over it. */
static bool number(const char **at, uint64_t *value) {
    char *end;

    if (!isdigit((unsigned char)**at)) {
        return false;
    }
    errno = 0;
    *value = strtoull(*at, &end, 0);
    if (errno || end == *at) {
        return false;
    }
    end += *end == 'U';
    *at = skip(end);
    return true;
}

static const struct {
    const char *name;
    unsigned bytes;
} types[] = {
    {".b8", 1},  {".u8", 1},  {".s8", 1},    {".b16", 2},    {".u16", 2},
    {".s16", 2}, {".f16", 2}, {".bf16", 2},  {".b32", 4},    {".u32", 4},
    {".s32", 4}, {".f32", 4}, {".f16x2", 4}, {".bf16x2", 4}, {".b64", 8},
    {".u64", 8}, {".s64", 8}, {".f64", 8},   {".b128", 16},
};

static bool type(const char **at, struct ptx_variable *v) {
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        if (word(at, types[i].name)) {
            v->width = types[i].bytes;
            v->bytes = v->align = types[i].bytes;
            return true;
        }
    }
    return false;
}

/* [4][2], or [] where the initialiser tells. */
static bool dimensions(const char **at, struct ptx_variable *v) {
    uint64_t n;

    while (**at == '[') {
        *at = skip(*at + 1);
        if (!number(at, &n)) {
            n = 0;
        }
        if (**at != ']' || (n && v->bytes > BYTES_MAX / n)) {
            return false;
        }
        v->bytes *= n;
        *at = skip(*at + 1);
    }
    return true;
}

/* What follows the state space: [.align N] [.v2] .type [.ptr ...] name [dimensions]. */
static bool declaration(const char **at, struct ptx_variable *v) {
    uint64_t align = 0, lanes = 1;

    *v = (struct ptx_variable){0};
    if (word(at, ".align") && (!number(at, &align) || align > ALIGN_MAX)) {
        return false;
    }
    if (word(at, ".attribute") && **at == '(') {
        *at += strcspn(*at, ")");
        *at = skip(**at ? *at + 1 : *at);
    }
    lanes = word(at, ".v2") ? 2 : word(at, ".v4") ? 4 : 1;
    if (!type(at, v)) {
        return false;
    }
    v->bytes *= lanes;
    v->align = align && !(align & (align - 1)) ? align : v->bytes;
    /* A parameter may say what it points to. */
    while (**at == '.') {
        *at = skip(*at + 1 + strcspn(*at + 1, " \t\r\n,)"));
        number(at, &align);
    }
    v->name = *at;
    while (in_name((*at)[v->length])) {
        v->length++;
    }
    *at = skip(*at + v->length);
    return v->length && dimensions(at, v);
}

const char *ptx_next_kernel(const char *text, const char *after, size_t *length) {
    const char *at = after ? after : text;

    while (at && (at = strstr(at, ".entry")) != NULL) {
        at += strlen(".entry");
        if (!isspace((unsigned char)*at)) {
            continue;
        }
        at = skip(at);
        for (*length = 0; in_name(at[*length]);) {
            ++*length;
        }
        if (*length) {
            return at;
        }
    }
    return NULL;
}

/* Elements of an initialiser, where the brackets are empty. */
static uint64_t elements(const char *init) {
    uint64_t n = 1;

    for (; *init && *init != ';' && n < BYTES_MAX; init++) {
        n += *init == ',';
    }
    return n;
}

const char *ptx_next_variable(const char *text, const char *after, struct ptx_variable *out) {
    for (const char *at = skip(after ? after : text); *at; at = skip(at)) {
        /* A word of its own: "ld.global" is none. */
        if (*at != '.') {
            while (*at && *at != '/' && !isspace((unsigned char)*at)) {
                at++;
            }
            at += *at == '/' && at[1] != '/' && at[1] != '*';
            continue;
        }
        if (!word(&at, ".global") && !word(&at, ".const")) {
            at++;
            while (in_name(*at) || *at == '.') {
                at++;
            }
            continue;
        }
        if (!declaration(&at, out)) {
            continue;
        }
        if (*at == '=') {
            out->init = skip(at + 1);
            at += strcspn(at, ";");
            out->bytes = out->bytes ? out->bytes : out->width * elements(out->init);
        }
        if (*at == ';' && out->bytes) {
            return at;
        }
    }
    return NULL;
}

bool ptx_param(const char *kernel, size_t index, struct ptx_variable *out, uint64_t *offset) {
    const char *at = kernel;

    *offset = 0;
    while (in_name(*at)) {
        at++;
    }
    at = skip(at);
    for (size_t i = 0; *at == '(' || *at == ','; i++) {
        at = skip(at + 1);
        if (!word(&at, ".param") || !declaration(&at, out) || !out->bytes) {
            return false;
        }
        *offset = (*offset + out->align - 1) / out->align * out->align;
        if (i == index) {
            return true;
        }
        *offset += out->bytes;
    }
    return false;
}

bool ptx_calls(const char *text, const char *function) {
    for (const char *at = text; (at = strstr(at, function)) != NULL; at++) {
        if ((at == text || !in_name(at[-1])) && !in_name(at[strlen(function)])) {
            return true;
        }
    }
    return false;
}

int ptx_local(const char *kernel) {
    size_t length;
    const char *end = ptx_next_kernel(kernel, kernel, &length);
    uint64_t bytes = 0;

    for (const char *at = kernel; (at = strstr(at, ".local")) != NULL && (!end || at < end);) {
        struct ptx_variable v;
        /* A word of its own: "ld.local" is none. */
        if (in_name(at[-1]) || !word(&at, ".local")) {
            at++;
        } else if (declaration(&at, &v) && bytes + v.bytes <= LOCAL_MAX) {
            bytes += v.bytes;
        }
    }
    return (int)bytes;
}

/* 0f3F800000 and 0d3FF0000000000000 are floating point numbers by their bits. */
static bool element(const char **at, unsigned width, uint64_t *value) {
    bool minus = **at == '-';
    const char *begin = *at + minus;
    char *end;

    if (begin[0] == '0' && begin[1] && strchr("fFdD", begin[1]) &&
        isxdigit((unsigned char)begin[2])) {
        *value = strtoull(begin + 2, &end, 16);
    } else if (isdigit((unsigned char)*begin)) {
        *value = strtoull(begin, &end, 0);
        if (*end == '.') {
            double wide = strtod(begin, &end);
            float narrow = (float)wide;
            *value = 0;
            memcpy(value, width == 8 ? (const void *)&wide : (const void *)&narrow,
                   width == 8 ? 8 : 4);
        }
        end += *end == 'U';
    } else {
        return false;
    }
    *value = minus ? 0 - *value : *value;
    *at = skip(end);
    return true;
}

void ptx_initial(const struct ptx_variable *variable, unsigned char *contents) {
    const char *at = variable->init;
    uint64_t value, done = 0;

    memset(contents, 0, variable->bytes);
    while (at && *at && *at != ';' && done + variable->width <= variable->bytes) {
        if (*at == '{' || *at == '}' || *at == ',') {
            at = skip(at + 1);
        } else if (element(&at, variable->width, &value)) {
            memcpy(contents + done, &value, variable->width < 8 ? variable->width : 8);
            done += variable->width;
        } else {
            return;
        }
    }
}
