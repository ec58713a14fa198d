// What of rows.h nearest centres need, on the machine of machine.h.
#pragma once

#include "machine.h"

#include "vispark/fold.h"
#include "vispark/target.h"

namespace rows {

template <class T> T exchange(unsigned all, T value, int by) { return __shfl_xor_sync(all, value, by); }

}  // namespace rows
