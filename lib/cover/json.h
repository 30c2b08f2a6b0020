/* The part of JSON that is needed to find a string. */
#ifndef DIVVY_COVER_JSON_H
#define DIVVY_COVER_JSON_H

#include <stdbool.h>
#include <stddef.h>

/* The value of a member of the object at text, NULL if text is no object or has no such member. Of
 * several the first. */
const char *json_member(const char *text, const char *name);

/* Copies the string at text; false if it is none, has escapes other than of / and ", or does not
 * fit. */
bool json_string(const char *text, char *out, size_t room);

#endif
