/* Lines of a program's text, indented by the loops that are open. */
#include "tprog/internal.h"

void pl_tprog_line(struct pl_tprog_lines *t, const char *fmt, ...)
{
	char line[2048];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(line, sizeof(line), fmt, ap);
	va_end(ap);
	for (int i = 0; i < t->depth && !t->err->code; i++)
		if (pl_buf_put(t->text, "  ", 2, t->err) < 0)
			return;
	if (!t->err->code && pl_buf_printf(t->text, t->err, "%s\n", line) < 0)
		return;
}

void pl_tprog_close_lines(struct pl_tprog_lines *t, int depth)
{
	while (t->depth > depth) {
		t->depth--;
		pl_tprog_line(t, "end");
	}
}
