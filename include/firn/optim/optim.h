// Optimizers: SGD, Adam, AdamW, RMSprop, Adagrad, LAMB, Lion, the cycle they share, and schedules.
#pragma once

#include "firn/optim/adagrad.h"
#include "firn/optim/adam.h"
#include "firn/optim/ema.h"
#include "firn/optim/health.h"
#include "firn/optim/joint_step.h"
#include "firn/optim/lamb.h"
#include "firn/optim/lion.h"
#include "firn/optim/loss_scale.h"
#include "firn/optim/optimizer.h"
#include "firn/optim/param_list.h"
#include "firn/optim/rmsprop.h"
#include "firn/optim/schedule.h"
#include "firn/optim/sgd.h"
#include "firn/optim/step_options.h"
#include "firn/optim/step_report.h"
