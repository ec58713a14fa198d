// bool, true and false are built into C++.
#pragma once
