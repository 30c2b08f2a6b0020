/* What the client keeps of functions and kernels, until their code is unloaded. */
#ifndef DIVVY_REMOTE_CLIENT_LAYOUT_H
#define DIVVY_REMOTE_CLIENT_LAYOUT_H

#include "remote/client/client.h"
#include "remote/layout.h"

/* Notes that a function or kernel of this number was told by a module or library, or by a kernel. */
void remote_code_told(enum remote_kind kind, uint64_t number, enum remote_kind owner_kind,
                      uint64_t owner);
/* Forgets a module or library and what it told, here and in the worker. */
void remote_code_ended(enum remote_kind owner_kind, uint64_t owner);
/* The name of a function or kernel, which lives as long as its code; NULL if none was kept. */
const char *remote_name_kept(enum remote_kind kind, uint64_t number);
/* Keeps a name, of which it makes a copy. NULL without memory. */
const char *remote_name_keep(enum remote_kind kind, uint64_t number, const char *name, size_t size);

#endif
