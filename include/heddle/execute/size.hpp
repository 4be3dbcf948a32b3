// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief What executing a plan in one process takes.
#pragma once

#include <heddle/base/definitions.hpp>
#include <heddle/plan/plan.hpp>
#include <heddle/program/indexed_program.hpp>
#include <heddle/program/program.hpp>

#include <algorithm>

namespace heddle {

/// Returns the number of devices on which a plan runs, counting all devices of groups.
[[nodiscard]] std::size_t ranks_of(plan const& p);

/// Returns one of the micro-batches that take turns in a plan of a program, or the program where none do.
[[nodiscard]] program one_in_turn(program const& p, plan const& what);

/// Returns a program as the devices of a plan see it: in its segments; split inside, if they are groups; as one of the
/// micro-batches that take turns.
[[nodiscard]] indexed_program index_for(program const& p, plan const& what);
/// As above, of `one_in_turn`, which the programs of stages are (`parts_of`).
[[nodiscard]] indexed_program index_part_for(program const& part, plan const& what);

/// What running a program and then a plan of it takes, without what kernels use beside tensors.
struct execution_size {
    bytes memory;
    flops work;
};

/// Returns the size of `prove`: all tensors and cotangents of the single device or, later, all forms of them on all
/// ranks, whichever is more, beside sources and gradients, in double precision.
[[nodiscard]] execution_size size_of_execution(indexed_program const& program, plan const& p);

} // namespace heddle

#if HEDDLE_DEFINITIONS

#include <heddle/plan/evaluate.hpp>
#include <heddle/theory/batch.hpp>
#include <heddle/theory/micro_batch.hpp>

namespace heddle {

HEDDLE_INLINE std::size_t ranks_of(plan const& p) {
    std::size_t ranks = 0;
    for (auto const& d : p.devices) ranks += static_cast<std::size_t>(d.group_size);
    return ranks;
}

HEDDLE_INLINE program one_in_turn(program const& p, plan const& what) {
    auto const& training = what.provenance.training;
    return training.interleaves() ? micro_batch_of(p, training.micro_batches) : p;
}

HEDDLE_INLINE indexed_program index_for(program const& p, plan const& what) {
    return index_part_for(one_in_turn(p, what), what);
}

HEDDLE_INLINE indexed_program index_part_for(program const& part, plan const& what) {
    auto indexed = index_program(part, what.segments);
    if (what.has_groups()) split_inside(indexed);
    auto next = what.tensors.begin();
    for (auto& t : indexed.tensors)
        if (next != what.tensors.end()) t.region = next++->region;
    return indexed;
}

HEDDLE_INLINE execution_size size_of_execution(indexed_program const& program, plan const& p) {
    auto const ranks = static_cast<double>(ranks_of(p));
    auto const size_of = [&](tensor_id t) {
        auto const& tensor = program.tensors[t];
        return bytes(8 * static_cast<double>(tensor.info.elements()) * (tensor.has_cotangent ? 2 : 1));
    };
    bytes sources, single, distributed;
    flops work;
    for (tensor_id t = 0; t < program.tensors.size(); ++t) {
        single += size_of(t);
        if (program.tensors[t].is_source()) sources += size_of(t);
    }
    auto const sizes = p.mesh().sizes();
    double const slice = ranks / static_cast<double>(p.is_on_mesh() ? p.devices.size() : ranks_of(p));
    auto const hold = [&](tensor_id t, product_form const& f) {
        double copies = p.is_on_mesh() ? 1 : f[0].is_shard() ? 1 : ranks;
        for (axis_number a = 0; a < f.size() && p.is_on_mesh(); ++a)
            if (!f[a].is_shard()) copies *= static_cast<double>(sizes[a]);
        distributed += size_of(t) * copies;
    };
    for (auto const& op : program.operators) work += op.work.forward + op.work.backward;
    for (auto const& s : p.steps) {
        auto const& i = s.instruction;
        if (auto const* change = i.change()) hold(change->tensor, s.to());
        if (auto const* read = i.as<instruction::read>()) hold(read->tensor, s.to()); // as it is stored
        if (auto const* compute = i.as<instruction::compute>())
            for (std::size_t k = 0; k < compute->results.size(); ++k)
                hold(program.operators[compute->op].results[k], s.result(k));
        work += (s.step.forward.operations + s.step.backward.operations) * (s.step.share.is_split() ? slice : ranks) +
                s.step.deferred.operations * ranks;
    }
    return {sources + std::max(single, distributed), work};
}

} // namespace heddle

#endif
