#include <inttypes.h>
#include <stdio.h>

#include "core/core.h"
#include "record/stolen.h"

bool pl_stolen_read(const char *path, struct pl_stolen *s)
{
	int64_t user, nice, system, irq, softirq;
	char text[256];

	/* the line of all processors is the first; time of guests is a part of user and nice */
	if (pl_read_small(path, text, sizeof(text)) <= 0 ||
	    sscanf(text,
		   "cpu %" SCNd64 " %" SCNd64 " %" SCNd64 " %*d %*d %" SCNd64 " %" SCNd64
		   " %" SCNd64,
		   &user, &nice, &system, &irq, &softirq, &s->stolen) != 6)
		return false;
	s->used = user + nice + system + irq + softirq;
	return true;
}

double pl_stolen_share(const struct pl_stolen *before, const struct pl_stolen *after)
{
	double stolen = (double)(after->stolen - before->stolen);
	double wanted = (double)(after->used - before->used) + stolen;

	return stolen > 0 && wanted > 0 ? stolen / wanted : 0;
}
