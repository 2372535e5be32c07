// Deprecated: include "firn/onnx/export.h", where io::export_onnx() is declared.
#pragma once

#include "firn/onnx/export.h"
