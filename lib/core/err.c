/* Errors: the first failure wins, context is added outward. */
#include <errno.h>

#include "core/core.h"

PL_PRINTF(4, 0)
static int record(struct pl_err *err, int code, int sys, const char *fmt, va_list ap)
{
	if (!err || err->code)
		return err ? err->code : code;
	err->code = code;
	err->sys = sys;
	vsnprintf(err->msg, sizeof(err->msg), fmt, ap);
	return code;
}

int pl_fail(struct pl_err *err, int code, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	code = record(err, code, 0, fmt, ap);
	va_end(ap);
	return code;
}

int pl_fail_sys(struct pl_err *err, const char *fmt, ...)
{
	int sys = errno, code = sys == ENOMEM ? PL_ENOMEM : PL_EIO;
	bool first = err && !err->code;
	va_list ap;

	va_start(ap, fmt);
	code = record(err, code, sys, fmt, ap);
	va_end(ap);
	if (first) {
		size_t n = strlen(err->msg);

		snprintf(err->msg + n, sizeof(err->msg) - n, ": %s", strerror(sys));
	}
	return code;
}

int pl_fail_as(struct pl_err *err, const struct pl_err *why)
{
	if (why->code && err && !err->code)
		*err = *why;
	return why->code;
}

/* Length of the start of msg, with its colon, that repeats the end of head, such as a file name. */
static size_t repeated_length(const char *head, const char *msg)
{
	size_t n = strlen(head), again;

	for (const char *at = strstr(msg, ": "); at; at = strstr(at + 1, ": ")) {
		again = (size_t)(at - msg);
		if (again && again <= n && !memcmp(head + n - again, msg, again) &&
		    (again == n || head[n - again - 1] == ' '))
			return again + 2;
	}
	return 0;
}

int pl_wrap(struct pl_err *err, const char *fmt, ...)
{
	char head[sizeof(err->msg)];
	size_t n, skip, old;
	va_list ap;

	if (!err || !err->code)
		return err ? PL_EINTERNAL : 0;
	va_start(ap, fmt);
	vsnprintf(head, sizeof(head) - 2, fmt, ap);
	va_end(ap);
	skip = repeated_length(head, err->msg);
	strcat(head, ": ");
	n = strlen(head);
	old = pl_min_size(strlen(err->msg) - skip, sizeof(err->msg) - 1 - n);
	memmove(err->msg + n, err->msg + skip, old);
	memcpy(err->msg, head, n);
	err->msg[n + old] = '\0';
	return err->code;
}

int pl_exit_status(int code)
{
	static const uint8_t status[] = { 0, 1, 2, 3, 4, 5, 5, 6 }; /* [-enum pl_code] */

	return code >= 0 ? 0 : -code < (int)PL_LEN(status) ? status[-code] : 70;
}

void pl_say(const struct pl_log *log, enum pl_level level, const char *fmt, ...)
{
	char text[1024];
	va_list ap;

	if (!log || !log->say)
		return;
	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	log->say(log->arg, level, text);
}
