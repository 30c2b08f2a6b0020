/* How long code is that a program hands over by its address alone. */
#ifndef DIVVY_REMOTE_IMAGE_H
#define DIVVY_REMOTE_IMAGE_H

#include <stddef.h>

/* The size in bytes of an ELF file, a fat binary or text (PTX, with its NUL) in the program's own memory, as its header
 * proves; 0 for anything else. It reads no further than the size that it returns. */
size_t remote_image_size(const void *image);
/* The same of code of which no more than `limit` bytes are there: 0 where it is longer. */
size_t remote_image_size_within(const void *image, size_t limit);

#endif
