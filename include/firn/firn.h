// Everything. One include, no third-party header behind it.
#pragma once

#include "firn/autograd.h"
#include "firn/device.h"
#include "firn/dtype.h"
#include "firn/error.h"
#include "firn/losses.h"
#include "firn/memory.h"
#include "firn/ops.h"
#include "firn/random.h"
#include "firn/shape.h"
#include "firn/stream.h"
#include "firn/tensor.h"
