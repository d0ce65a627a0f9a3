/* The one main of all programs: each defines its `pl_command`. */
#include "core/cmd.h"

int main(int argc, char **argv)
{
	return pl_main(&pl_command, argc, argv);
}
