/* The fake device as the plugin that run(1) opens. */
#include "config.h"
#include "fake_device.h"
#include "tensor/plugin.h"

__attribute__((visibility("default"))) extern const struct pl_plugin pl_plugin_cuda;
const struct pl_plugin pl_plugin_cuda = { PL_VERSION, &pl_backend_fake };
