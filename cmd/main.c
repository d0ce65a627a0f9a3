/* The one main of all programs: each defines its `pl_command`. */
#include "core/cmd.h"

#if defined(__SANITIZE_ADDRESS__) && __has_include(<sanitizer/allocator_interface.h>)
/*
 * The search for leaks reads all globals, those of the sanitizer as well: 5 of the 10 ms that a
 * short program takes. Where all that was allocated is free again, there is nothing to search for.
 */
#include <sanitizer/allocator_interface.h>
#include <stdatomic.h>
#include <stdio.h>

static atomic_llong live; /* allocations */

static void count_malloc(const volatile void *p, size_t n)
{
	(void)n;
	atomic_fetch_add(&live, p ? 1 : 0);
}

static void count_free(const volatile void *p)
{
	atomic_fetch_sub(&live, p ? 1 : 0);
}

__attribute__((constructor(101))) static void count_allocations(void)
{
	if (!__sanitizer_install_malloc_and_free_hooks(count_malloc, count_free))
		atomic_store(&live, 1); /* unknown */
}

int __lsan_is_turned_off(void);
__attribute__((visibility("default"))) int __lsan_is_turned_off(void)
{
	FILE *const file[] = { stdin, stdout, stderr };
	long long rest = atomic_load(&live);

	for (size_t i = 0; i < PL_LEN(file); i++) /* libc keeps their buffers */
		rest -= file[i]->_IO_buf_base && file[i]->_IO_buf_base != file[i]->_shortbuf &&
			__sanitizer_get_ownership(file[i]->_IO_buf_base);
	return rest == 0;
}
#endif

int main(int argc, char **argv)
{
	return pl_main(&pl_command, argc, argv);
}
