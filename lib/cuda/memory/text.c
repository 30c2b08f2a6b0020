/*
 * The variables of PTX. A declaration is, by the manual "Parallel Thread Execution ISA",
 *
 *     .global .align 8 .v2 .f32 name[4][N] = { ... }, other[2];
 *
 * Where the text leaves a doubt the larger size is taken: what is not a declaration in the end, or
 * belongs to another module, is counted too.
 */
#include "cuda/memory/text.h"
#include "cuda/memory/image.h"

#include <string.h>

/* Goes over a string; returns its length. Nobody says whether \" ends one. */
static uint64_t string(struct reader *r) {
    const char *begin = ++r->at;
    while (r->at < r->end && *r->at != '"') {
        r->doubtful |= *r->at == '\\' && text_after(r) == '"';
        r->at++;
    }
    uint64_t length = (uint64_t)(r->at - begin);
    r->at += r->at < r->end;
    return length;
}

static uint64_t times(uint64_t a, uint64_t b) {
    uint64_t product;
    return __builtin_mul_overflow(a, b, &product) || product > IMAGE_HUGE ? IMAGE_HUGE : product;
}

/* Bytes of an element by its type's name, such as .u8 and .f16x2: its digits are bits, the number
 * after an x how often. Types without digits are handles of textures. */
static uint64_t width_of(const char *type, size_t length) {
    uint64_t bits = 0, count = 0;
    bool counting = false;
    for (size_t i = 0; i < length; i++) {
        if (type[i] == 'x' && bits != 0) {
            counting = true;
        } else if (text_is_digit(type[i])) {
            uint64_t *to = counting ? &count : &bits;
            *to = *to * 10 + (uint64_t)(type[i] - '0');
            *to = *to > 4096 ? 4096 : *to;
        }
    }
    return bits == 0 ? 128 : (bits * (count != 0 ? count : 1) + 7) / 8;
}

struct type {
    uint64_t bytes; /* of an element, 0 before there is a type */
    uint64_t align;
};

/* One of the words between the state space and the name. */
static void qualify(struct reader *r, const char *name, size_t length, struct type *type) {
    static uint64_t lanes[] = {0, 0, 2, 0, 4, 0, 0, 0, 8};
    if (text_is(name, length, ".align")) {
        if (!text_value(r, &type->align) || type->align > IMAGE_HUGE) {
            type->align = IMAGE_HUGE;
        }
    } else if (text_is(name, length, ".attribute") && text_peek(r) == '(') {
        const char *end = memchr(r->at, ')', (size_t)(r->end - r->at));
        r->at = end != NULL ? end + 1 : r->end;
        text_skip(r);
    } else if (length == 3 && name[1] == 'v' && name[2] >= '0' && name[2] <= '8') {
        type->bytes = lanes[name[2] - '0'];
    } else {
        uint64_t width = width_of(name, length);
        type->bytes = type->bytes != 0 ? type->bytes * width : width;
    }
}

/* The initialiser behind '=': how many elements it has at most. */
static uint64_t initialiser(struct reader *r) {
    uint64_t elements = 1;
    int depth = 0;
    while (r->at < r->end && text_peek(r) != ';' && !(text_peek(r) == ',' && depth == 0)) {
        char c = text_peek(r);
        depth += c == '{' || c == '(' ? 1 : c == '}' || c == ')' ? -1 : 0;
        elements += c == ',';
        if (c == '"') {
            elements += string(r);
        } else {
            r->at++;
        }
        text_skip(r);
    }
    return elements;
}

/* One name with its dimensions; false if there is none. */
static bool declarator(struct reader *r, const struct type *type, uint64_t *bytes) {
    const char *name;
    uint64_t n, size = type->bytes, open = 1;
    if (!text_in_name(text_peek(r))) {
        return false;
    }
    text_word(r, &name);
    while (text_peek(r) == '[') {
        r->at++;
        text_skip(r);
        r->depth = 0;
        if (text_peek(r) == ']') {
            open = 0;
        } else if (!text_value(r, &n) || text_peek(r) != ']') {
            size = IMAGE_HUGE;
        } else {
            size = times(size, n);
        }
        r->at += text_peek(r) == ']';
        text_skip(r);
    }
    if (text_peek(r) == '=') {
        uint64_t elements = initialiser(r);
        size = open == 0 ? times(size, elements) : size;
    }
    uint64_t align = type->align > type->bytes ? type->align : type->bytes;
    align = align != 0 ? align : 1;
    *bytes = *bytes > IMAGE_HUGE ? IMAGE_HUGE : *bytes;
    *bytes = times((*bytes + align - 1) / align, align) + size;
    return true;
}

/* Behind .global or .const. */
static void declaration(struct reader *r, uint64_t *bytes) {
    struct type type = {0, 0};
    const char *name;
    uint64_t bank;
    if (text_peek(r) == '[') { /* .const[2], of old versions */
        r->at++;
        text_skip(r);
        r->depth = 0;
        text_value(r, &bank);
        r->at += text_peek(r) == ']';
        text_skip(r);
    }
    while (text_peek(r) == '.') {
        size_t length = text_word(r, &name);
        r->depth = 0;
        qualify(r, name, length, &type);
    }
    if (type.bytes == 0) {
        return; /* what a pointer points to */
    }
    while (declarator(r, &type, bytes) && text_peek(r) == ',') {
        r->at++;
        text_skip(r);
    }
}

/* An instruction with its suffixes, such as ld.global.u32, or a name. */
static void plain(struct reader *r, struct image *image) {
    const char *name = r->at;
    while (text_in_name(text_peek(r)) || text_peek(r) == '.') {
        r->at++;
    }
    size_t length = (size_t)(r->at - name);
    image->allocates |= text_is(name, length, "malloc");
    image->prints |= text_is(name, length, "vprintf");
}

/* What the preprocessor would insert is not seen here. */
static void directive(struct reader *r) {
    const char *name;
    r->at++;
    text_skip(r);
    size_t length = text_word(r, &name);
    r->doubtful |= text_is(name, length, "define") || text_is(name, length, "include");
}

struct image image_read_text(const char *text, size_t most) {
    size_t length = most == SIZE_MAX ? strlen(text) : strnlen(text, most);
    struct reader r = {.at = text, .end = text + length};
    struct image image = {0};
    const char *name;
    for (text_skip(&r); r.at < r.end; text_skip(&r)) {
        if (text_peek(&r) == '.') {
            size_t letters = text_word(&r, &name);
            if (text_is(name, letters, ".global") || text_is(name, letters, ".const")) {
                declaration(&r, &image.variables);
            }
        } else if (text_in_name(text_peek(&r))) {
            plain(&r, &image);
        } else if (text_peek(&r) == '"') {
            string(&r);
        } else if (text_peek(&r) == '#') {
            directive(&r);
        } else {
            r.at++;
        }
    }
    image.variables = r.doubtful ? IMAGE_HUGE : image.variables;
    return image;
}
