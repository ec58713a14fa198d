// Nothing: what it declares in CUDA is there before the first line of a source.
#pragma once
