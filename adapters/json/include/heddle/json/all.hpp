// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief Every reader and writer of files, except for what a fit prints (`fit_report.hpp`, which includes Eigen).
#pragma once

#include <heddle/json/checkpoint.hpp>
#include <heddle/json/cluster.hpp>
#include <heddle/json/digest.hpp>
#include <heddle/json/document.hpp>
#include <heddle/json/durable_file.hpp>
#include <heddle/json/file.hpp>
#include <heddle/json/fitted.hpp>
#include <heddle/json/layer_profile.hpp>
#include <heddle/json/model.hpp>
#include <heddle/json/names.hpp>
#include <heddle/json/pipeline_plan.hpp>
#include <heddle/json/plan.hpp>
#include <heddle/json/safetensors.hpp>
#include <heddle/json/safetensors_writer.hpp>
#include <heddle/json/samples.hpp>
#include <heddle/json/staged_plan.hpp>
#include <heddle/json/templates.hpp>
#include <heddle/json/theory.hpp>
#include <heddle/json/trace.hpp>
#include <heddle/json/trials.hpp>
