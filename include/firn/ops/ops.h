// Operations on tensors. Each op is recorded for backward() unless NoGrad is active or no operand
// requires a gradient. Nothing is promoted: operands of one op have the same dtype and device, or
// it throws, also for bool beside f32 (autocast.h can cast them). A C++ number takes the tensor's
// dtype, and an integer dtype must hold it: ones({2}, u8) * 300.0 throws. An op over one axis takes
// its number, one over any axes a list or a number; options call it `.axis`. Between integer
// tensors arithmetic wraps around. f16 and bf16 are computed in f32 and rounded once, unless an op
// says where else it rounds. Invalid arguments throw Error with the op, the values and a hint.
//
// Subnormal numbers: on the CPU an op takes a subnormal f32, bf16 or f64 operand as it is or as 0,
// and gives a result of that size, or an intermediate one, as 0. So log(mask + 1e-45) is -inf where
// the mask is 0: write 1e-30 instead. Copies, casts and sorting keep subnormal numbers. Those of
// f16 (below 6e-5) are ordinary numbers in f32, and stay.
#pragma once

#include "firn/ops/activation.h"
#include "firn/ops/copy.h"
#include "firn/ops/creation.h"
#include "firn/ops/elementwise.h"
#include "firn/ops/index.h"
#include "firn/ops/precision.h"
#include "firn/ops/products.h"
#include "firn/ops/reduce.h"
#include "firn/ops/rows.h"
#include "firn/ops/shape.h"
