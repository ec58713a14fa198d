// clock and clock_t are built into NVRTC.
#pragma once
