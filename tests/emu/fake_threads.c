/*
 * A pthread_create() that ends the program. tests/run preloads it for tests that do not say
 * "runner: threads": the thread sanitizer leaves these tests out, so they must start no thread.
 */
#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

__attribute__((visibility("default"))) int
pthread_create(pthread_t *thread, const pthread_attr_t *attr, void *(*start)(void *), void *arg)
{
	static const char said[] = "a thread starts: the comment at the top of the test must say "
				   "\"runner: threads\"\n";

	(void)thread, (void)attr, (void)start, (void)arg;
	if (write(STDERR_FILENO, said, sizeof(said) - 1) < 0)
		exit(98);
	abort();
}
