/*
 * slices - run two commands by turns of a few milliseconds and say what each cost
 *
 * usage: slices MS COMMAND [ARGUMENT]... -- COMMAND [ARGUMENT]...
 *
 * Prints "CPU WALL" of each to descriptor 3, on one line: seconds of user and system time with all
 * its processes, and how long it was allowed to run. While one runs the other one is stopped, so
 * what else the machine does, and how fast it is at the moment, hits both alike: two commands that
 * do nearly the same can be told apart where runs one after the other differ by more than they do.
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static struct side {
	char **argv;
	pid_t pid; /* and process group */
	int status;
	int over;
	double cpu, wall;
} s[2];

/* Nobody else would ever continue what is stopped. */
static void end(int sig)
{
	for (int i = 0; i < 2; i++)
		if (s[i].pid > 0 && !s[i].over)
			kill(-s[i].pid, SIGKILL);
	_exit(128 + sig);
}

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static double seconds(struct timeval t)
{
	return (double)t.tv_sec + (double)t.tv_usec * 1e-6;
}

/* Stopped before it becomes the command. */
static int start(struct side *x)
{
	int status;

	x->pid = fork();
	if (x->pid == 0) {
		close(3);
		setpgid(0, 0);
		raise(SIGSTOP);
		execvp(x->argv[0], x->argv);
		perror(x->argv[0]);
		_exit(127);
	}
	return x->pid < 0 || waitpid(x->pid, &status, WUNTRACED) < 0 || !WIFSTOPPED(status);
}

/* A turn, or what is left of it when the command ends. */
static void turn(struct side *x, double length)
{
	const struct timespec little = { .tv_nsec = 1000000 };
	struct rusage use;
	double begin = now();

	kill(-x->pid, SIGCONT);
	while (!x->over && now() - begin < length) {
		nanosleep(&little, NULL);
		x->over = wait4(x->pid, &x->status, WNOHANG, &use) != 0;
	}
	x->wall += now() - begin;
	if (x->over)
		x->cpu = seconds(use.ru_utime) + seconds(use.ru_stime);
	else
		kill(-x->pid, SIGSTOP);
}

int main(int argc, char **argv)
{
	double length = argc > 1 ? 1e-3 * strtod(argv[1], NULL) : 0;

	for (int i = 2; i < argc; i++)
		if (!strcmp(argv[i], "--")) {
			argv[i] = NULL;
			s[0].argv = argv + 2;
			s[1].argv = argv + i + 1;
			break;
		}
	if (length <= 0 || !s[0].argv || !s[0].argv[0] || !s[1].argv[0]) {
		fprintf(stderr, "usage: slices MS COMMAND... -- COMMAND...\n");
		return 2;
	}
	signal(SIGINT, end);
	signal(SIGTERM, end);
	if (start(&s[0]) || start(&s[1])) {
		perror("slices");
		return 70;
	}
	while (!s[0].over || !s[1].over)
		for (int i = 0; i < 2; i++)
			if (!s[i].over)
				turn(&s[i], length);
	if (dprintf(3, "%.6f %.6f %.6f %.6f\n", s[0].cpu, s[0].wall, s[1].cpu, s[1].wall) < 0) {
		perror("slices: descriptor 3");
		return 4;
	}
	for (int i = 0; i < 2; i++)
		if (!WIFEXITED(s[i].status) || WEXITSTATUS(s[i].status)) {
			fprintf(stderr, "slices: %s failed\n", s[i].argv[0]);
			return 1;
		}
	return 0;
}
