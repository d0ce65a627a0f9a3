/*
 * Boards that are known by name: the limit of their power and their compute capability, as their
 * makers publish them. A data sheet that has the members Power and Capability overrides this.
 *
 * The power decides how fast boards of 70 W compute: their peak holds for a moment only. The
 * capability says which kernels the libraries have for a device.
 */
#include <ctype.h>
#include <math.h>

#include "kernel/device.h"

/* The first row whose pattern fits the name in capitals, with blanks for "-" and "_". */
static const struct board {
	const char *pattern;
	double watts, capability;
} boards[] = {
	{ "*P100*SXM*", 300, 6.0 },
	{ "*P100*", 250, 6.0 },
	{ "*P40|*P40 *", 250, 6.1 },
	{ "*P4|*P4 *", 75, 6.1 },
	{ "*V100*SXM3*", 350, 7.0 },
	{ "*V100*SXM*", 300, 7.0 },
	{ "*V100S*", 250, 7.0 },
	{ "*V100*", 250, 7.0 },
	{ "*TITAN V*", 250, 7.0 },
	{ "*T4|*T4 *", 70, 7.5 },
	{ "*TITAN RTX*", 280, 7.5 },
	{ "*RTX 2080 TI*", 250, 7.5 },
	{ "*RTX 2080*", 215, 7.5 },
	{ "*QUADRO RTX 8000*", 260, 7.5 },
	{ "*QUADRO RTX 6000*", 260, 7.5 },
	{ "*A100*SXM*", 400, 8.0 },
	{ "*A100*80GB*PCIE*", 300, 8.0 },
	{ "*A100*PCIE*80GB*", 300, 8.0 },
	{ "*A100*", 250, 8.0 },
	{ "*A800*SXM*", 400, 8.0 },
	{ "*A800*", 300, 8.0 },
	{ "*A30|*A30 *", 165, 8.0 },
	{ "*A10G*", 300, 8.6 },
	{ "*A10|*A10 *", 150, 8.6 },
	{ "*A16|*A16 *", 62.5, 8.6 },
	{ "*A2|*A2 *", 60, 8.6 },
	{ "*A40|*A40 *", 300, 8.6 },
	{ "*RTX A6000*", 300, 8.6 },
	{ "*RTX A5000*", 230, 8.6 },
	{ "*RTX A4000*", 140, 8.6 },
	{ "*RTX 3090 TI*", 450, 8.6 },
	{ "*RTX 3090*", 350, 8.6 },
	{ "*RTX 3080 TI*", 350, 8.6 },
	{ "*RTX 3080*", 320, 8.6 },
	{ "*RTX 3070*", 220, 8.6 },
	{ "*L40S*", 350, 8.9 },
	{ "*L40|*L40 *", 300, 8.9 },
	{ "*L4|*L4 *", 72, 8.9 },
	{ "*RTX 6000 ADA*", 300, 8.9 },
	{ "*RTX 4090*", 450, 8.9 },
	{ "*RTX 4080*", 320, 8.9 },
	{ "*H100*PCIE*", 350, 9.0 },
	{ "*H100*NVL*", 400, 9.0 },
	{ "*H100*", 700, 9.0 },
	{ "*H800*PCIE*", 350, 9.0 },
	{ "*H800*", 700, 9.0 },
	{ "*H20|*H20 *", 400, 9.0 },
	{ "*GH200*", 900, 9.0 },
	{ "*H200*", 700, 9.0 },
	{ "*B200*", 1000, 10.0 },
	{ "*MI100*", 300, NAN },
	{ "*MI210*", 300, NAN },
	{ "*MI250*", 500, NAN },
	{ "*MI300X*", 750, NAN },
};

bool pl_device_board(const char *title, double *watts, double *capability)
{
	char name[128];
	size_t n = 0;

	for (; title[n] && n + 1 < sizeof(name); n++)
		name[n] = title[n] == '-' || title[n] == '_'
				  ? ' '
				  : (char)toupper((unsigned char)title[n]);
	name[n] = '\0';
	for (size_t i = 0; i < PL_LEN(boards); i++)
		if (pl_glob(boards[i].pattern, name)) {
			*watts = boards[i].watts;
			*capability = boards[i].capability;
			return true;
		}
	return false;
}
