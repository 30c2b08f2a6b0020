#include "cuda/memory/text.h"

#include <string.h>

#define DEPTH_MAX 64

bool text_in_name(char c) {
    return text_is_digit(c) || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' ||
           c == '$' || c == '%';
}

static bool is_space(char c) {
    return c == ' ' || (c >= '\t' && c <= '\r');
}

static void to_end_of_comment(struct reader *r) {
    r->at += 2;
    while (r->at < r->end && !(text_peek(r) == '*' && text_after(r) == '/')) {
        r->at++;
    }
    r->at += r->at < r->end ? 2 : 0;
}

void text_skip(struct reader *r) {
    for (;;) {
        while (is_space(text_peek(r))) {
            r->at++;
        }
        if (text_peek(r) == '/' && text_after(r) == '/') {
            const char *line = memchr(r->at, '\n', (size_t)(r->end - r->at));
            r->at = line != NULL ? line : r->end;
        } else if (text_peek(r) == '/' && text_after(r) == '*') {
            to_end_of_comment(r);
        } else {
            return;
        }
    }
}

bool text_is(const char *word, size_t length, const char *expected) {
    return strlen(expected) == length && memcmp(word, expected, length) == 0;
}

size_t text_word(struct reader *r, const char **begin) {
    *begin = r->at;
    r->at += text_peek(r) == '.';
    while (text_in_name(text_peek(r))) {
        r->at++;
    }
    size_t length = (size_t)(r->at - *begin);
    text_skip(r);
    return length;
}

static int digit_of(char c) {
    return text_is_digit(c)       ? c - '0'
           : c >= 'a' && c <= 'f' ? c - 'a' + 10
           : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                  : 99;
}

static bool number(struct reader *r, uint64_t *value) {
    int base = 10;
    if (text_peek(r) == '0') {
        char kind = text_after(r);
        base = kind == 'x' || kind == 'X' ? 16 : kind == 'b' || kind == 'B' ? 2 : 8;
        r->at += base == 8 ? 0 : 2;
    }
    const char *begin = r->at;
    bool overflows = false;
    for (*value = 0; digit_of(text_peek(r)) < base; r->at++) {
        overflows |= __builtin_mul_overflow(*value, (uint64_t)base, value) ||
                     __builtin_add_overflow(*value, (uint64_t)digit_of(*r->at), value);
    }
    bool any = r->at > begin;
    r->at += text_peek(r) == 'U';
    bool whole = !text_in_name(text_peek(r)) && text_peek(r) != '.';
    text_skip(r);
    return any && !overflows && whole;
}

static bool primary(struct reader *r, uint64_t *value) {
    const char *name;
    char sign = text_peek(r);
    if (r->depth++ >= DEPTH_MAX) {
        return false;
    }
    bool known;
    if (sign == '(') {
        r->at++;
        text_skip(r);
        if (text_peek(r) == '.') { /* a cast */
            text_word(r, &name);
            known = text_peek(r) == ')';
            r->at += known;
            text_skip(r);
            known = known && primary(r, value);
        } else {
            known = text_value(r, value) && text_peek(r) == ')';
            r->at += known;
            text_skip(r);
        }
    } else if (sign == '+' || sign == '-' || sign == '~' || sign == '!') {
        r->at++;
        text_skip(r);
        known = primary(r, value);
        *value = sign == '-' ? 0 - *value : sign == '~' ? ~*value : sign == '!' ? !*value : *value;
    } else if (text_is_digit(sign)) {
        known = number(r, value);
    } else {
        size_t length = text_word(r, &name);
        known = text_is(name, length, "WARP_SZ");
        *value = 32;
    }
    r->depth--;
    return known;
}

static const struct {
    const char *text;
    int rank;
} operators[] = {{"<<", 8}, {">>", 8}, {"<=", 7}, {">=", 7}, {"==", 6}, {"!=", 6},
                 {"&&", 2}, {"||", 1}, {"*", 10}, {"/", 10}, {"%", 10}, {"+", 9},
                 {"-", 9},  {"<", 7},  {">", 7},  {"&", 5},  {"^", 4},  {"|", 3}};
#define OPERATORS ((int)(sizeof operators / sizeof operators[0]))

static int operator_at(const struct reader *r) {
    for (int i = 0; i < OPERATORS; i++) {
        const char *text = operators[i].text;
        if (text_peek(r) == text[0] && (text[1] == '\0' || text_after(r) == text[1])) {
            return i;
        }
    }
    return -1;
}

static bool apply(const char *text, uint64_t a, uint64_t b, uint64_t *value) {
    bool twice = text[1] != '\0';
    if ((text[0] == '/' || text[0] == '%') && b == 0) {
        return false;
    }
    switch (text[0]) {
    case '*':
        return !__builtin_mul_overflow(a, b, value);
    case '+':
        return !__builtin_add_overflow(a, b, value);
    case '-':
        return !__builtin_sub_overflow(a, b, value);
    case '/':
        *value = a / b;
        return true;
    case '%':
        *value = a % b;
        return true;
    case '<':
        *value = text[1] == '<' ? (b < 64 ? a << b : 0) : text[1] == '=' ? a <= b : a < b;
        return text[1] != '<' || (b < 64 && a << b >> b == a);
    case '>':
        *value = text[1] == '>' ? (b < 64 ? a >> b : 0) : text[1] == '=' ? a >= b : a > b;
        return true;
    case '=':
        *value = a == b;
        return true;
    case '!':
        *value = a != b;
        return true;
    case '&':
        *value = twice ? a && b : a & b;
        return true;
    case '|':
        *value = twice ? a || b : a | b;
        return true;
    default:
        *value = a ^ b;
        return true;
    }
}

static bool binary(struct reader *r, int least, uint64_t *value) {
    uint64_t right;
    bool known = primary(r, value);
    for (int i; known && (i = operator_at(r)) >= 0 && operators[i].rank >= least;) {
        r->at += strlen(operators[i].text);
        text_skip(r);
        known = binary(r, operators[i].rank + 1, &right) &&
                apply(operators[i].text, *value, right, value);
    }
    return known;
}

bool text_value(struct reader *r, uint64_t *value) {
    uint64_t yes, no;
    if (!binary(r, 1, value)) {
        return false;
    }
    if (text_peek(r) != '?') {
        return true;
    }
    r->at++;
    text_skip(r);
    if (r->depth++ >= DEPTH_MAX || !text_value(r, &yes) || text_peek(r) != ':') {
        return false;
    }
    r->at++;
    text_skip(r);
    if (!text_value(r, &no)) {
        return false;
    }
    r->depth--;
    *value = *value != 0 ? yes : no;
    return true;
}
