/* The outer form of a gzip member of paceline-container(5), for the writer and the reader. */
#include "io/internal.h"

const uint8_t pl_container_member_end[PL_MEMBER_END] = {
	0x1f, 0x8b, 8,	 4, 0, 0,	    0,		 0, 0, 0xff,	      12,
	0,    'P',  'L', 8, 0, PL_ROLE_END, PL_REVISION, 0, 0, PL_MEMBER_END, 0,
	0,    0,    3
};

bool pl_container_member_starts(const uint8_t *p, size_t n)
{
	return !memcmp(p, pl_container_member_end, pl_min_size(n, 10));
}

const char *pl_container_member_parse(struct pl_container_member *m, const uint8_t *p, size_t n)
{
	unsigned xlen;

	memset(m, 0, sizeof(*m));
	if (!pl_container_member_starts(p, n))
		return "not a member of a paceline stream";
	if (n < PL_MEMBER_MIN)
		return "cut short";
	xlen = pl_le16_get(p + 10);
	if (p[12] != 'P' || p[13] != 'L' || xlen < 12 || pl_le16_get(p + 14) != xlen - 4)
		return "not a member of a paceline stream";
	m->role = p[16];
	if (p[17] != PL_REVISION || pl_le16_get(p + 18))
		return "written by a newer version";
	if (xlen != (m->role == PL_ROLE_HEADER ? 16 : 12) || !m->role || !strchr("HBXE", m->role))
		return "member of an unknown role";
	m->head = 12 + xlen;
	m->size = pl_le32_get(p + 20);
	if (m->size > PL_MEMBER_MAX || m->size < m->head + 2 + PL_MEMBER_TAIL)
		return "impossible size of a member";
	if (m->role == PL_ROLE_HEADER) {
		if (n < PL_MEMBER_MIN + 4)
			return "cut short";
		m->kind = pl_le32_get(p + 24);
	}
	return NULL;
}

bool pl_container_probe(const uint8_t *p, size_t n)
{
	return n >= 18 && !memcmp(p, "\x1f\x8b\x08\x04", 4) && p[12] == 'P' && p[13] == 'L' &&
	       p[16] == PL_ROLE_HEADER;
}

/* The kind is at a fixed place of the header's member, which is not compressed. */
int pl_container_kind(struct pl_in *in, uint32_t *kind, struct pl_err *err)
{
	const uint8_t *p;
	int64_t n = pl_in_peek(in, 28, &p, err);

	if (n < 0)
		return (int)n;
	if (!n)
		return pl_fail(err, PL_EDATA,
			       "%s: empty: the program that writes it failed or had no input",
			       pl_in_name(in));
	*kind = !pl_container_probe(p, (size_t)n) ? 0
		: n < 28			  ? PL_NONE
						  : PL_FOURCC(p[24], p[25], p[26], p[27]);
	return 0;
}
