/*
 * The libraries that an ELF file names (DT_NEEDED), read from the file alone: the program is not
 * started, and ldd(1), which may start it, is not needed.
 */
#include <elf.h>
#include <fcntl.h>
#include <limits.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "record/needs.h"

struct elf {
	const char *p;
	size_t n;
};

/* `size` bytes at an offset; NULL: they are not in the file. */
static const void *at(const struct elf *f, uint64_t offset, uint64_t size)
{
	return offset <= f->n && size <= f->n - offset ? f->p + offset : NULL;
}

static const ElfW(Phdr) * header(const struct elf *f, unsigned i)
{
	const ElfW(Ehdr) *e = at(f, 0, sizeof(*e));

	return e && i < e->e_phnum
		       ? at(f, e->e_phoff + (uint64_t)i * sizeof(ElfW(Phdr)), sizeof(ElfW(Phdr)))
		       : NULL;
}

/* The offset of an address; SIZE_MAX: it is not of the file. */
static uint64_t offset_of(const struct elf *f, uint64_t address)
{
	const ElfW(Phdr) * h;

	for (unsigned i = 0; (h = header(f, i)); i++)
		if (h->p_type == PT_LOAD && address >= h->p_vaddr &&
		    address - h->p_vaddr < h->p_filesz)
			return h->p_offset + (address - h->p_vaddr);
	return SIZE_MAX;
}

/* A text of the table that ends in the file. */
static const char *text_at(const struct elf *f, uint64_t table, uint64_t index)
{
	const char *s = table > f->n ? NULL : at(f, table + index, 1);

	return s && memchr(s, 0, f->n - (size_t)(s - f->p)) ? s : NULL;
}

static bool search(const struct elf *f, const char *beginning, char *name, size_t size)
{
	const ElfW(Phdr) *h = NULL, *dynamic = NULL;
	const ElfW(Dyn) * d;
	uint64_t table = SIZE_MAX;

	for (unsigned i = 0; (h = header(f, i)); i++)
		if (h->p_type == PT_DYNAMIC)
			dynamic = h;
	for (unsigned pass = 0; dynamic && pass < 2; pass++)
		for (uint64_t i = 0; (d = at(f, dynamic->p_offset + i * sizeof(*d), sizeof(*d))) &&
				     d->d_tag != DT_NULL;
		     i++) {
			const char *s = pass && d->d_tag == DT_NEEDED
						? text_at(f, table, d->d_un.d_val)
						: NULL;

			if (!pass && d->d_tag == DT_STRTAB)
				table = offset_of(f, d->d_un.d_ptr);
			if (!s || strncmp(s, beginning, strlen(beginning)) != 0)
				continue;
			snprintf(name, size, "%s", s);
			return true;
		}
	return false;
}

static bool is_ours(const struct elf *f)
{
	const ElfW(Ehdr) *e = at(f, 0, sizeof(*e));

	return e && !memcmp(e->e_ident, ELFMAG, SELFMAG) &&
	       e->e_ident[EI_CLASS] == (sizeof(void *) == 8 ? ELFCLASS64 : ELFCLASS32) &&
	       e->e_phentsize == sizeof(ElfW(Phdr));
}

static bool look(const char *path, const char *beginning, char *name, size_t size)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	struct stat st;
	struct elf f = { 0 };
	bool found = false;
	void *p;

	if (fd < 0)
		return false;
	if (!fstat(fd, &st) && S_ISREG(st.st_mode) && st.st_size > 0) {
		f.n = (size_t)st.st_size;
		p = mmap(NULL, f.n, PROT_READ, MAP_PRIVATE, fd, 0);
		f.p = p == MAP_FAILED ? NULL : p;
		found = f.p && is_ours(&f) && search(&f, beginning, name, size);
		if (f.p)
			munmap(p, f.n);
	}
	close(fd);
	return found;
}

bool pl_record_needs(const char *program, const char *beginning, char *name, size_t size)
{
	const char *folder = getenv("PATH");
	char path[PATH_MAX];

	if (strchr(program, '/'))
		return look(program, beginning, name, size);
	for (folder = folder ? folder : "/usr/bin:/bin"; *folder;) {
		size_t n = strcspn(folder, ":");

		snprintf(path, sizeof(path), "%.*s%s%s", (int)n, folder, n ? "/" : "", program);
		if (access(path, X_OK) == 0)
			return look(path, beginning, name, size);
		folder += n + (folder[n] == ':');
	}
	return false;
}
