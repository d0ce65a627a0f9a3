/* needs.h - which libraries an executable file is linked with. */
#ifndef PL_RECORD_NEEDS_H
#define PL_RECORD_NEEDS_H

#include <stdbool.h>
#include <stddef.h>

/*
 * Is the program linked with a library whose name begins so? It is searched like a shell does: in
 * PATH, unless its name has a slash. The whole name of the library goes to `name`. Scripts, files
 * of another machine, and whatever cannot be read, are linked with nothing.
 */
bool pl_record_needs(const char *program, const char *beginning, char *name, size_t size);

#endif
