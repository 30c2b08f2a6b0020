/*
 * The words of PTX, and its constant expressions.
 */
#ifndef DIVVY_CUDA_MEMORY_TEXT_H
#define DIVVY_CUDA_MEMORY_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "substitute/substitute.h"

struct reader {
    const char *at, *end;
    bool doubtful;  /* something was met that might hide a declaration */
    unsigned depth; /* of parentheses in an expression */
};

static inline char text_peek(const struct reader *r) {
    return r->at < r->end ? *r->at : '\0';
}
static inline char text_after(const struct reader *r) {
    return r->at + 1 < r->end ? r->at[1] : '\0';
}
static inline bool text_is_digit(char c) {
    return c >= '0' && c <= '9';
}

/* Whether a name, or a number, may have this character. */
DV_HIDDEN bool text_in_name(char c);

/* Goes over white space and comments. */
DV_HIDDEN void text_skip(struct reader *r);

/* The word that is next, with its leading dot; goes over it. */
DV_HIDDEN size_t text_word(struct reader *r, const char **begin);
DV_HIDDEN bool text_is(const char *word, size_t length, const char *expected);

/* The value of the expression that is next; goes over it. False if it cannot be told, or does not fit
 * into 64 bits. */
DV_HIDDEN bool text_value(struct reader *r, uint64_t *value);

#endif
