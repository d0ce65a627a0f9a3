/* Inputs as one piece of memory. */
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "io/internal.h"
#include "io/whole.h"

/* Is it a great file that can be mapped? The unread bytes are those from its offset on, unless the
 * descriptor came with a position of its own, as standard input may. */
static bool map_file(const struct pl_in *in, struct pl_whole *w)
{
	struct stat st;
	void *p;

	if (in->fd < 0 || in->gz || in->fini || fstat(in->fd, &st) || !S_ISREG(st.st_mode) ||
	    st.st_size <= (off_t)PL_SPILL_BYTES || st.st_size <= in->offset || in->size < 0 ||
	    lseek(in->fd, 0, SEEK_CUR) != in->offset + (off_t)in->n)
		return false;
	p = pl_fail_now() ? MAP_FAILED
			  : mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, in->fd, 0);
	if (p == MAP_FAILED)
		return false;
	w->map = p;
	w->mapped = (size_t)st.st_size;
	w->p = (const uint8_t *)p + in->offset;
	w->n = (size_t)(st.st_size - in->offset);
	return true;
}

int pl_in_whole(struct pl_in *in, size_t most, struct pl_whole *w, struct pl_err *err)
{
	const uint8_t *p;
	int64_t n = 0;

	if (!map_file(in, w)) {
		while ((n = pl_in_peek(in, 1, &p, err)) > 0 && w->n + (uint64_t)n <= most) {
			PL_CHECK(pl_spill_grow(&w->own, w->n + (size_t)n, err));
			memcpy((uint8_t *)w->own.p + w->n, p, (size_t)n);
			w->n += (size_t)n;
			pl_in_skip(in, (size_t)n);
			if (w->n % (16 << 20) < (size_t)n)
				pl_spill_rest(&w->own);
		}
		w->p = w->own.p;
	}
	if (n > 0 || w->n > most)
		return pl_fail(err, PL_ELIMIT, "%s: more than %zu bytes", pl_in_name(in), most);
	return (int)n;
}

void pl_whole_rest(const struct pl_whole *w)
{
	pl_spill_rest(&w->own);
	if (w->map)
		madvise(w->map, w->mapped, MADV_DONTNEED);
}

void pl_whole_fini(struct pl_whole *w)
{
	pl_spill_fini(&w->own);
	if (w->map)
		munmap(w->map, w->mapped);
	memset(w, 0, sizeof(*w));
}
