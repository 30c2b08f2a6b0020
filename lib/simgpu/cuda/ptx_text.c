#include "simgpu/cuda/ptx_text.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define NESTED_MAX 64
#define WARP_SIZE 32

bool ptx_in_name(char c) {
    return isalnum((unsigned char)c) || c == '_' || c == '$' || c == '%';
}

const char *ptx_skip(const char *at) {
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

bool ptx_word(const char **at, const char *expected) {
    size_t length = strlen(expected);

    if (strncmp(*at, expected, length) != 0 || ptx_in_name((*at)[length])) {
        return false;
    }
    *at = ptx_skip(*at + length);
    return true;
}

bool ptx_number(const char **at, uint64_t *value) {
    char *end;

    if (!isdigit((unsigned char)**at)) {
        return false;
    }
    bool binary = (*at)[0] == '0' && ((*at)[1] == 'b' || (*at)[1] == 'B');
    errno = 0;
    *value = binary ? strtoull(*at + 2, &end, 2) : strtoull(*at, &end, 0);
    if (errno || end == *at) {
        return false;
    }
    end += *end == 'U';
    *at = ptx_skip(end);
    return true;
}

/* The binary operators, as the manual's section "Constant Expressions" has them: those that bind closer
 * have the greater rank. Longer spellings come first. */
static const struct {
    const char *text;
    int rank;
    char op;
} operators[] = {
    {"||", 1, 'o'}, {"&&", 2, 'a'}, {"==", 6, '='}, {"!=", 6, '!'}, {"<=", 7, 'l'}, {">=", 7, 'g'},
    {"<<", 8, 'L'}, {">>", 8, 'R'}, {"|", 3, '|'},  {"^", 4, '^'},  {"&", 5, '&'},  {"<", 7, '<'},
    {">", 7, '>'},  {"+", 9, '+'},  {"-", 9, '-'},  {"*", 10, '*'}, {"/", 10, '/'}, {"%", 10, '%'},
};

static bool choice(const char **at, uint64_t *value, int nested);

static bool unary(const char **at, uint64_t *value, int nested) {
    char op = **at;

    if (nested > NESTED_MAX) {
        return false;
    }
    if (op == '(') {
        *at = ptx_skip(*at + 1);
        if (!choice(at, value, nested + 1) || **at != ')') {
            return false;
        }
        *at = ptx_skip(*at + 1);
        return true;
    }
    if (op == '-' || op == '+' || op == '!' || op == '~') {
        *at = ptx_skip(*at + 1);
        if (!unary(at, value, nested + 1)) {
            return false;
        }
        *value = op == '-' ? -*value : op == '!' ? !*value : op == '~' ? ~*value : *value;
        return true;
    }
    if (ptx_word(at, "WARP_SZ")) {
        *value = WARP_SIZE;
        return true;
    }
    return ptx_number(at, value);
}

/* Integers are signed, unless they do not fit. */
static bool apply(char op, uint64_t a, uint64_t b, uint64_t *out) {
    int64_t x = (int64_t)a, y = (int64_t)b;

    if ((op == '/' || op == '%') && (b == 0 || (x == INT64_MIN && y == -1))) {
        return false;
    }
    switch (op) {
    case 'o':
        *out = a || b;
        return true;
    case 'a':
        *out = a && b;
        return true;
    case '=':
        *out = a == b;
        return true;
    case '!':
        *out = a != b;
        return true;
    case 'l':
        *out = x <= y;
        return true;
    case 'g':
        *out = x >= y;
        return true;
    case '<':
        *out = x < y;
        return true;
    case '>':
        *out = x > y;
        return true;
    case 'L':
        *out = b < 64 ? a << b : 0;
        return true;
    case 'R':
        *out = (uint64_t)(x >> (b < 63 ? b : 63));
        return true;
    case '|':
        *out = a | b;
        return true;
    case '^':
        *out = a ^ b;
        return true;
    case '&':
        *out = a & b;
        return true;
    case '+':
        *out = a + b;
        return true;
    case '-':
        *out = a - b;
        return true;
    case '*':
        *out = a * b;
        return true;
    case '/':
        *out = (uint64_t)(x / y);
        return true;
    default:
        *out = (uint64_t)(x % y);
        return true;
    }
}

/* Operators of this rank or closer ones. */
static bool ranked(const char **at, uint64_t *value, int rank, int nested) {
    if (!unary(at, value, nested)) {
        return false;
    }
    for (;;) {
        size_t i = 0, count = sizeof operators / sizeof *operators;
        while (i < count && strncmp(*at, operators[i].text, strlen(operators[i].text)) != 0) {
            i++;
        }
        if (i == count || operators[i].rank < rank) {
            return true;
        }
        uint64_t right;
        *at = ptx_skip(*at + strlen(operators[i].text));
        if (nested > NESTED_MAX || !ranked(at, &right, operators[i].rank + 1, nested + 1) ||
            !apply(operators[i].op, *value, right, value)) {
            return false;
        }
    }
}

static bool choice(const char **at, uint64_t *value, int nested) {
    uint64_t yes, no;

    if (!ranked(at, value, 0, nested)) {
        return false;
    }
    if (**at != '?') {
        return true;
    }
    *at = ptx_skip(*at + 1);
    if (nested > NESTED_MAX || !choice(at, &yes, nested + 1) || **at != ':') {
        return false;
    }
    *at = ptx_skip(*at + 1);
    if (!choice(at, &no, nested + 1)) {
        return false;
    }
    *value = *value ? yes : no;
    return true;
}

bool ptx_constant(const char **at, uint64_t *value) {
    return choice(at, value, 0);
}
