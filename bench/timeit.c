/*
 * timeit - run a command and say what it cost: wall, user and system seconds, peak resident KiB
 *
 * usage: timeit COMMAND [ARGUMENT]...
 *
 * Prints one line "WALL USER SYS RSS" to descriptor 3, so that the command's own output stays
 * apart. Exits with the status of the command.
 */
#include <stdio.h>
#include <sys/resource.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static double seconds(struct timeval t)
{
	return (double)t.tv_sec + (double)t.tv_usec * 1e-6;
}

int main(int argc, char **argv)
{
	struct timespec a, b;
	struct rusage use;
	pid_t pid;
	int status;

	if (argc < 2) {
		fprintf(stderr, "usage: timeit COMMAND [ARGUMENT]...\n");
		return 2;
	}
	clock_gettime(CLOCK_MONOTONIC, &a);
	pid = fork();
	if (pid == 0) {
		close(3);
		execvp(argv[1], argv + 1);
		perror(argv[1]);
		_exit(127);
	}
	if (pid < 0 || wait4(pid, &status, 0, &use) < 0) {
		perror("timeit");
		return 70;
	}
	clock_gettime(CLOCK_MONOTONIC, &b);
	if (dprintf(3, "%.6f %.6f %.6f %ld\n",
		    (double)(b.tv_sec - a.tv_sec) + (double)(b.tv_nsec - a.tv_nsec) * 1e-9,
		    seconds(use.ru_utime), seconds(use.ru_stime), use.ru_maxrss) < 0) {
		perror("timeit: descriptor 3");
		return 4;
	}
	return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}
