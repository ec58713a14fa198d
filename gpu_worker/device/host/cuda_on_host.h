// CUDA C++ for the host compiler: included before a user's source, which is then compiled unchanged.
//
//   language.h    qualifiers, vector types, the indices
//   intrinsics.h  mathematics and integer intrinsics
//   atomics.h     atomic functions and fences
//   warp.h        barriers, shuffles and votes
//   bounds.h      checks of accesses, where they are asked for
//   entry.h       the entry through which a kernel is launched
#pragma once

#include <assert.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "interface.h"

#include "language.h"
#include "intrinsics.h"
#include "atomics.h"
#include "warp.h"
#ifdef VISPARK_BOUNDS
#include "bounds.h"
#endif
#include "entry.h"
