// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief What a program calls that describes a model and a cluster, plans, and reads, checks, prices and shows plans.
/// Searches, theory, cost models and the interpreter are included by their own headers, or all together by
/// `heddle/all.hpp`.
#pragma once

#include <heddle/base/error.hpp>
#include <heddle/base/quantity.hpp>

#include <heddle/program/program.hpp>

#include <heddle/cluster/cluster.hpp>
#include <heddle/cluster/presets.hpp>

#include <heddle/plan/evaluate.hpp>
#include <heddle/plan/figures.hpp>
#include <heddle/plan/pipeline_plan.hpp>
#include <heddle/plan/pipeline_table.hpp>
#include <heddle/plan/plan.hpp>
#include <heddle/plan/simulate.hpp>
#include <heddle/plan/staged_plan.hpp>
#include <heddle/plan/staged_table.hpp>
#include <heddle/plan/table.hpp>
#include <heddle/plan/verify.hpp>
#include <heddle/plan/verify_staged.hpp>
#include <heddle/plan/words.hpp>

#include <heddle/balance/ratio_problem.hpp>

#include <heddle/synthesis/price_pipeline.hpp>

#include <heddle/planner/amp.hpp>
#include <heddle/planner/ditto.hpp>
#include <heddle/planner/hap.hpp>
#include <heddle/planner/hidup.hpp>
#include <heddle/planner/joint.hpp>
#include <heddle/planner/mesh.hpp>
