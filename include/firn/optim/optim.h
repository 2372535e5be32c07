// Optimizers: SGD, Adam, AdamW, RMSprop, Adagrad, LAMB, Lion, Adafactor, Muon, schedule-free AdamW,
// Custom, the cycle they share, and schedules.
#pragma once

#include "firn/optim/ema.h"
#include "firn/optim/health.h"
#include "firn/optim/joint_step.h"
#include "firn/optim/loss_scale.h"
#include "firn/optim/optimizer.h"
#include "firn/optim/param_list.h"
#include "firn/optim/rules/adafactor.h"
#include "firn/optim/rules/adagrad.h"
#include "firn/optim/rules/adam.h"
#include "firn/optim/rules/custom.h"
#include "firn/optim/rules/lamb.h"
#include "firn/optim/rules/lion.h"
#include "firn/optim/rules/muon.h"
#include "firn/optim/rules/rmsprop.h"
#include "firn/optim/rules/schedule_free.h"
#include "firn/optim/rules/sgd.h"
#include "firn/optim/schedule.h"
#include "firn/optim/step_options.h"
#include "firn/optim/step_report.h"
#include "firn/optim/whole_weights.h"
