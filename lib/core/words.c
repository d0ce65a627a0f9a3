/* Lists of words, and the known word nearest to a misspelt one. */
#include <stdio.h>

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

/* Insertions, deletions, replacements and swaps of neighbours that turn one word into the other. */
static size_t edit_distance(const char *a, size_t n, const char *b, size_t m)
{
	size_t d[3][64], *last = d[0], *before = d[1], *now = d[2];

	for (size_t j = 0; j <= m; j++)
		last[j] = j;
	for (size_t i = 1; i <= n; i++) {
		size_t *free_row = before;

		now[0] = i;
		for (size_t j = 1; j <= m; j++) {
			size_t v = last[j - 1] + (a[i - 1] != b[j - 1]);

			v = pl_min_size(v, pl_min_size(last[j], now[j - 1]) + 1);
			if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
				v = pl_min_size(v, before[j - 2] + 1);
			now[j] = v;
		}
		before = last;
		last = now;
		now = free_row;
	}
	return last[m];
}

void pl_words_near(struct pl_words_near *near, const char *word, size_t n)
{
	size_t length = strlen(near->s), d;

	if (!n || n >= sizeof(near->word) || length >= sizeof(near->word))
		return;
	d = edit_distance(near->s, length, word, n);
	if (d > pl_min_size(1 + length / 4, 3) || d >= length ||
	    (near->distance && d >= near->distance))
		return;
	near->distance = d;
	memcpy(near->word, word, n);
	near->word[n] = '\0';
}

const char *pl_words_near_text(const struct pl_words_near *near, char *out, size_t size)
{
	if (near->distance)
		snprintf(out, size, "; did you mean %s?", near->word);
	else
		*out = '\0';
	return out;
}

int pl_words_check(const char *glob, const char *what, const char *(*word)(unsigned), unsigned n,
		   struct pl_err *err)
{
	struct pl_words_near near = { .s = glob ? glob : "" };
	char all[400] = "", hint[96];
	size_t at = 0;

	for (unsigned i = 0; glob && i < n; i++) {
		if (pl_glob(glob, word(i)))
			return 0;
		pl_words_near(&near, word(i), strlen(word(i)));
		if (at < sizeof(all))
			at += (size_t)snprintf(all + at, sizeof(all) - at, "%s%s", i ? ", " : "",
					       word(i));
	}
	if (!glob)
		return 0;
	if (near.distance)
		return pl_fail(err, PL_EDATA, "no %s matches \"%.100s\"%s", what, glob,
			       pl_words_near_text(&near, hint, sizeof(hint)));
	return pl_fail(err, PL_EDATA, "no %s matches \"%.100s\"; there are %s", what, glob, all);
}
