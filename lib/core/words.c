/* Lists of words. */
#include <string.h>

#include "core/words.h"

const char *pl_words_name(const char *list, unsigned i)
{
	for (; i && *list; i--)
		list += strlen(list) + 1;
	return *list ? list : NULL;
}

int pl_words_find(const char *list, const char *s)
{
	size_t n = strlen(s);

	for (int i = 0;; i++) {
		size_t k = strcspn(list, "|");

		if (k == n && !memcmp(list, s, n))
			return i;
		if (!list[k])
			return -1;
		list += k + 1;
	}
}
