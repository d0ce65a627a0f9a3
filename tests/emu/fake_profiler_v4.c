/* fake_profiler_v4 - the same, of version 4 alone. */
#define ONLY_V4
#include "fake_profiler.c"
