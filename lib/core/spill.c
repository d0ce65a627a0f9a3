/* Arrays that become the mapping of a temporary file. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "core/spill.h"

int pl_spill_file(struct pl_err *err)
{
	const char *folder = getenv("TMPDIR");
	char path[PATH_MAX];
	int fd;

	snprintf(path, sizeof(path), "%s/paceline-XXXXXX", folder && *folder ? folder : "/tmp");
	errno = EIO;
	fd = pl_fail_now() ? -1 : mkostemp(path, O_CLOEXEC);
	if (fd < 0)
		return pl_fail_sys(err, "%s: a temporary file", path);
	unlink(path);
	return fd;
}

/* The blocks are taken now: a full disk is an error here, and no signal when a page is used. */
static int lengthen(int fd, size_t bytes, struct pl_err *err)
{
	int rc = pl_fail_now() ? EIO : posix_fallocate(fd, 0, (off_t)bytes);

	if (!rc)
		return 0;
	errno = rc;
	return pl_fail_sys(err, "a temporary file of %zu bytes", bytes);
}

/* From memory into a file. */
static int move_out(struct pl_spill *s, size_t bytes, struct pl_err *err)
{
	int fd = pl_spill_file(err), rc = fd < 0 ? fd : lengthen(fd, bytes, err);
	void *p = MAP_FAILED;

	if (rc >= 0) {
		p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
		rc = p == MAP_FAILED ? pl_fail_sys(err, "a temporary file of %zu bytes", bytes) : 0;
	}
	if (rc < 0) {
		if (fd >= 0)
			close(fd);
		return rc;
	}
	if (s->cap)
		memcpy(p, s->p, s->cap);
	pl_free(s->p);
	*s = (struct pl_spill){ .p = p, .cap = bytes, .file = true, .fd = fd };
	return 0;
}

int pl_spill_grow(struct pl_spill *s, size_t need, struct pl_err *err)
{
	size_t bytes = s->cap ? s->cap : 64 << 10;
	void *p;

	if (need <= s->cap)
		return 0;
	while (bytes < need && bytes <= SIZE_MAX / 4)
		bytes *= 2;
	if (bytes < need)
		return pl_fail(err, PL_ENOMEM, "out of memory (%zu bytes)", need);
	if (bytes <= PL_SPILL_BYTES) {
		p = pl_realloc(s->p, bytes);
		if (!p)
			return pl_fail(err, PL_ENOMEM, "out of memory (%zu bytes)", bytes);
	} else if (!s->file) {
		return move_out(s, bytes, err);
	} else {
		PL_CHECK(lengthen(s->fd, bytes, err));
		pl_spill_rest(s);
		p = mremap(s->p, s->cap, bytes, MREMAP_MAYMOVE);
		if (p == MAP_FAILED)
			return pl_fail_sys(err, "a temporary file of %zu bytes", bytes);
	}
	s->p = p;
	s->cap = bytes;
	return 0;
}

void pl_spill_rest(const struct pl_spill *s)
{
	if (s->file)
		madvise(s->p, s->cap, MADV_DONTNEED);
}

void pl_spill_fini(struct pl_spill *s)
{
	if (s->file) {
		munmap(s->p, s->cap);
		close(s->fd);
	} else {
		pl_free(s->p);
	}
	memset(s, 0, sizeof(*s));
}
