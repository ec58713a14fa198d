// malloc, free and abs are built into NVRTC.
#pragma once
#include <stddef.h>
