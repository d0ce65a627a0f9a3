/*
 * Memory that processes of one host share. memfd_create() makes it, so that it has no name and
 * nothing remains when its processes are killed. Another process opens /proc/PID/fd/FD, which works
 * for processes of one user. Its size is sealed: who maps it knows that it stays whole.
 */
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "comm/internal.h"

int pl_comm_memory_make(size_t bytes, int *fd, struct pl_err *err)
{
	*fd = pl_fail_now() ? -1 : memfd_create("paceline", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	if (*fd < 0)
		return pl_fail_sys(err, "cannot make shared memory");
	if (ftruncate(*fd, (off_t)bytes) < 0 || fcntl(*fd, F_ADD_SEALS, F_SEAL_SHRINK) < 0) {
		pl_fail_sys(err, "cannot make %zu bytes of shared memory", bytes);
		pl_comm_close(fd);
		return PL_EIO;
	}
	return 0;
}

int pl_comm_memory_map(int fd, size_t bytes, void *to, struct pl_err *err)
{
	int how = fd < 0 ? MAP_PRIVATE | MAP_ANONYMOUS : MAP_SHARED;
	void *p =
		pl_fail_now() ? MAP_FAILED : mmap(NULL, bytes, PROT_READ | PROT_WRITE, how, fd, 0);

	if (p != MAP_FAILED)
		memcpy(to, &p, sizeof(p));
	else if (fd < 0)
		return pl_fail(err, PL_ENOMEM, "out of memory (%zu bytes)", bytes);
	else
		return pl_fail_sys(err, "cannot map %zu bytes of shared memory", bytes);
	return 0;
}

int pl_comm_memory_open(int64_t pid, int64_t other, size_t bytes, int *fd, struct pl_err *err)
{
	char path[64];
	off_t size;
	int seals;

	snprintf(path, sizeof(path), "/proc/%lld/fd/%lld", (long long)pid, (long long)other);
	*fd = pl_fail_now() ? -1 : open(path, O_RDWR | O_CLOEXEC | O_NONBLOCK);
	if (*fd < 0)
		return pl_fail_sys(err,
				   "cannot open the shared memory of process %lld (do the "
				   "ranks run in different containers? transport tcp needs none)",
				   (long long)pid);
	size = lseek(*fd, 0, SEEK_END);
	seals = fcntl(*fd, F_GET_SEALS);
	if (size < 0 || (size_t)size < bytes || seals < 0 || !(seals & F_SEAL_SHRINK)) {
		pl_comm_close(fd);
		return pl_fail(err, PL_EIO, "shared memory of process %lld has %lld bytes, not %zu",
			       (long long)pid, (long long)size, bytes);
	}
	return 0;
}
