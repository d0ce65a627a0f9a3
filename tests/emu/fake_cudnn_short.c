/* fake_cudnn_short - a libcudnn of a right version that lost the older interface. */
#include <stddef.h>

__attribute__((visibility("default"))) size_t cudnnGetVersion(void);
__attribute__((visibility("default"))) size_t cudnnGetVersion(void)
{
	return 99900;
}
