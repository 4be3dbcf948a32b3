// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief All of Heddle's core. Left out: the reference kernels on Eigen (`execute/eigen_kernels.hpp`), the graph for
/// Boost.Graph (`program/operator_graph.hpp`), the operator catalogue for readers (`program/operators.hpp`,
/// `program/call_recorder.hpp`), fitting (`cluster/fit.hpp`, `pipeline/calibrate.hpp`, on Eigen), and the adapters,
/// each of which has an `all.hpp` of its own.
#pragma once

#include <heddle/base/algorithm.hpp>
#include <heddle/base/curve_point.hpp>
#include <heddle/base/error.hpp>
#include <heddle/base/quantity.hpp>

#include <heddle/search/anneal.hpp>
#include <heddle/search/best_first.hpp>
#include <heddle/search/block_vector.hpp>
#include <heddle/search/budget.hpp>
#include <heddle/search/deadline.hpp>
#include <heddle/search/mix_bits.hpp>
#include <heddle/search/numbering.hpp>
#include <heddle/search/outcome.hpp>
#include <heddle/search/pareto_dp.hpp>
#include <heddle/search/partition/partition.hpp>
#include <heddle/search/partition/partition_problem.hpp>
#include <heddle/search/partition/partition_with_tail.hpp>
#include <heddle/search/problem.hpp>
#include <heddle/search/properties/landmark_bound.hpp>
#include <heddle/search/properties/landmark_cuts.hpp>
#include <heddle/search/properties/property_set.hpp>
#include <heddle/search/properties/property_space.hpp>
#include <heddle/search/properties/property_task.hpp>
#include <heddle/search/properties/stubborn_set.hpp>
#include <heddle/search/result.hpp>
#include <heddle/search/state_graph.hpp>
#include <heddle/search/state_table.hpp>
#include <heddle/search/visitor.hpp>

#include <heddle/program/axioms.hpp>
#include <heddle/program/concepts.hpp>
#include <heddle/program/equal_structure.hpp>
#include <heddle/program/index_rule.hpp>
#include <heddle/program/indexed_program.hpp>
#include <heddle/program/program.hpp>
#include <heddle/program/tensor.hpp>

#include <heddle/cluster/cluster.hpp>
#include <heddle/cluster/fitted.hpp>
#include <heddle/cluster/inside.hpp>
#include <heddle/cluster/presets.hpp>
#include <heddle/cluster/sample.hpp>
#include <heddle/cluster/saturation.hpp>

#include <heddle/theory/batch.hpp>
#include <heddle/theory/batch_split.hpp>
#include <heddle/theory/cut_space.hpp>
#include <heddle/theory/factor_set.hpp>
#include <heddle/theory/form.hpp>
#include <heddle/theory/instruction.hpp>
#include <heddle/theory/instruction_filter.hpp>
#include <heddle/theory/micro_batch.hpp>
#include <heddle/theory/operator_cuts.hpp>
#include <heddle/theory/operator_kinds.hpp>
#include <heddle/theory/reductions.hpp>
#include <heddle/theory/rescale.hpp>
#include <heddle/theory/theory.hpp>
#include <heddle/theory/view_conversions.hpp>

#include <heddle/cost/alike_devices.hpp>
#include <heddle/cost/atoms.hpp>
#include <heddle/cost/buckets.hpp>
#include <heddle/cost/cost_model.hpp>
#include <heddle/cost/duplex.hpp>
#include <heddle/cost/overlapped.hpp>
#include <heddle/cost/priced_graph.hpp>
#include <heddle/cost/relaxation_weights.hpp>
#include <heddle/cost/saturated_work.hpp>
#include <heddle/cost/serial.hpp>
#include <heddle/cost/serial_actions.hpp>
#include <heddle/cost/step.hpp>
#include <heddle/cost/timeline.hpp>
#include <heddle/cost/work.hpp>

#include <heddle/plan/as_planned.hpp>
#include <heddle/plan/buckets.hpp>
#include <heddle/plan/evaluate.hpp>
#include <heddle/plan/figures.hpp>
#include <heddle/plan/pipeline_plan.hpp>
#include <heddle/plan/pipeline_table.hpp>
#include <heddle/plan/plan.hpp>
#include <heddle/plan/simulate.hpp>
#include <heddle/plan/table.hpp>
#include <heddle/plan/verify.hpp>

#include <heddle/balance/convex_curve.hpp>
#include <heddle/balance/curved_ratio_problem.hpp>
#include <heddle/balance/interleaved_ratio_problem.hpp>
#include <heddle/balance/program_ratio_problem.hpp>
#include <heddle/balance/ratio_problem.hpp>
#include <heddle/balance/reduced_ratio_problem.hpp>
#include <heddle/balance/segmented_ratio_problem.hpp>
#include <heddle/balance/smooth_curve.hpp>
#include <heddle/balance/ties.hpp>

#include <heddle/pipeline/degrees.hpp>
#include <heddle/pipeline/device_walk.hpp>
#include <heddle/pipeline/folding.hpp>
#include <heddle/pipeline/greedy_recovery.hpp>
#include <heddle/pipeline/layer_assignment.hpp>
#include <heddle/pipeline/layer_assignment_problem.hpp>
#include <heddle/pipeline/layers.hpp>
#include <heddle/pipeline/placement.hpp>
#include <heddle/pipeline/program_summary.hpp>
#include <heddle/pipeline/recovery.hpp>
#include <heddle/pipeline/schedule.hpp>
#include <heddle/pipeline/stage_kinds.hpp>
#include <heddle/pipeline/stage_memory.hpp>
#include <heddle/pipeline/stage_program.hpp>
#include <heddle/pipeline/strategy.hpp>
#include <heddle/pipeline/strategy_baselines.hpp>
#include <heddle/pipeline/strategy_bound.hpp>
#include <heddle/pipeline/strategy_problem.hpp>
#include <heddle/pipeline/strategy_walk.hpp>
#include <heddle/pipeline/template.hpp>
#include <heddle/pipeline/template_library.hpp>
#include <heddle/pipeline/template_plan.hpp>
#include <heddle/pipeline/template_problem.hpp>
#include <heddle/pipeline/template_search.hpp>
#include <heddle/pipeline/template_space.hpp>
#include <heddle/pipeline/template_subsets.hpp>

#include <heddle/synthesis/alternation.hpp>
#include <heddle/synthesis/balance_program.hpp>
#include <heddle/synthesis/baselines.hpp>
#include <heddle/synthesis/device_types.hpp>
#include <heddle/synthesis/global_bound.hpp>
#include <heddle/synthesis/layer_costs.hpp>
#include <heddle/synthesis/memory_reason.hpp>
#include <heddle/synthesis/pins.hpp>
#include <heddle/synthesis/plan_record.hpp>
#include <heddle/synthesis/plan_segments.hpp>
#include <heddle/synthesis/planned_prices.hpp>
#include <heddle/synthesis/planning_options.hpp>
#include <heddle/synthesis/planning_progress.hpp>
#include <heddle/synthesis/price_strategies.hpp>
#include <heddle/synthesis/program_profile.hpp>
#include <heddle/synthesis/proof.hpp>
#include <heddle/synthesis/realise.hpp>
#include <heddle/synthesis/relaxation_bounds.hpp>
#include <heddle/synthesis/segments.hpp>
#include <heddle/synthesis/stage_programs.hpp>
#include <heddle/synthesis/stage_run.hpp>
#include <heddle/synthesis/synthesise.hpp>
#include <heddle/synthesis/tensor_groups.hpp>

#include <heddle/planner/amp.hpp>
#include <heddle/planner/ditto.hpp>
#include <heddle/planner/hap.hpp>
#include <heddle/planner/hidup.hpp>
#include <heddle/planner/pipeline_plans.hpp>
#include <heddle/planner/price_pipeline.hpp>
#include <heddle/planner/program_pipelines.hpp>

#include <heddle/execute/communicator.hpp>
#include <heddle/execute/in_process.hpp>
#include <heddle/execute/interpreter.hpp>
#include <heddle/execute/kernel.hpp>
#include <heddle/execute/optimizer.hpp>
#include <heddle/execute/pipeline.hpp>
#include <heddle/execute/pipeline_layout.hpp>
#include <heddle/execute/prove.hpp>
#include <heddle/execute/prove_pipeline.hpp>
#include <heddle/execute/random.hpp>
#include <heddle/execute/random_sources.hpp>
#include <heddle/execute/shrink.hpp>
#include <heddle/execute/shrink_pipeline.hpp>
#include <heddle/execute/single_device.hpp>
#include <heddle/execute/size.hpp>
#include <heddle/execute/tensor.hpp>
