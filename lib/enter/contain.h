/* What the caller left open does not lead the command out of its mount namespace. */
#ifndef DIVVY_ENTER_CONTAIN_H
#define DIVVY_ENTER_CONTAIN_H

#include <stdbool.h>

/* Notes the device nodes at a place, which is about to be covered. */
void contain_note(const char *place);
/* After all covers: has descriptors of directories and the working directory be what their paths show now. Descriptors of what is
 * hidden, and of device nodes that were noted, are closed, each with a line on standard error. False, with errno, where the open
 * files cannot be listed. */
bool contain_open_files(void);

#endif
