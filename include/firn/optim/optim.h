// Optimizers: SGD, Adam, AdamW, and the cycle they share.
#pragma once

#include "firn/optim/adam.h"
#include "firn/optim/loss_scale.h"
#include "firn/optim/optimizer.h"
#include "firn/optim/schedule.h"
#include "firn/optim/sgd.h"
#include "firn/optim/step_options.h"
#include "firn/optim/step_report.h"
