// What it declares is for host code, which a kernel's source does not have.
#pragma once
