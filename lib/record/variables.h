/* variables.h - of the environment: what a command that is recorded says to the libraries in its
 * processes. */
#ifndef PL_RECORD_VARIABLES_H
#define PL_RECORD_VARIABLES_H

#define PL_RECORD_DIR "PACELINE_RECORD_DIR" /* absolute name of the folder for recordings */
#define PL_RECORD_NCCL_NEXT                                                                        \
	"PACELINE_NCCL_NEXT" /* the plugin that the user had named: ours calls it */

#endif
