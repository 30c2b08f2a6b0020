#include "simgpu/cuda/ptx.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "simgpu/cuda/ptx_text.h"

/* More than a GPU has, and little enough that sums of sizes do not overflow. */
#define BYTES_MAX (UINT64_C(1) << 40)
#define LOCAL_MAX (512u << 10) /* the most that a thread can have */
#define ALIGN_MAX 512

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
        if (ptx_word(at, types[i].name)) {
            v->width = types[i].bytes;
            v->bytes = v->align = types[i].bytes;
            return true;
        }
    }
    return false;
}

/* [4][2 * 8], or [] where the initialiser tells. */
static bool dimensions(const char **at, struct ptx_variable *v) {
    uint64_t n;

    while (**at == '[') {
        *at = ptx_skip(*at + 1);
        if (**at == ']') {
            n = 0;
        } else if (!ptx_constant(at, &n)) {
            return false;
        }
        if (**at != ']' || (n && v->bytes > BYTES_MAX / n)) {
            return false;
        }
        v->bytes *= n;
        *at = ptx_skip(*at + 1);
    }
    return true;
}

/* What follows the state space: [.align N] [.v2] .type [.ptr ...] name [dimensions]. */
static bool declaration(const char **at, struct ptx_variable *v) {
    uint64_t align = 0, lanes = 1;

    *v = (struct ptx_variable){0};
    if (ptx_word(at, ".align") && (!ptx_number(at, &align) || align > ALIGN_MAX)) {
        return false;
    }
    if (ptx_word(at, ".attribute") && **at == '(') {
        *at += strcspn(*at, ")");
        *at = ptx_skip(**at ? *at + 1 : *at);
    }
    lanes = ptx_word(at, ".v2") ? 2 : ptx_word(at, ".v4") ? 4 : 1;
    if (!type(at, v)) {
        return false;
    }
    v->bytes *= lanes;
    v->align = align && !(align & (align - 1)) ? align : v->bytes;
    /* A parameter may say what it points to. */
    while (**at == '.') {
        *at = ptx_skip(*at + 1 + strcspn(*at + 1, " \t\r\n,)"));
        ptx_number(at, &align);
    }
    v->name = *at;
    while (ptx_in_name((*at)[v->length])) {
        v->length++;
    }
    *at = ptx_skip(*at + v->length);
    return v->length && dimensions(at, v);
}

const char *ptx_next_kernel(const char *text, const char *after, size_t *length) {
    const char *at = after ? after : text;

    while (at && (at = strstr(at, ".entry")) != NULL) {
        at += strlen(".entry");
        if (!isspace((unsigned char)*at)) {
            continue;
        }
        at = ptx_skip(at);
        for (*length = 0; ptx_in_name(at[*length]);) {
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
    for (const char *at = ptx_skip(after ? after : text); *at; at = ptx_skip(at)) {
        /* A word of its own: "ld.global" is none. */
        if (*at != '.') {
            while (*at && *at != '/' && !isspace((unsigned char)*at)) {
                at++;
            }
            at += *at == '/' && at[1] != '/' && at[1] != '*';
            continue;
        }
        if (!ptx_word(&at, ".global") && !ptx_word(&at, ".const")) {
            at++;
            while (ptx_in_name(*at) || *at == '.') {
                at++;
            }
            continue;
        }
        if (!declaration(&at, out)) {
            continue;
        }
        if (*at == '=') {
            out->init = ptx_skip(at + 1);
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
    while (ptx_in_name(*at)) {
        at++;
    }
    at = ptx_skip(at);
    for (size_t i = 0; *at == '(' || *at == ','; i++) {
        at = ptx_skip(at + 1);
        if (!ptx_word(&at, ".param") || !declaration(&at, out) || !out->bytes) {
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
        if ((at == text || !ptx_in_name(at[-1])) && !ptx_in_name(at[strlen(function)])) {
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
        if (ptx_in_name(at[-1]) || !ptx_word(&at, ".local")) {
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
    *at = ptx_skip(end);
    return true;
}

void ptx_initial(const struct ptx_variable *variable, unsigned char *contents) {
    const char *at = variable->init;
    uint64_t value, done = 0;

    memset(contents, 0, variable->bytes);
    while (at && *at && *at != ';' && done + variable->width <= variable->bytes) {
        if (*at == '{' || *at == '}' || *at == ',') {
            at = ptx_skip(at + 1);
        } else if (element(&at, variable->width, &value)) {
            memcpy(contents + done, &value, variable->width < 8 ? variable->width : 8);
            done += variable->width;
        } else {
            return;
        }
    }
}
