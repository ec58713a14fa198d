// NVRTC has the built-in variables, vector types and device functions; host calls have no place in a kernel source.
#pragma once
#include <stddef.h>
