/* Time that the host of a virtual machine took, from files like /proc/stat. */
#include <stdlib.h>
#include <unistd.h>

#include "record/stolen.h"
#include "tap.h"

static bool read_text(const char *text, struct pl_stolen *s)
{
	char path[] = "/tmp/stolen-XXXXXX";
	int fd = mkstemp(path);
	FILE *f = fd >= 0 ? fdopen(fd, "w") : NULL;
	bool known;

	if (!f)
		return false;
	fputs(text, f);
	fclose(f);
	known = pl_stolen_read(path, s);
	unlink(path);
	return known;
}

static double share(const char *before, const char *after)
{
	struct pl_stolen a, b;

	if (!read_text(before, &a) || !read_text(after, &b))
		return -1;
	return pl_stolen_share(&a, &b);
}

int main(void)
{
	static const char idle[] = "cpu  100 0 20 5000 10 3 4 50 0 0\ncpu0 50 0 10 2500 5 1 2 25 "
				   "0 0\n";
	struct pl_stolen s;

	ok(read_text(idle, &s) && s.used == 127 && s.stolen == 50,
	   "of all processors; idle ones and those that wait for a disk are not used");
	ok(share(idle, "cpu  130 5 30 9000 90 4 8 100 7 0\n") == 0.5, "half of what was wanted");
	ok(share(idle, idle) == 0, "nothing was wanted");
	ok(share(idle, "cpu  100 0 20 5900 10 3 4 60 0 0\n") == 1, "all of it");
	ok(share(idle, "cpu  900 0 20 5900 10 3 4 50 0 0\n") == 0, "no host takes any");
	ok(!read_text("cpu  100 0 20 5000\n", &s), "an old kernel does not say");
	ok(!read_text("", &s), "an empty file does not");
	ok(!pl_stolen_read("/nowhere/stat", &s), "no file does not");
	return done_testing();
}
